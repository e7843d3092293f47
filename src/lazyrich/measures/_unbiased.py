"""Unbiased estimates of products of a covariance with itself, from four distinct samples each."""

from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import FourthMoments
from ._kernel_alignment import unbiased


def squared_norm(x: FourthMoments, *, apart: bool = False) -> float:
    r"""U-statistic for $\lVert \Sigma \rVert_F^2$.

    Args:
        apart: of entries off the diagonal only.

    Raises:
        Undefined: too few samples for it to be positive.
    """
    n, trace, squared, quartic = _sums(x)
    whole = unbiased(squared, quartic, trace, trace, n)
    return _positive(whole - apart * float(squared_variances(x).sum()), n)


def squared_trace(x: FourthMoments, *, apart: bool = False) -> float:
    r"""U-statistic for $(\operatorname{tr} \Sigma)^2$.

    Args:
        apart: of products of two different variances only.

    Raises:
        Undefined: too few samples for it to be positive.
    """
    n, trace, squared, quartic = _sums(x)
    pairs = (trace**2 - quartic) / (n * (n - 1))
    triples = (2 * quartic - trace**2) / (n * (n - 1) * (n - 2))
    fours = (trace**2 - 6 * quartic + 2 * squared) / (n * (n - 1) * (n - 2) * (n - 3))
    whole = pairs - 2 * triples + fours
    return _positive(whole - apart * float(squared_variances(x).sum()), n)


def squared_variances(x: FourthMoments) -> Float[Tensor, " d"]:
    r"""U-statistic for $\Sigma_{ii}^2$ of every unit."""
    n = int(x.n)
    squares, quartic = x.moments.scatter.diag(), x.tail.unit_quartic
    pairs = (squares**2 - quartic) / (n * (n - 1))
    triples = (2 * quartic - squares**2) / (n * (n - 1) * (n - 2))
    fours = (3 * squares**2 - 6 * quartic) / (n * (n - 1) * (n - 2) * (n - 3))
    found: Tensor = pairs - 2 * triples + fours
    return found


def _sums(x: FourthMoments) -> tuple[int, float, float, float]:
    n, scatter = int(x.n), x.moments.scatter
    if n < 4:
        raise Undefined(f"an unbiased estimate needs 4 samples or more, got {n}")
    return n, float(scatter.trace()), float(scatter.square().sum()), float(x.tail.quartic)


def _positive(found: float, n: int) -> float:
    if found <= 0:
        raise Undefined(f"n = {n} is too few: the unbiased estimate of a square is not positive")
    return found
