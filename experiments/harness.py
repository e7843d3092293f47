"""Runs the cells of an experiment, each once, and writes what it found as it goes."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

from lazyrich import Record, Records
from lazyrich._journal import Journal

from .data import MissingData
from .verdicts import Expected, Verdict, expected, verdicts

HERE = Path(__file__).parent
Size = Literal["quick", "laptop", "full"]
Cell = Callable[[], Records]


class Run(Protocol):
    """What `experiments/<key>/run.py` defines."""

    def cells(self, size: Size) -> Mapping[str, Cell]:
        """Work by the name of its run: settings and seed."""

    def outcomes(self, records: Records) -> Mapping[str, Sequence[float]]:
        """One number for each seed, by claim."""


@dataclass(frozen=True)
class Experiment:
    """One folder beside this file."""

    key: str

    @property
    def folder(self) -> Path:
        return HERE / self.key

    @property
    def committed(self) -> Path:
        """Records of the laptop's scale, part of the repository."""
        return self.folder / "records.jsonl"

    @property
    def expected(self) -> Expected:
        return expected(self.folder / "expected.toml")

    @property
    def run(self) -> Run:
        return import_module(f"experiments.{self.key}.run")  # type: ignore[return-value]

    def verdicts(self, records: Records) -> list[Verdict]:
        return verdicts(self.expected, self.run.outcomes(records))


def experiments() -> list[Experiment]:
    """All of them, by name."""
    return [Experiment(path.parent.name) for path in sorted(HERE.glob("*/expected.toml"))]


def reproduce(experiment: Experiment, size: Size, path: Path) -> tuple[Records, dict[str, str]]:
    """Run what the file does not hold yet.

    Returns:
        All records of the file, and the cells that failed with the reason; these are tried again
        the next time.
    """
    failed: dict[str, str] = {}
    cells = experiment.run.cells(size)
    for place, (name, cell) in enumerate(cells.items(), 1):
        with closing(Journal(path, name)) as journal:
            if 0 in journal.finished:
                continue
            print(f"{experiment.key}: {place} of {len(cells)}, {name}", flush=True)
            try:
                journal.append(cell(), 0)
            except MissingData:
                raise
            except Exception as error:
                traceback.print_exc()
                failed[name] = f"{type(error).__name__}: {error}"
    return Records.load(path), failed


def told(
    run: str,
    measure: str,
    value: float,
    *,
    layer: str = "model",
    step: int = 0,
    n: int = 0,
    seed: int = 0,
) -> Record:
    """A number that the experiment itself has measured, such as an accuracy."""
    return Record(run, step, layer, "", measure, None, "", float(value), n=n, seed=seed)
