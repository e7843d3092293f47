"""Alignment of two linear kernels from rows: what similarities of representations share."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Alignment(NamedTuple):
    """Traces of products of two centered kernels K and L over n samples."""

    n: int
    cross: float  # tr(K L)
    left: float  # tr(K K)
    right: float  # tr(L L)
    left_trace: float
    right_trace: float
    diagonal_cross: float  # sum of K_ii L_ii
    diagonal_left: float
    diagonal_right: float

    def plain(self) -> float:
        """Cosine of the two kernels; NaN where one of them is zero."""
        return _ratio(self.cross, self.left, self.right)

    def debiased(self) -> float:
        """The same from unbiased estimates of the three products (Song et al. 2012)."""
        if self.n < 4:
            return float("nan")
        traces, n = (self.left_trace, self.right_trace), self.n
        cross = unbiased(self.cross, self.diagonal_cross, *traces, n)
        left = unbiased(self.left, self.diagonal_left, traces[0], traces[0], n)
        right = unbiased(self.right, self.diagonal_right, traces[1], traces[1], n)
        return _ratio(cross, left, right)

    def null(self) -> float:
        """Mean of the plain value when the samples of one side are shuffled, exactly."""
        expected = self.left_trace * self.right_trace / (self.n - 1)
        return _ratio(expected, self.left, self.right)


def align(x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> Alignment:
    """All traces, through d x e products where those are smaller than n x n kernels."""
    x, y = x - x.mean(0), y - y.mean(0)
    a, b = x.square().sum(1), y.square().sum(1)
    if len(x) < max(x.shape[1], y.shape[1]):
        k, m = x @ x.T, y @ y.T
        cross, left, right = (k * m).sum(), (k * k).sum(), (m * m).sum()
    else:
        cross, left, right = ((p.T @ q).square().sum() for p, q in ((x, y), (x, x), (y, y)))
    sums = (cross, left, right, a.sum(), b.sum(), a @ b, a @ a, b @ b)
    return Alignment(len(x), *map(float, sums))


def align_kernels(k: Float[Tensor, "n n"], m: Float[Tensor, "n n"]) -> Alignment:
    """The same for two kernels that are matrices already."""
    k, m = centered(k), centered(m)
    a, b = k.diagonal(), m.diagonal()
    sums = ((k * m).sum(), k.square().sum(), m.square().sum(), a.sum(), b.sum())
    return Alignment(len(k), *map(float, (*sums, a @ b, a @ a, b @ b)))


def centered(kernel: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """H K H: the kernel of features whose mean is taken off."""
    return kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()


def unbiased(product: float, diagonal: float, left: float, right: float, n: int) -> float:
    """Unbiased estimate of the product of two centered kernels, HSIC_1 of Song et al. 2012.

    Args:
        product: tr(K L) of the centered kernels.
        diagonal: sum of K_ii L_ii.
        left, right: traces of K and L.
        n: samples, at least 4.
    """
    corrected = product - diagonal * n / (n - 2) + left * right / ((n - 1) * (n - 2))
    return corrected / (n * (n - 3))


def _ratio(cross: float, left: float, right: float) -> float:
    product = left * right
    return cross / product**0.5 if left > 0 and right > 0 and product > 0 else float("nan")
