"""The kernel of a Recursive Feature Machine and its slopes, in one square of memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

ROWS = 512
_ROWS_IN_CACHE = 128  # a block of distances meets a dozen passes: a third faster than with 512
_SAME_POINT = {torch.float32: 4e-7, torch.float64: 1e-14}


def blocks(n: int, size: int = ROWS) -> Iterator[tuple[int, int]]:
    """First and last-but-one of consecutive rows, `size` at a time."""
    return ((start, min(start + size, n)) for start in range(0, n, size))


def squared_distances(a: Float[Tensor, "m d"], b: Float[Tensor, "n d"]) -> Float[Tensor, "m n"]:
    """Between rows, exactly 0 where they differ by no more than rounding.

    By one matrix product: rows should be centered, as digits are lost in proportion to their norms.
    """
    sums = a.square().sum(1)[:, None] + b.square().sum(1)
    squared = torch.addmm(sums, a, b.T, alpha=-2)
    return squared.masked_fill_(squared <= sums.mul_(_SAME_POINT[a.dtype]), 0)


@dataclass(frozen=True)
class Kernel:
    """exp(-(r / bandwidth)^exponent) of the distance r.

    Attributes:
        bandwidth: L, in the units of the distance.
        exponent: 1 for the Laplace kernel, 2 for the Gaussian; positive definite up to 2.
    """

    bandwidth: float
    exponent: float = 1.0

    def values(self, squared: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
        """From squared distances."""
        return self._decay(squared).neg_().exp_()

    def values_and_slopes(
        self, squared: Float[Tensor, "m n"]
    ) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m n"]]:
        """K and W = -K'(r) / r, so that the gradient of K(x, y) by x is W (y - x).

        A point has no slope at itself: kernels with exponents up to 1 are not differentiable there,
        and for the others the gradient is 0.
        """
        decay = self._decay(squared)
        values = decay.neg().exp_()
        slopes = decay.mul_(values).div_(squared).mul_(self.exponent)
        return values, slopes.masked_fill_(squared == 0, 0)

    def _decay(self, squared: Tensor) -> Tensor:
        if self.exponent == 1:
            return squared.sqrt().div_(self.bandwidth)
        return (squared / self.bandwidth**2).pow_(self.exponent / 2)


def fill(square: Float[Tensor, "n n"], z: Float[Tensor, "n d"], kernel: Kernel) -> None:
    """K into the lower triangle with its diagonal, W into the upper: each pair is met once."""
    for start, stop in blocks(len(z), _ROWS_IN_CACHE):
        squared = squared_distances(z[start:stop], z[:stop])
        values, slopes = kernel.values_and_slopes(squared)
        square[start:stop, :start] = values[:, :start]
        square[:start, start:stop] = slopes[:, :start].T
        square[start:stop, start:stop] = values[:, start:].tril() + slopes[:, start:].triu(1)


def mirror(square: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """The upper triangle onto the lower, in place, with zeros between them."""
    for start, stop in blocks(len(square)):
        square[start:stop, :start] = square[:start, start:stop].T
        upper = square[start:stop, start:stop].triu(1)
        square[start:stop, start:stop] = upper + upper.T
    return square
