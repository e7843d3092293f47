"""`python -m experiments NAME`: run, judge and draw one reproduction."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lazyrich import Records

from .data import MissingData
from .gallery import gallery, lines, pages, results
from .harness import HERE, Experiment, experiments, reproduce

MARK = "<!-- below: make gallery -->"


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where a cell failed, 2 for what the user can mend."""
    options = _parser().parse_args(argv)
    known = {e.key: e for e in experiments()}
    if options.list:
        for e in known.values():
            print(f"{e.key:28} {e.expected.title}")
        return 0
    if options.gallery:
        done = [(e, Records.load(e.committed)) for e in known.values() if e.committed.exists()]
        print(f"wrote {gallery(done, options.out)} and {write_results(done)}")
        return 0
    if options.name not in known:
        print(f"which one? {options.name!r} is none of {', '.join(known)}", file=sys.stderr)
        return 2
    try:
        return _one(known[options.name], options)
    except MissingData as error:
        print(error, file=sys.stderr)
        return 2


def write_results(done: Sequence[tuple[Experiment, Records]]) -> Path:
    """Verdicts below the mark in `experiments/README.md`."""
    path = HERE / "README.md"
    head = path.read_text(encoding="utf-8").partition(MARK)[0]
    path.write_text(head + MARK + "\n\n" + results(done), encoding="utf-8")
    return path


def _one(experiment: Experiment, options: argparse.Namespace) -> int:
    size = "quick" if options.quick else "full" if options.full else "laptop"
    path = experiment.committed
    if size != "laptop":
        path = options.out / f"{experiment.key}-{size}.jsonl"
    records, failed = reproduce(experiment, size, path)
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    if not records:
        return 1
    print(experiment.expected.title)
    print(lines(experiment.verdicts(records)))
    page = pages(experiment, records, options.out)
    print(f"wrote {page} and {page.with_name(experiment.key + '.html')}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reproduce", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="which; --list shows all")
    parser.add_argument("--list", action="store_true", help="all reproductions")
    parser.add_argument("--gallery", action="store_true", help="a page over all committed records")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="a smoke test; records are kept apart")
    sizes.add_argument("--full", action="store_true", help="the paper's scale; records apart")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("reproduced"), help="folder for the pages"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
