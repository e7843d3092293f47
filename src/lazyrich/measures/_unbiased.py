"""Unbiased estimates of products of a covariance with itself, from four distinct samples each."""

from ..errors import Undefined
from ..statistics import FourthMoments
from ._kernel_alignment import unbiased


def squared_norm(x: FourthMoments) -> float:
    r"""U-statistic for $\lVert \Sigma \rVert_F^2$.

    Raises:
        Undefined: too few samples for it to be positive.
    """
    n, trace, squared, quartic = _sums(x)
    return _positive(unbiased(squared, quartic, trace, trace, n), n)


def squared_trace(x: FourthMoments) -> float:
    r"""U-statistic for $(\operatorname{tr} \Sigma)^2$.

    Raises:
        Undefined: too few samples for it to be positive.
    """
    n, trace, squared, quartic = _sums(x)
    pairs = (trace**2 - quartic) / (n * (n - 1))
    triples = (2 * quartic - trace**2) / (n * (n - 1) * (n - 2))
    fours = (trace**2 - 6 * quartic + 2 * squared) / (n * (n - 1) * (n - 2) * (n - 3))
    return _positive(pairs - 2 * triples + fours, n)


def _sums(x: FourthMoments) -> tuple[int, float, float, float]:
    n, scatter = int(x.n), x.moments.scatter
    if n < 4:
        raise Undefined(f"an unbiased estimate needs 4 samples or more, got {n}")
    return n, float(scatter.trace()), float(scatter.square().sum()), float(x.tail.quartic)


def _positive(found: float, n: int) -> float:
    if found <= 0:
        raise Undefined(f"n = {n} is too few: the unbiased estimate of a square is not positive")
    return found
