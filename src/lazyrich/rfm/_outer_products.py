"""Average gradient outer product of a function that is a sum of kernels, by two ways.

f_l(z) = sum_i alpha_il K(z, z_i), and its gradient at z_j is g_jl = sum_i alpha_il W_ij (z_i - z_j)
with the slopes W of `Kernel`. Wanted is sum_jl w_j g_jl g_jl' / sum_j w_j.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ._kernel import ROWS, blocks

Way = Literal["gradients", "pairs"]


@dataclass(frozen=True)
class Expansion:
    """A function: kernels around m centers, times coefficients for each of c outputs."""

    centers: Float[Tensor, "m d"]
    coefficients: Float[Tensor, "m c"]


@dataclass(frozen=True)
class OuterProducts:
    """What both ways return, in float64.

    Attributes:
        total: sum of w g g' over samples and outputs, or its diagonal.
        sums: of w g over samples, for each output.
        weight: sum of w.
    """

    total: Float[Tensor, "*rows d"]
    sums: Float[Tensor, "c d"]
    weight: float

    def mean(self, *, center: bool = False) -> Float[Tensor, "*rows d"]:
        """The AGOP, or with `center` the one with the mean gradient of each output taken off."""
        if not center:
            return self.total / self.weight
        of_means = self.sums.T @ self.sums if self.total.ndim == 2 else self.sums.square().sum(0)
        return (self.total - of_means / self.weight) / self.weight


def cheaper_way(n: int, d: int, c: int) -> Way:
    """By floating point operations: with many inputs and outputs, pairs of samples are fewer."""
    of_gradients = 2 * n * n * c * (d + 1) + 2 * n * c * d * d
    of_pairs = n * n * n + 3 * n * n * c + n * n * d
    return "gradients" if of_gradients <= of_pairs else "pairs"


def outer_products(
    slopes: Float[Tensor, "n n"],
    f: Expansion,
    weights: Float[Tensor, " n"],
    *,
    diagonal: bool = False,
    way: Way | None = None,
) -> OuterProducts:
    """Over the centers themselves.

    Args:
        slopes: the whole symmetric matrix, see `mirror`.
        f: the function.
        weights: of the centers as samples.
        diagonal: only the diagonal, [d].
        way: None for the cheaper; the two differ by rounding, `pairs` cancels more.
    """
    n, d = f.centers.shape
    if (way or cheaper_way(n, d, f.coefficients.shape[1])) == "pairs":
        return by_pairs(slopes, f, weights, diagonal=diagonal)
    rows = lambda start, stop: slopes[start:stop]  # noqa: E731
    return by_gradients(rows, f.centers, f, weights, diagonal=diagonal)


def by_gradients(
    slopes: Callable[[int, int], Float[Tensor, "b m"]],
    samples: Float[Tensor, "n d"],
    f: Expansion,
    weights: Float[Tensor, " n"],
    *,
    diagonal: bool = False,
) -> OuterProducts:
    """All gradients, some outputs and rows at a time.

    Args:
        slopes: rows of W from one sample up to another.
    """
    (m, c), (n, d) = f.coefficients.shape, samples.shape
    together = max(1, m // (8 * d))  # outputs for which the products below stay small beside W
    total = samples.new_zeros((d,) if diagonal else (d, d), dtype=torch.float64)
    sums = samples.new_zeros((c, d), dtype=torch.float64)
    for first, last in blocks(c, together):
        alpha = f.coefficients[:, first:last]
        scaled = (alpha[:, :, None] * f.centers[:, None]).reshape(m, -1)
        for start, stop in blocks(n):
            w, at = slopes(start, stop), samples[start:stop]
            g = (w @ scaled).view(len(at), -1, d) - (w @ alpha)[:, :, None] * at[:, None]
            weighted = g * weights[start:stop, None, None]
            sums[first:last] += weighted.sum(0)
            g, weighted = g.view(-1, d), weighted.view(-1, d)
            total += (g * weighted).sum(0) if diagonal else g.T @ weighted
    return OuterProducts(total, sums, float(weights.sum(dtype=torch.float64)))


def by_pairs(
    slopes: Float[Tensor, "n n"],
    f: Expansion,
    weights: Float[Tensor, " n"],
    *,
    diagonal: bool = False,
) -> OuterProducts:
    r"""Z' P Z, P being over pairs of centers: its cost does not grow with inputs times outputs.

    With S = W alpha and D the weights: P = (alpha alpha') o (W D W) - T - T' + diag(D |S|^2),
    T = (alpha S' D) o W. P is symmetric, and made column by column down to its diagonal.
    """
    z, alpha = f.centers, f.coefficients
    n, d = z.shape
    flow = slopes @ alpha
    weighted = flow * weights[:, None]
    left, right = torch.cat([alpha, weighted], 1), torch.cat([weighted, alpha], 1)  # T + T' at once
    total = z.new_zeros((d,) if diagonal else (d, d), dtype=torch.float64)
    for start, stop in blocks(n, ROWS):
        pairs = slopes[:stop] @ (slopes[start:stop] * weights).T
        pairs *= alpha[:stop] @ alpha[start:stop].T
        pairs -= (left[:stop] @ right[start:stop].T).mul_(slopes[:stop, start:stop])
        pairs[start:].diagonal().add_((flow * weighted)[start:stop].sum(1))
        pairs[:start] *= 2  # stand for their mirror images
        turned = pairs @ z[start:stop]
        total += (z[:stop] * turned).sum(0) if diagonal else z[:stop].T @ turned
    sums = (alpha * (slopes @ weights)[:, None] - weighted).T @ z
    total = total if diagonal else (total + total.T) / 2
    return OuterProducts(total, sums.double(), float(weights.sum(dtype=torch.float64)))
