"""Intervals from families drawn again: siblings come and go together."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ._formulas import Columns, Formula

FEWEST = 6  # families: with fewer, drawing them again says nothing
ENOUGH = 12  # with fewer, intervals by percentiles are too narrow


class Resampled(NamedTuple):
    """A formula's value, and those with families drawn again."""

    value: float
    replicates: Float[ndarray, " resamples"]

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """By percentiles; None where more than a tenth of the replicates have no value."""
        found = self.replicates[np.isfinite(self.replicates)]
        if len(found) < 0.9 * len(self.replicates) or not len(found):
            return None
        low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
        return float(low), float(high)

    @property
    def standard_error(self) -> float:
        return float(np.nanstd(self.replicates, ddof=1))


def resampled(
    columns: Columns, formulas: Mapping[str, Formula], resamples: int, seed: int
) -> dict[str, Resampled]:
    """Each formula on all models, and on those of as many families drawn with replacement.

    A family that is drawn twice is two families.
    """
    generator = np.random.default_rng(seed)
    members = [np.flatnonzero(columns.family == f) for f in dict.fromkeys(columns.family.tolist())]
    count = len(members)
    replicates = {name: np.full(resamples, np.nan) for name in formulas}
    for number in range(resamples if count >= FEWEST else 0):
        drawn = generator.integers(count, size=count)
        rows = columns.rows(np.concatenate([members[f] for f in drawn]))
        labels = np.repeat(np.arange(count), [len(members[f]) for f in drawn])
        rows = rows._replace(family=labels)
        for name, formula in formulas.items():
            replicates[name][number] = formula(rows)
    return {name: Resampled(f(columns), replicates[name]) for name, f in formulas.items()}
