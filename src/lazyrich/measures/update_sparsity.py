"""How few parameters have made the way from the start of training to now."""

import numpy as np
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
    ranks = np.arange(1, count + 1)
    found = float((2 * ranks - count - 1) @ moved / moved.sum() / count)
    return min(max(found, 0.0), 1.0)


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
    carried = np.cumsum(_moved(weights, initial)[::-1] ** 2)
    return float(np.searchsorted(carried, mass * carried[-1]) + 1) / len(carried)


def _moved(weights: Weights, initial: Weights) -> Float[np.ndarray, " P"]:
    """Distances of all parameters from their start relative to the largest, the smallest first.

    Sorted in their own precision, and by numpy, which is several times faster than torch.
    """
    moved = np.concatenate(
        [_steps(t, initial.tensors[name]).cpu().numpy() for name, t in weights.tensors.items()]
    )
    moved.sort()
    if not moved[-1] > 0:
        raise Undefined("no parameter has moved")
    return moved.astype(np.float64) / float(moved[-1])


def _steps(now: Tensor, start: Tensor) -> Float[Tensor, " p"]:
    precise = torch.promote_types(torch.promote_types(now.dtype, start.dtype), torch.float32)
    return (now.to(precise) - start.to(now.device, precise)).abs().flatten()
