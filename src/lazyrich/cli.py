"""The command line: verbs over the same functions. torch is loaded by those that measure."""

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import LazyrichError, UnknownName


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 0 for success, 2 for what the user can mend, 1 otherwise."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        if argv[:1] == ["reproduce"]:  # whose options are those of the folder that it runs
            return _reproduce(argv[1:])
        arguments = _parser().parse_args(argv)
        arguments.do(arguments)
        sys.stdout.flush()
    except (LazyrichError, FileNotFoundError) as error:
        print(f"lazyrich: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def _parser() -> argparse.ArgumentParser:
    from ._version import __version__

    parser = argparse.ArgumentParser(
        prog="lazyrich", description="Measure how much and what kind of features a network learned."
    )
    parser.add_argument("--version", action="version", version=f"lazyrich {__version__}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    demo = _verb(verbs, "demo", _demo, "train a rich and a lazy network on digits and compare")
    demo.add_argument("-o", "--out", type=Path, default=Path("demo"), help="folder for the results")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--quiet", action="store_true", help="no progress bar")

    measure = _verb(verbs, "measure", _measure, "measure a model on data")
    _add_model(measure)
    _add_choices(measure)
    measure.add_argument("--layers", action="append", help="address or glob; may be repeated")
    measure.add_argument("--view", help="mean (default), flatten, tokens or last")
    measure.add_argument("--quiet", action="store_true", help="no progress bar")

    arrays = _verb(verbs, "arrays", _arrays, "measure arrays of [n samples, d units]")
    arrays.add_argument("arrays", type=Path, help=".npz, .npy or .safetensors, an array a layer")
    arrays.add_argument("--labels", type=Path, help="a class for each sample")
    arrays.add_argument("--outputs", type=Path, help="the model's outputs for each sample")
    arrays.add_argument("--view", help="mean or flatten, for arrays of more than two axes")
    _add_choices(arrays)

    layers = _verb(verbs, "layers", _layers, "list what can be read, from one batch")
    _add_model(layers)
    layers.add_argument("--view", help="mean (default), flatten, tokens or last")
    layers.add_argument("--estimate", action="store_true", help="memory and work of measuring them")

    catalogue = _verb(verbs, "measures", _measures, "list the measures with their sources")
    catalogue.add_argument("--bibtex", action="store_true", help="the sources as BibTeX")

    show = _verb(verbs, "show", _show, "print records as a table")
    show.add_argument("records", type=Path, nargs="+")
    show.add_argument("--layers", action="append", help="glob; may be repeated")
    show.add_argument("--measures", action="append", help="glob; may be repeated")

    page = _verb(verbs, "report", _report, "write one offline HTML page from records")
    page.add_argument("records", type=Path, nargs="+")
    page.add_argument("-o", "--out", type=Path, default=Path("report.html"))
    page.add_argument("--title", default="lazyrich report")

    text = "run one of the papers' experiments again, from a checkout; see reproduce --help"
    verbs.add_parser("reproduce", help=text, add_help=False)
    return parser


def _verb(verbs: Any, name: str, do: Any, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    verb.set_defaults(do=do)
    return verb


def _add_model(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("model", help="pkg.module:name of a model, or of a function that makes one")
    verb.add_argument("--data", required=True, help="pkg.module:name of a loader, or of its maker")
    verb.add_argument("--weights", type=Path, help="safetensors or a saved state dict")
    verb.add_argument("--device", help="move the model there first, such as cuda")


def _add_choices(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--measures", action="append", help="name or glob; may be repeated")
    verb.add_argument("--interval", type=int, default=0, help="jackknife blocks, 10 is usual")
    verb.add_argument("--dtype", choices=["float32", "float64"], help="precision of products")
    verb.add_argument("--seed", type=int, default=0)
    verb.add_argument("--run", default="run", help="a name for the records")
    verb.add_argument("--memory-limit", type=float, metavar="GIB", help="for the statistics")
    verb.add_argument("-o", "--out", type=Path, help="append the records to this file")


def _demo(a: argparse.Namespace) -> None:
    from ._demo import demo

    print(demo(a.out, seed=a.seed, progress=not a.quiet))


def _reproduce(arguments: Sequence[str]) -> int:
    """Reproductions are no part of the package: they stand beside it in a checkout."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module("experiments.__main__")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("experiments"):
            raise
        raise LazyrichError(
            "the folder experiments/ is not here: reproductions run in a checkout of lazyrich."
        ) from error
    finally:
        del sys.path[0]
    status: int = found.main(arguments)
    return status


def _measure(a: argparse.Namespace) -> None:
    _check_out(a)
    from ._engine import measure

    records = measure(
        _model(a),
        _named(a.data, "--data"),
        a.measures,
        layers=a.layers,
        view=a.view,
        interval=a.interval,
        dtype=_dtype(a.dtype),
        seed=a.seed,
        run=a.run,
        memory_limit=a.memory_limit,
        progress=not a.quiet,
    )
    _deliver(records, a.out)


def _arrays(a: argparse.Namespace) -> None:
    _check_out(a)
    from ._engine import measure_arrays
    from ._files import load_array, load_arrays

    records = measure_arrays(
        load_arrays(a.arrays),
        a.measures,
        labels=None if a.labels is None else load_array(a.labels),
        outputs=None if a.outputs is None else load_array(a.outputs),
        view=a.view,
        interval=a.interval,
        dtype=_dtype(a.dtype),
        seed=a.seed,
        run=a.run,
        memory_limit=a.memory_limit,
    )
    _deliver(records, a.out)


def _layers(a: argparse.Namespace) -> None:
    from ._capture import Capture, layers
    from ._table import Cells, text

    capture = Capture(_model(a), "**", view=a.view or "mean")
    found = layers(capture, _named(a.data, "--data"))
    head = ["name", "kind", "shape", "calls", "units", "MiB", "MFLOP/sample", "note"]
    rows = [
        [
            x.name,
            x.kind,
            "" if x.shape is None else str(list(x.shape)),
            str(x.calls),
            "" if x.units is None else str(x.units),
            # float64 moments of the units; a product of each row with itself
            "" if x.units is None else f"{x.units**2 * 8 / 2**20:.2f}",
            "" if x.units is None else f"{2 * x.units**2 / 1e6:.2f}",
            x.note,
        ]
        for x in found
    ]
    shown = range(len(head)) if a.estimate else [0, 1, 2, 3, 7]
    print(text(Cells([head[i] for i in shown], [[row[i] for i in shown] for row in rows])))
    if a.estimate:
        print(_estimate([x.units or 0 for x in found]))


def _estimate(widths: list[int]) -> str:
    squares = sum(w * w for w in widths)
    return (
        f"all of them: {squares * 8 / 2**20:.1f} MiB of moments, times the blocks of an interval, "
        f"and {2 * squares / 1e6:.1f} MFLOP a sample beside the forward pass"
    )


def _measures(a: argparse.Namespace) -> None:
    from ._table import Cells, text
    from .measures import CATALOGUE

    if a.bibtex:
        print("\n".join(m.bibtex for m in CATALOGUE.values()))
        return
    rows = [[m.name, m.richer, m.summary, m.source] for m in CATALOGUE.values()]
    print(text(Cells(["name", "richer", "summary", "source"], rows)))


def _show(a: argparse.Namespace) -> None:
    from ._records import Records
    from ._table import text

    records = Records.load(*a.records)
    for column, patterns in (("layer", a.layers), ("measure", a.measures)):
        records = records.matching(column, patterns) if patterns else records
    print(text(records.cells()))


def _report(a: argparse.Namespace) -> None:
    from ._records import Records
    from ._report import report

    if a.out.exists() and any(a.out.samefile(path) for path in a.records if path.exists()):
        raise LazyrichError(f"the report would replace the records in {a.out}: choose another -o.")
    print(report(Records.load(*a.records), a.out, title=a.title))


def _check_out(a: argparse.Namespace) -> None:
    """Before any work: the records will have a place, and no run is there twice."""
    from ._records import Records, check_file

    if a.out is None:
        return
    check_file(a.out)
    if a.out.exists() and a.run in Records.load(a.out).unique("run"):
        raise LazyrichError(
            f"{a.out} already holds a run named {a.run!r}: give this one another name with --run, "
            "or write to another file."
        )


def _deliver(records: Any, out: Path | None) -> None:
    from ._table import text

    if out is not None:  # before anything that could fail on the way to the screen
        records.save(out)
        print(f"{len(records)} records -> {out}", file=sys.stderr)
    print(text(records.cells()))


def _dtype(name: str | None) -> Any:
    import torch

    return None if name is None else getattr(torch, name)


def _model(a: argparse.Namespace) -> Any:
    from torch import nn

    model = _named(a.model, "the model")
    if not isinstance(model, nn.Module):
        raise LazyrichError(f"{a.model} is no torch.nn.Module but a {type(model).__name__}.")
    if a.weights is not None:
        from ._files import load_weights

        load_weights(model, a.weights)
    try:
        return model if a.device is None else model.to(a.device)
    except (RuntimeError, AssertionError) as error:
        told = str(error).splitlines()[0]
        raise LazyrichError(f"cannot move the model to {a.device!r}: {told}") from error


def _named(spec: str, what: str) -> Any:
    """What `pkg.module:name` names, called if it is a function that makes it."""
    from importlib import import_module

    module_name, colon, name = spec.partition(":")
    if not (colon and module_name and name):
        raise LazyrichError(f"{what}: needs pkg.module:name, got {spec!r}.")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        own = module_name.startswith(error.name or module_name)
        mend = "Run from the folder it lies in." if own else f"{module_name} imports it."
        raise LazyrichError(f"{what}: no module {error.name!r} ({spec}). {mend}") from error
    except (TypeError, ValueError) as error:
        raise LazyrichError(f"{what}: needs pkg.module:name, got {spec!r} ({error}).") from error
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise UnknownName(f"name in {module_name}", name, public)
    return _made(getattr(module, name), what, spec)


def _made(found: Any, what: str, spec: str) -> Any:
    """A class or function makes what is meant; anything else is it."""
    if not (isinstance(found, type) or inspect.isroutine(found)):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise LazyrichError(f"{what}: {spec} must need no arguments ({error}).") from error
    return found()
