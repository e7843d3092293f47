"""Two models or sets of arrays in, similarities of their layers out: one pass, exact sums."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._arrays import Arrays
from ._capture import Capture
from ._engine import Model, as_capture
from ._evaluation import Heading
from ._pairs import Pairs, label
from ._ranks import several
from ._records import Records
from ._source import Source
from ._wanted import Chosen, Wanted
from .errors import LazyrichError, MissingInput, ShapeError
from .measures import CATALOGUE
from .statistics import Batch, PairMoments

Given = Model | Mapping[str, Any]
Both = tuple[Mapping[str, Batch], Mapping[str, Batch] | None]


@dataclass
class _Pass:
    """What both sides show, batch by batch, and what is known of them."""

    batches: Generator[Both, None, None]
    note: str
    view: str = ""
    widths: list[dict[str, int]] = field(default_factory=list)
    problems: list[dict[str, str]] = field(default_factory=list)
    cautions: list[dict[str, str]] = field(default_factory=list)


def compare(
    first: Given,
    second: Given | None = None,
    data: Iterable[Any] | None = None,
    measures: Chosen = "cka",
    *,
    layers: str | Sequence[str] | None = None,
    samples: Mapping[str, Any] | None = None,
    interval: int = 0,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    run: str = "run",
    memory_limit: float | None = None,
    progress: bool = True,
) -> Records:
    """How alike the layers of two models are, or of one, or arrays: every one beside every other.

    Every batch goes through both models in the same pass, and sums are kept for each pair of
    layers: values do not depend on the size of batches, nor on their order.

    Args:
        first, second: models, or arrays of [n samples, d units] by name. Without the second, the
            layers of the first are compared with each other.
        data: as in `measure`; none for arrays.
        measures: names, globs or measures of two representations; None for all of them.
        layers: patterns of addresses in both models, see `Capture`.
        samples: for arrays, the ids of the rows of each: rows are matched by them. Without, the
            rows of all arrays are taken to be in the same order.
        interval: blocks for a 95 % jackknife interval over samples; 0 for none, 10 is usual.
        dtype: precision of products; None for that of the activations, at least float32.
        seed: of all that the models or the data draw.
        run: a name for the records.
        memory_limit: GiB that the sums may hold; None for half of what is free.
        progress: a bar on stderr, where that is a terminal.

    Returns:
        A record for each pair and measure; its layer is `a ~ b`, the first's name first. Pairs
        of one model come once where the measure makes no difference between the two.

    Raises:
        LazyrichError: the input cannot be compared; the message says what to do.
    """
    if several():
        raise LazyrichError("compare() works in one process: call it in one of them, on all data.")
    wanted = Wanted(_of_pairs(measures), interval, dtype, memory_limit, seed)
    _check(wanted)
    sides = [side for side in (first, second) if side is not None]
    arrays = [side for side in sides if isinstance(side, Mapping)]
    models = [side for side in sides if not isinstance(side, Mapping)]
    if arrays and not models and data is None:
        seen = _arrays(arrays, samples, wanted.rotates)
    elif models and not arrays and data is not None and samples is None:
        captures = [as_capture(model, layers, None) for model in models]
        seen = _models(captures, Source(data, seed, progress))
    else:
        raise LazyrichError(
            "compare() takes models with data, or arrays by name, {'V1': x, 'IT': y}, with samples "
            "at most. These were mixed, or something is missing."
        )
    pairs = Pairs(max(interval, 1), dtype, memory_limit)
    with closing(seen.batches) as batches:
        for number, (left, right) in enumerate(batches):
            pairs.add(left, right, number)
    return _records(pairs, wanted, seen, Heading(run, seen.view, seed))


def _of_pairs(measures: Chosen) -> Chosen:
    return (
        [m for m in CATALOGUE.values() if m.needs is PairMoments] if measures is None else measures
    )


def _check(wanted: Wanted) -> None:
    for m in wanted.measures:
        if m.needs is not PairMoments:
            known = [n for n, each in CATALOGUE.items() if each.needs is PairMoments]
            raise LazyrichError(
                f"{m.name} is of one representation: lz.measure() takes it. "
                f"Those of two are {', '.join(known)}."
            )


def _models(captures: Sequence[Capture], source: Source) -> _Pass:
    """Every batch through one or two models, one after the other: they see the same."""
    names = [type(c.model).__name__ for c in captures]
    views = list(dict.fromkeys(c.view for c in captures))

    def batches() -> Generator[Both, None, None]:
        with ExitStack() as stack:
            sessions = [stack.enter_context(c.session(source.seed)) for c in captures]
            for item in source.items():
                read = [s.read(c.inputs(item)) for s, c in zip(sessions, captures, strict=True)]
                seen.problems = [s.problems for s in sessions]
                seen.cautions = [s.cautions for s in sessions]
                yield read[0], read[1] if len(read) > 1 else None

    seen = _Pass(batches(), " ~ ".join(names * (3 - len(names))), " ~ ".join(views))
    return seen


def _arrays(
    sides: Sequence[Mapping[str, Any]], samples: Mapping[str, Any] | None, rotate: bool
) -> _Pass:
    """Arrays by name, row beside row."""
    rows = {name: len(array) for side in sides for name, array in side.items()}
    if samples is not None:
        first = _ids(next(iter(sides[0])), samples, rows)
        sides = [{n: _ordered(n, a, first, samples, rows) for n, a in s.items()} for s in sides]
    elif len(set(rows.values())) > 1:
        raise ShapeError(
            f"these arrays have {', '.join(f'{r} ({n})' for n, r in rows.items())} rows, and a row "
            "must be the same sample in all. Leave some out, or pass the ids with samples=..."
        )
    found = [Arrays(side, None, None, None, None) for side in sides]
    widths = [arrays.widths for arrays in found]
    if rotate:
        for arrays in found:
            arrays.rotate_into_span()

    def batches() -> Generator[Both, None, None]:
        for parts in zip(*(arrays.batches() for arrays in found), strict=True):
            yield parts[0], parts[1] if len(parts) > 1 else None

    return _Pass(batches(), "", widths=widths)


def _ids(name: str, samples: Mapping[str, Any], rows: Mapping[str, int]) -> dict[Any, int]:
    """The row of each sample."""
    if name not in samples:
        raise MissingInput(f"samples has no ids for {name!r}: give them for every array.")
    ids = np.asarray(samples[name]).tolist()
    place = {sample: row for row, sample in enumerate(ids)}
    if len(ids) != rows[name] or len(place) != len(ids):
        raise ShapeError(
            f"{name}: {rows[name]} rows came with {len(ids)} ids, {len(place)} of them different. "
            "Each row needs one of its own."
        )
    return place


def _ordered(
    name: str,
    array: Any,
    first: Mapping[Any, int],
    samples: Mapping[str, Any],
    rows: Mapping[str, int],
) -> Any:
    """The rows of an array in the order of the first one's samples."""
    here = _ids(name, samples, rows)
    if here.keys() != first.keys():
        odd = sorted(map(repr, here.keys() ^ first.keys()))
        raise ShapeError(
            f"{name}: {len(odd)} samples are missing here or in the first array, such as "
            f"{', '.join(odd[:3])}. Leave in all arrays only the samples that all have."
        )
    order = [here[sample] for sample in first]
    return array[order] if isinstance(array, Tensor) else np.asarray(array)[order]


def _records(pairs: Pairs, wanted: Wanted, seen: _Pass, heading: Heading) -> Records:
    """Of each pair; by directed measures, pairs within one model both ways."""
    pairs.widths(*seen.widths)
    cautions = _of_both(pairs, seen.cautions)
    problems = {f"{name} ~": reason for name, reason in _first(seen.problems).items()}
    if len(seen.problems) > 1:
        problems |= {f"~ {name}": reason for name, reason in seen.problems[1].items()}
    found = wanted.records(pairs.sums(), heading, problems | pairs.problems, cautions)
    directed = wanted.among(lambda m: "swap" not in m.invariant)
    if pairs.within and directed.measures:
        found += directed.records(pairs.sums(swapped=True), heading, {}, cautions)
    units = pairs.units()
    notes = {name: _note(seen.note, *widths) for name, widths in units.items()}
    rows = (replace(r, note="; ".join(filter(None, (r.note, notes.get(r.layer))))) for r in found)
    return Records(rows, found.definitions.values())


def _note(models: str, d: int, e: int) -> str:
    return ", ".join(filter(None, (models, f"{d} ~ {e} units")))


def _first(parts: Sequence[dict[str, str]]) -> dict[str, str]:
    return parts[0] if parts else {}


def _of_both(pairs: Pairs, cautions: Sequence[dict[str, str]]) -> dict[str, str]:
    """What is to be said of either layer of a pair, by pair."""
    if not cautions:
        return {}
    first, second = cautions[0], cautions[-1]
    told = {
        label(a, b): list(dict.fromkeys(filter(None, (first.get(a), second.get(b)))))
        for a, b in pairs.compared()
    }
    return {pair: "; ".join(reasons) for pair, reasons in told.items() if reasons}
