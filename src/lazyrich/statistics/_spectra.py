"""Eigenvalues about zero, which a large mean does not drown."""

import torch
from jaxtyping import Float
from torch import Tensor

_DOMINANT = 16.0  # how many times the spread a squared mean is, to be split off first
_STEPS = 30  # of the power method, each of which gains a factor of 16 or more


def about_zero(
    covariance: Float[Tensor, "d d"], mean: Float[Tensor, " d"]
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Eigenvalues, largest first, and eigenvectors of the covariance plus the mean's square.

    A mean of 10,000 times the spread would leave a solver no digit of the other eigenvalues. Where
    it dominates, its direction is found by itself and the rest is solved in what is orthogonal.
    """
    second = covariance + torch.outer(mean, mean)
    if mean @ mean <= _DOMINANT * torch.linalg.matrix_norm(covariance):
        values, axes = torch.linalg.eigh(second)
        return values.flip(0).clamp(min=0), axes.flip(1)
    u = mean / mean.norm()
    for _ in range(_STEPS):
        u = covariance @ u + (mean @ u) * mean
        u = u / u.norm()
    values, axes = torch.linalg.eigh(_beside(u, covariance, mean))
    first = u @ covariance @ u + (u @ mean).square()
    values = torch.cat([first[None], values[1:].flip(0).clamp(min=0)])
    return values, torch.cat([u[:, None], axes[:, 1:].flip(1)], 1)


def _beside(
    u: Float[Tensor, " d"], covariance: Float[Tensor, "d d"], mean: Float[Tensor, " d"]
) -> Float[Tensor, "d d"]:
    """The second moment orthogonal to u, with u itself below all other eigenvalues."""
    image = covariance @ u
    rest = mean - (u @ mean) * u
    below = covariance.trace() + u @ image
    return (
        covariance
        + torch.outer(rest, rest)
        - torch.outer(u, image)
        - torch.outer(image, u)
        + (u @ image - below) * torch.outer(u, u)
    )
