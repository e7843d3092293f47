"""CDNV: variance of classes beside the distance between them."""

import torch

from ..errors import Undefined
from ..statistics import ClassMoments
from ._classes import several, with_spread
from ._published import Estimate, published


@published(
    "Galanti, Gyorgy & Hutter, ICLR 2022, arXiv:2112.15121",
    bounds=(0, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def cdnv(classes: ClassMoments) -> Estimate:
    r"""Class-distance normalized variance: the mean over all pairs of classes.

    $\operatorname{mean}_{c \neq c'} \frac{v_c + v_{c'}}{2 \lVert \mu_c - \mu_{c'} \rVert^2}$ with
    $v_c = \operatorname{mean}_{i \in c} \lVert x_i - \mu_c \rVert^2$

    0 at collapse. Sees variance within classes in every direction, unlike NC1.
    """
    means = several(classes).means
    k = len(means)
    first, second = torch.triu_indices(k, k, 1, device=means.device)
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    apart = distances[first, second].square()
    if not bool((apart > 1e-28 * means.square().sum(1).max()).all()):
        raise Undefined("the means of two classes coincide")
    spread = classes.squares / classes.counts
    return with_spread(classes, float(((spread[first] + spread[second]) / (2 * apart)).mean()))
