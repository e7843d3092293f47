"""A table of models: families, and columns of numbers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from .._records import Records
from ..errors import LazyrichError, UnknownName
from ._formulas import Columns

Where = Mapping[str, Any]
"""Columns of a record with their values, as for `Records.where`."""


@dataclass(frozen=True)
class Models:
    """One row for each model.

    Attributes:
        families: of each model: what shares an architecture, a recipe or an ancestor.
        columns: numbers by name, one for each model; NaN where a model has none.

    Raises:
        LazyrichError: columns of different lengths.
    """

    families: Sequence[str]
    columns: Mapping[str, Sequence[float] | Float[ndarray, " n"]]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if len(column) != len(self.families):
                raise LazyrichError(
                    f"column {name!r} has {len(column)} numbers for {len(self.families)} models."
                )

    @classmethod
    def of(
        cls,
        records: Records,
        family: Callable[[str], str] | Mapping[str, str],
        columns: Mapping[str, Where],
        *,
        step: int | None = None,
    ) -> "Models":
        """From records of many runs.

        Args:
            family: of a run, by its name.
            columns: by name what to look for, such as
                `{"d_out": {"measure": "effective_dimension", "layer": "penultimate"}}`.
            step: of all columns; None for the last step of each run that has the column.

        Raises:
            LazyrichError: several records of a run answer to one column.
        """
        runs = records.unique("run")
        named = family if callable(family) else family.__getitem__
        found = {name: _column(records, runs, name, where, step) for name, where in columns.items()}
        return cls([named(run) for run in runs], found)

    def without(self, *families: str) -> "Models":
        """The same without some families.

        Raises:
            UnknownName: a family that is not among them.
        """
        for family in families:
            if family not in self.families:
                raise UnknownName("family", family, self.families)
        kept = [at for at, family in enumerate(self.families) if family not in families]
        return Models(
            [self.families[at] for at in kept],
            {name: np.asarray(column)[kept] for name, column in self.columns.items()},
        )

    @property
    def siblings(self) -> bool:
        """Whether any family has more than one model."""
        return any(count > 1 for count in Counter(self.families).values())

    def pick(self, x: str, y: str, controls: Sequence[str]) -> Columns:
        """Columns side by side, of the models that have all of them.

        Raises:
            UnknownName: a column that does not exist.
        """
        for name in (x, y, *controls):
            if name not in self.columns:
                raise UnknownName("column", name, self.columns)
        given = [np.asarray(self.columns[n], dtype=np.float64) for n in (x, y, *controls)]
        whole = np.stack(given, 1)
        kept = np.isfinite(whole).all(1)
        return Columns(whole[kept, 0], whole[kept, 1], whole[kept, 2:], self._numbers()[kept])

    def _numbers(self) -> Int[ndarray, " n"]:
        """Families by number, in order of appearance."""
        order = {family: at for at, family in enumerate(dict.fromkeys(self.families))}
        return np.array([order[family] for family in self.families], dtype=np.int64)


def _column(
    records: Records, runs: Sequence[str], name: str, where: Where, step: int | None
) -> list[float]:
    rows = records.where(**where, **({} if step is None else {"step": step}))
    by_run: dict[str, dict[int, list[float]]] = {run: {} for run in runs}
    for row in rows:
        by_run[row.run].setdefault(row.step, []).append(row.value)
    column = []
    for run, steps in by_run.items():
        values = steps[max(steps)] if steps else [float("nan")]
        if len(values) > 1:
            raise LazyrichError(
                f"column {name!r}: {len(values)} records of {run!r} at step {max(steps)} answer to "
                f"{dict(where)}. Say more: layer, estimator or index."
            )
        column += values
    return column
