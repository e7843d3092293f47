"""Neural collapse: variability within classes (NC1), and a simplex of class means (NC2)."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import ClassMoments
from ._classes import separating, several, with_spread
from ._published import Estimate, published

SOURCE = "Papyan, Han & Donoho, PNAS 2020, doi:10.1073/pnas.2015509117"


@published(
    SOURCE,
    bounds=(0, float("inf")),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
)
def nc1(classes: ClassMoments) -> Estimate:
    r"""Variance within classes relative to the variance between their means.

    $\operatorname{tr}(\Sigma_W \Sigma_B^{+}) / C$ over the C classes seen, with
    $\Sigma_B = \frac1C \sum_c (\mu_c - \mu_G)(\mu_c - \mu_G)^\top$ and $\mu_G$ the mean of the
    class means.

    0 at collapse. Blind to variance within classes that is orthogonal to the class means.
    """
    sizes, basis = separating(_gaps(classes, least=2), classes)
    within = ((basis @ (classes.within / classes.labelled)) * basis).sum(1)
    return with_spread(classes, float((within / sizes.square()).sum()))


@published(
    f"{SOURCE}, figure 2: equinorm",
    bounds=(0, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def nc2_equinorm(classes: ClassMoments) -> float:
    r"""How much the class means differ in their distance from the common center.

    $\operatorname{std}_c \lVert \mu_c - \mu_G \rVert / \operatorname{mean}_c \lVert \mu_c - \mu_G
    \rVert$, and $\mu_G$ the mean of the class means.

    0 at collapse. Two classes always have it 0, so three are needed.
    """
    gaps = _gaps(classes, least=3)
    separating(gaps, classes)
    sizes = gaps.norm(dim=1)
    return float(sizes.std(correction=0) / sizes.mean())


@published(
    f"{SOURCE}, figure 3: equiangularity",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order"},
)
def nc2_equiangular(classes: ClassMoments) -> float:
    r"""How much the angles between class means differ from pair to pair.

    $\operatorname{std}_{c \neq c'} \cos(\mu_c - \mu_G, \mu_{c'} - \mu_G)$

    0 at collapse.
    """
    return float(_cosines(classes).std(correction=0))


@published(
    f"{SOURCE}, figure 4: maximal angle",
    bounds=(0, 2),
    invariant={"shift", "rotation", "scale", "order"},
)
def nc2_maximal_angle(classes: ClassMoments) -> float:
    r"""How far the angles between class means are from those of a simplex.

    $\operatorname{mean}_{c \neq c'} \lvert \cos(\mu_c - \mu_G, \mu_{c'} - \mu_G)
    + \frac{1}{C - 1} \rvert$

    0 at collapse, where C means stand as far apart as C vectors can.
    """
    apart = 1 / (len(classes.classes) - 1 or 1)
    return float((_cosines(classes) + apart).abs().mean())


def _gaps(classes: ClassMoments, least: int) -> Float[Tensor, "k d"]:
    """Class means less their mean, each class counting once."""
    means = several(classes, least).means
    gaps: Tensor = means - means.mean(0)
    return gaps


def _cosines(classes: ClassMoments) -> Float[Tensor, " pairs"]:
    gaps = _gaps(classes, least=3)
    sizes = gaps.norm(dim=1, keepdim=True)
    if not bool((sizes > 1e-14 * classes.means.norm(dim=1).max()).all()):
        raise Undefined("a class mean lies at the common center, and has no angle")
    units = gaps / sizes
    above = torch.triu_indices(len(units), len(units), 1, device=units.device)
    cosines: Tensor = units @ units.T
    return cosines[above[0], above[1]].clamp(-1, 1)
