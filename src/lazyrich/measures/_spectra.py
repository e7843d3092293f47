"""What measures of a spectrum share: eigenvalues above rounding, about the mean or about zero."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import Moments
from ._published import Estimate


def varying(x: Moments) -> Moments:
    """The same moments, if they vary at all.

    Raises:
        Undefined: every row is the same, up to rounding.
    """
    if float(x.covariance.trace()) <= 1e-28 * float(x.mean.square().sum()):
        raise Undefined("the activations are the same for every sample")
    return x


def eigenvalues(x: Moments, centered: bool) -> Float[Tensor, " r"]:
    """Those of the covariance, or of the second moment about zero, that are above rounding.

    Raises:
        Undefined: nothing varies.
    """
    values = varying(x).eigenvalues if centered else varying(x).about_zero[0]
    return x.resolved(values, int(x.n) - centered)


def principal(x: Moments, centered: bool) -> tuple[Float[Tensor, " r"], Float[Tensor, "d r"]]:
    """The same eigenvalues with their eigenvectors, as columns."""
    values = eigenvalues(x, centered)
    axes = x.axes if centered else x.about_zero[1]
    return values, axes[:, : len(values)]


def entropy(shares: Float[Tensor, " r"]) -> float:
    """Of positive shares, in nats."""
    return -float(torch.special.xlogy(shares, shares).sum())


def judged(value: float, n: int, note: str = "") -> Estimate:
    """The value, with a caution where the samples are too few for a number of its size."""
    if n < 10 * value:
        few = f"biased low: n = {n} is less than ten times the value"
        return Estimate(value, "; ".join(filter(None, [few, note])), caution=True)
    return Estimate(value, note)


def hidden(x: Moments, rank: int) -> str:
    """A note where eigenvalues were left out although there were samples enough for them."""
    d = len(x.mean)
    if rank == min(d, int(x.n) - 1):
        return ""
    return f"{rank} of {d} eigenvalues are above rounding"
