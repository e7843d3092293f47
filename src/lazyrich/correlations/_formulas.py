"""Formulas on columns of numbers, one for each model."""

from collections.abc import Callable, Sequence
from math import nan, sqrt
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import false_discovery_control, rankdata, t

from ..errors import LazyrichError, TooFewSamples, UnknownName

_ROUNDING = 1e-12  # of a column's deviation: what is left below is nothing
Adjustment = Literal["holm", "benjamini-hochberg"]


class Columns(NamedTuple):
    """What a formula reads: two columns, those to control for, and the family of each model."""

    x: Float[ndarray, " n"]
    y: Float[ndarray, " n"]
    controls: Float[ndarray, "n k"]
    family: Int[ndarray, " n"]

    def rows(self, at: Int[ndarray, " m"]) -> "Columns":
        return Columns(*(column[at] for column in self))

    def ranked(self) -> "Columns":
        x, y, controls = (rankdata(column, axis=0) for column in self[:3])
        return Columns(x, y, controls, self.family)


class Partial(NamedTuple):
    """A partial correlation, and what it would be worth if all models were independent.

    Attributes:
        value: NaN where one of the columns does not vary beside the controls.
        n: models.
        freedom: degrees of it, n - 2 - controls.
        p_if_independent: two-sided, from Student's t; too small where models are siblings.
    """

    value: float
    n: int
    freedom: int
    p_if_independent: float


def partial_correlation(
    x: Sequence[float] | Float[ndarray, " n"],
    y: Sequence[float] | Float[ndarray, " n"],
    *controls: Sequence[float] | Float[ndarray, " n"],
    rank: bool = False,
) -> Partial:
    r"""Correlation of what is left of two columns beside a linear fit of the controls.

    $r = \rho(x - \hat x(z), y - \hat y(z))$, with p from $t = r \sqrt{\nu / (1 - r^2)}$ at
    $\nu = n - 2 - k$ degrees of freedom.

    Reference: Fisher 1924, Metron 3, 329-332.

    Args:
        controls: columns z to hold constant; none for the plain correlation.
        rank: of ranks, after Spearman, instead of the numbers, after Pearson.

    Raises:
        LazyrichError: columns of different lengths, or with NaN.
        TooFewSamples: no degree of freedom.

    >>> partial_correlation([1, 2, 3, 4], [2, 1, 4, 3]).value
    0.6
    """
    given = [np.asarray(column, dtype=np.float64) for column in (x, y, *controls)]
    if len({column.shape for column in given}) > 1 or given[0].ndim != 1:
        shapes = ", ".join(str(column.shape) for column in given)
        raise LazyrichError(f"columns of one number a model are needed, got {shapes}.")
    if not all(np.isfinite(column).all() for column in given):
        raise LazyrichError("some of the numbers are NaN or infinite: leave out these models.")
    n, freedom = len(given[0]), len(given[0]) - len(given)
    if freedom < 1:
        raise TooFewSamples(
            f"{n} models with {len(controls)} controls: {len(given) + 1} or more are needed."
        )
    z = np.stack(given[2:], 1) if controls else np.empty((n, 0))
    columns = Columns(given[0], given[1], z, np.zeros(n, dtype=np.int64))
    value = partial(columns.ranked() if rank else columns)
    if abs(value) >= 1:
        return Partial(value, n, freedom, 0.0)
    p = 2 * float(t.sf(abs(value) * sqrt(freedom / (1 - value**2)), freedom))
    return Partial(value, n, freedom, p)


def adjusted(p_values: Sequence[float], method: Adjustment = "holm") -> list[float]:
    """p-values of several questions at once, in the order given.

    Args:
        method: `holm` bounds the chance of any false claim, whatever depends on what (Holm 1979);
            `benjamini-hochberg` the expected share of false ones among all claims (1995).

    Raises:
        UnknownName: another method.
        LazyrichError: a number that is no probability.

    >>> adjusted([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    if method not in get_args(Adjustment):
        raise UnknownName("adjustment", method, get_args(Adjustment))
    p = np.asarray(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise LazyrichError("p-values are numbers from 0 to 1.")
    if method == "benjamini-hochberg":
        return [float(each) for each in false_discovery_control(p)] if len(p) else []
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty_like(p)
    found[order] = np.minimum(steps, 1)
    return [float(each) for each in found]


def partial(c: Columns) -> float:
    """Pearson's correlation beside the controls."""
    left, up = _beside_controls(c)
    if _vanishes(left, c.x) or _vanishes(up, c.y):
        return nan
    return float(np.clip(left @ up / sqrt((left @ left) * (up @ up)), -1, 1))


def plain(c: Columns) -> float:
    """Pearson's correlation as it is."""
    return partial(c._replace(controls=np.empty((len(c.x), 0))))


def within(c: Columns) -> float:
    """Beside the controls and the means of families: among siblings alone."""
    x, y, controls = (_less_means(column, c.family) for column in c[:3])
    return partial(Columns(x, y, controls, c.family))


def between(c: Columns) -> float:
    """Of the means of families, beside no controls: there are few families."""
    x, y, families = (_means(column, c.family) for column in (c.x, c.y, c.family))
    return plain(Columns(x, y, np.empty((len(x), 0)), families))


def slope(c: Columns) -> float:
    """By how much y goes up for one standard deviation of x, controls held."""
    left, up = _beside_controls(c)
    if _vanishes(left, c.x):
        return nan
    return float(left @ up / (left @ left) * c.x.std(ddof=1))


def variance_added(c: Columns) -> float:
    """The share of y's variance that x explains and the controls do not: a difference of R²."""
    total = c.y - c.y.mean()
    if _vanishes(total, c.y):
        return nan
    up = _beside_controls(c)[1]
    return partial(c) ** 2 * float(up @ up) / float(total @ total)


Formula = Callable[[Columns], float]


def _beside_controls(c: Columns) -> Float[ndarray, "2 n"]:
    """What a least-squares fit of the controls and a constant leaves of x and y."""
    both = np.stack([c.x - c.x.mean(), c.y - c.y.mean()], 1)
    if c.controls.shape[1]:
        design = c.controls - c.controls.mean(0)
        both = both - design @ np.linalg.lstsq(design, both, rcond=None)[0]
    left: Float[ndarray, "2 n"] = both.T
    return left


def _vanishes(left: Float[ndarray, " n"], column: Float[ndarray, " n"]) -> bool:
    """Whether what is left of a column is rounding."""
    size = float(np.abs(column).max(initial=0.0))
    return len(left) < 2 or float(np.abs(left).max()) <= _ROUNDING * size


def _less_means(
    column: Float[ndarray, "n ..."], family: Int[ndarray, " n"]
) -> Float[ndarray, "n ..."]:
    """Each number less the mean of its family; rounding beside the mean is nothing."""
    index = np.unique(family, return_inverse=True)[1]
    means = _means(column, family)[index]
    left: Float[ndarray, "n ..."] = column - means
    left[np.abs(left) <= _ROUNDING * np.abs(means)] = 0
    return left


def _means(column: Float[ndarray, "n ..."], family: Int[ndarray, " n"]) -> Float[ndarray, "m ..."]:
    families, index = np.unique(family, return_inverse=True)
    sums = np.zeros((len(families), *column.shape[1:]))
    np.add.at(sums, index, column)
    counts = np.bincount(index).reshape(-1, *[1] * (column.ndim - 1))
    found: Float[ndarray, "m ..."] = sums / counts
    return found
