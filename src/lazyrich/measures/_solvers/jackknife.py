"""Errors of what is averaged over draws, and the bias that means of ratios bring."""

from collections.abc import Callable, Sequence
from math import isfinite, nan, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from .dichotomies import GROUPS

Values = dict[str, float]


class Sampled(NamedTuple):
    """A value with its standard error and 95 % interval."""

    value: float
    standard_error: float
    low: float
    high: float

    def about(self, value: float) -> "Sampled":
        """The same interval about another value."""
        move = value - self.value
        return Sampled(value, self.standard_error, self.low + move, self.high + move)

    def within(self, low: float, high: float) -> "Sampled":
        """Cut off at the bounds, which correcting a bias may overstep."""
        value, bottom, top = (min(max(v, low), high) for v in (self.value, self.low, self.high))
        return Sampled(value, self.standard_error, bottom, top)


def delete_groups(values: Callable[[int], Values]) -> dict[str, Sampled]:
    """Values less their bias of first order, with errors, from leaving out a group at a time.

    NaN where a value is not finite, with all draws or without a group.

    Args:
        values: by name, without the draws of the group of that number; -1 leaves out none.
    """
    whole = values(-1)
    without = [values(group) for group in range(GROUPS)]
    return {
        name: _of([GROUPS * value - (GROUPS - 1) * w[name] for w in without])
        for name, value in whole.items()
    }


def over_repeats(repeats: Sequence[dict[str, Sampled]]) -> dict[str, Sampled]:
    """Means over subsamples, with the error that their differences show; of one, itself."""
    if len(repeats) == 1:
        return repeats[0]
    return {name: _of([r[name].value for r in repeats]) for name in repeats[0]}


def _of(values: Sequence[float]) -> Sampled:
    if not all(map(isfinite, values)):
        return Sampled(nan, nan, nan, nan)
    n = len(values)
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / sqrt(n)
    half = float(stdtrit(n - 1, 0.975)) * error
    return Sampled(mean, error, mean - half, mean + half)
