"""Powers of the width."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy.stats import linregress, t as student

from .errors import LazyrichError, ShapeError


@dataclass(frozen=True)
class Slope:
    """A power of the width, with its 95 % interval by Student's t.

    Attributes:
        each: the slope of each seed.
    """

    value: float
    standard_error: float
    low: float
    high: float
    each: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def slope(widths: Sequence[float], values: Any) -> Slope:
    """The power of the width that values follow: a line through their logarithms.

    Args:
        widths: k of them, three different ones or more.
        values: above zero, [k] or [seeds, k].

    Returns:
        For several seeds the mean of their slopes, with the spread between seeds; for one, the
        least-squares slope with the spread around the line.

    Raises:
        ShapeError: fewer than three widths, or values that do not go with them.
        LazyrichError: widths or values that have no logarithm.
    """
    x, y = np.asarray(widths, float), np.atleast_2d(np.asarray(values, float))
    if x.ndim != 1 or len(np.unique(x)) < 3:
        raise ShapeError(f"a slope needs three different widths or more, not {list(widths)}.")
    if y.ndim != 2 or y.shape[1] != len(x) or not len(y):
        raise ShapeError(f"values of shape {np.shape(values)} for {len(x)} widths.")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y > 0).all()):
        raise LazyrichError("a slope of logarithms needs finite widths and values above zero.")
    fits = [linregress(np.log(x), np.log(row)) for row in y]
    each = tuple(float(fit.slope) for fit in fits)
    freedom = len(y) - 1 if len(y) > 1 else len(x) - 2
    error = np.std(each, ddof=1) / sqrt(len(y)) if len(y) > 1 else fits[0].stderr
    reach = float(student.ppf(0.975, freedom) * error)
    mean = float(np.mean(each))
    return Slope(mean, float(error), mean - reach, mean + reach, each)
