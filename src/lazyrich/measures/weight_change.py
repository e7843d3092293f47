"""How far the parameters have moved, and how large they are."""

from math import sqrt

from ..errors import Undefined
from ..statistics import Weights
from ._published import published


@published(
    "Chizat, Oyallon & Bach 2019, arXiv:1812.07956; Lee et al. 2019, arXiv:1902.06720",
    bounds=(0, float("inf")),
    richer="high",
)
def weight_change(weights: Weights, initial: Weights) -> float:
    r"""Distance of the parameters from their start, relative to their size then.

    $\lVert \theta - \theta_0 \rVert_F / \lVert \theta_0 \rVert_F$

    Lazy training leaves it near 0; it falls with the width even where features are learned.
    """
    start = initial.squared_norm()
    if start == 0:
        raise Undefined("the parameters were zero at the start")
    return sqrt(weights.squared_distance(initial) / start)


@published(
    "Nam et al., ICLR 2026, arXiv:2410.04264, whose tables show its square",
    bounds=(0, float("inf")),
    invariant={"rotation", "order"},
)
def parameter_norm(weights: Weights) -> float:
    r"""Euclidean norm of all parameters together.

    $\lVert \theta \rVert_F$
    """
    return sqrt(weights.squared_norm())
