"""Have the units of a layer another distribution of weights than at the start?"""

from math import sqrt

import numpy as np
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import Weights
from ._published import published


@published(
    "Mei, Montanari & Nguyen 2018, doi:10.1073/pnas.1806579115, whose particles are the units",
    bounds=(0, float("inf")),
    richer="high",
    invariant={"order"},
)
def neuron_distribution_change(weights: Weights, initial: Weights) -> float:
    r"""How far the distribution of units' incoming weights is from the start, input by input.

    $\frac1d \sum_j W_1(\{w_{ij}\}_i, \{w^0_{ij}\}_i) / \sqrt{\langle (w^0_{ij})^2 \rangle}$

    Wasserstein's distance of order 1 between the weights that all units i give to input j, then and
    now: for as many units, the mean difference of both in order of size. It is averaged over inputs
    and relative to the size of the weights at the start. Each input stands by itself, so that a
    change of how inputs go together is not seen. In a mean-field limit it has a limit as a layer
    gets wider, in lazy training it vanishes.

    Rows of all tensors of two dimensions or more are units: true of linear and convolutional
    layers. Biases are left out.
    """
    pairs = [
        (_units(t), _units(initial.tensors[name]))
        for name, t in weights.tensors.items()
        if t.ndim > 1
    ]
    if not pairs:
        raise Undefined("no tensor with a row of weights for each unit")
    size = sum(float((before**2).sum()) for _, before in pairs)
    if size == 0:
        raise Undefined("the weights were zero at the start")
    distances = sum(float(np.abs(now - before).mean(1).sum()) for now, before in pairs)
    inputs = sum(len(now) for now, _ in pairs)
    return distances / inputs / sqrt(size / sum(before.size for _, before in pairs))


def _units(tensor: Tensor) -> Float[np.ndarray, "d n"]:
    """Weights of n units for each input, in order of size."""
    return np.sort(tensor.flatten(1).T.double().cpu().numpy())
