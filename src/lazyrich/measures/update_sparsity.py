"""How few parameters have made the way from the start of training to now."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import LazyrichError, Undefined
from ..statistics import Weights
from ._published import published


@published("Hurley & Rickard 2009, doi:10.1109/TIT.2009.2027527 (arXiv:0811.4706)", bounds=(0, 1))
def update_gini(weights: Weights, initial: Weights) -> float:
    r"""Gini coefficient of how far each parameter has moved.

    $\frac{1}{P} \sum_{i=1}^{P} \frac{2i - P - 1}{\sum_j |\Delta\theta_j|} |\Delta\theta|_{(i)}$

    0 where all moved alike, near 1 where a few did all; (i) is the rank, the smallest first. Lazy
    training does not move all parameters alike: compare with a lazy run of the same network.
    """
    moved = _moved(weights, initial)
    count = len(moved)
    ranks = torch.arange(1, count + 1, dtype=torch.float64, device=moved.device)
    found = (2 * ranks - count - 1) @ (moved / moved.sum()) / count
    return min(max(float(found), 0.0), 1.0)


@published("Lorenz 1905, doi:10.2307/2276207, whose curve it is a point of", bounds=(0, 1))
def update_share(weights: Weights, initial: Weights, *, mass: float = 0.9) -> float:
    r"""The least share of the parameters that carries 90 % of the squared movement.

    $\min \{ k : \sum_{i=1}^{k} |\Delta\theta|_{(i)}^2 \geq 0.9 \lVert \Delta\theta \rVert^2 \} / P$

    (i) is the rank, the largest first. Independent normal movements of one variance have 0.444.

    Args:
        mass: what part of the squared movement counts.
    """
    if not 0 < mass < 1:
        raise LazyrichError(f"mass={mass}: a share of the squared movement between 0 and 1.")
    squares = _moved(weights, initial).square().flip(0)
    carried = squares.cumsum(0)
    enough = carried >= mass * carried[-1]
    return (int(enough.int().argmax()) + 1) / len(squares)


def _moved(weights: Weights, initial: Weights) -> Float[Tensor, " P"]:
    """Distances of all parameters from their start relative to the largest, the smallest first."""
    steps = [
        (t.double() - initial.tensors[name].to(t.device).double()).abs().flatten()
        for name, t in weights.tensors.items()
    ]
    moved = torch.cat([s.to(steps[0].device) for s in steps]).sort().values
    if not float(moved[-1]) > 0:
        raise Undefined("no parameter has moved")
    return moved / moved[-1]
