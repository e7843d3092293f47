"""Multipliers of all targets at once, to a few digits: ADMM, over-relaxed.

    min 1/2 mu' K mu - b' mu   subject to   y * mu >= 0,   for many b and y.

Reference: Boyd et al. 2011, doi:10.1561/2200000016, section 3.4.
"""

import torch
from jaxtyping import Float
from torch import Tensor

_OVER = 1.6  # relaxation, between 1 and 2


def alternating_directions(
    directions: Float[Tensor, "t r"],
    values: Float[Tensor, " r"],
    heights: Float[Tensor, "n t"],
    signs: Float[Tensor, "n t"],
    step: float,
    steps: int,
) -> Float[Tensor, "n t"]:
    """A first guess at signed multipliers, with one inverse of K + rho for all targets.

    The inverse serves every sign pattern, as Y K Y + rho = Y (K + rho) Y. Single precision will
    do: what is taken from it is made exact later.

    Args:
        directions, values: eigenvectors and eigenvalues of K.
        heights: b, one row for each target.
        signs: y.
        step: rho beside the median eigenvalue.
        steps: how many.
    """
    rho = step * float(values.median())
    inner = (1 / (values + rho) - 1 / rho).float()
    across, b, y = directions.float(), heights.float(), signs.float()
    low_rank = 2 * len(values) < len(across)
    inverse = (across * inner) @ across.T if not low_rank else across.new_zeros(0, 0)
    inverse.diagonal().add_(1 / rho)

    def inverted(v: Tensor) -> Tensor:
        return (v @ across * inner) @ across.T + v / rho if low_rank else v @ inverse

    free = inverted(b)
    z, u = torch.zeros_like(b), torch.zeros_like(b)
    for _ in range(steps):
        u += _OVER * (free + rho * inverted(z - u)) + (1 - _OVER) * z
        z = (y * u).clamp_(min=0) * y
        u -= z
    return z.double()
