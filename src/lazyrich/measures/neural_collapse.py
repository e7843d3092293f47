"""Neural collapse: spread within classes (NC1), a simplex of their means (NC2), which is that of
the last layer's weights (NC3), and decides like it (NC4)."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import ClassMoments, NearestMeans
from ..statistics.nearest import beside_means
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


@published(
    f"{SOURCE}, figure 5: self-duality",
    bounds=(0, 4),
    richer="low",
    invariant={"shift", "scale", "order"},
    layer="penultimate",
)
def nc3(classes: ClassMoments, head: Float[Tensor, "c d"]) -> float:
    r"""Distance of the last layer's weights from the class means, both at unit size.

    $\lVert W / \lVert W \rVert_F - \dot M / \lVert \dot M \rVert_F \rVert_F^2$, where row c of
    $\dot M$ is $\mu_c - \mu_G$, $\mu_G$ the mean of the class means, and row c of W the weights of
    output c. Rows of classes that no sample belongs to are left out of both.

    0 at collapse, 2 where weights and means are unrelated, 4 where they are opposite.
    """
    gaps = _gaps(classes, least=2)
    separating(gaps, classes)
    lowest, highest = int(classes.classes[0]), int(classes.classes[-1])
    if lowest < 0 or highest >= len(head):
        raise Undefined(f"labels from {lowest} to {highest} do not number {len(head)} outputs")
    if head.shape[1] != gaps.shape[1]:
        raise Undefined(f"the weights are of {head.shape[1]} units, the rows of {gaps.shape[1]}")
    weights = head.to(gaps)[classes.classes]
    size = weights.norm()
    if not 0 < float(size) < float("inf"):
        raise Undefined("the weights are zero or not finite")
    return min(float((weights / size - gaps / gaps.norm()).square().sum()), 4.0)


@published(
    f"{SOURCE}, figure 7: nearest class center",
    bounds=(0, 1),
    richer="low",
    invariant={"shift", "rotation", "scale", "order", "output_scale"},
    layer="penultimate",
    second_pass=beside_means,
)
def nc4(p: NearestMeans) -> Estimate:
    r"""Share of samples whose nearest class mean is not the class of their largest output.

    $\frac1n \sum_i \mathbb{1}[\arg\max_c f_c(x_i) \neq \arg\min_c \lVert h_i - \mu_c \rVert]$

    Over the samples that have a label, with the class means of the same data, which are found in
    a first reading. Intervals take these means as given.

    0 at collapse.
    """
    seen = p.predictions
    if not bool(seen.labelled > 0):
        raise Undefined("no sample has a label")
    if int(seen.lowest) < 0 or int(seen.highest) >= seen.outputs:
        raise Undefined(
            f"labels from {int(seen.lowest)} to {int(seen.highest)} do not number "
            f"{seen.outputs} outputs"
        )
    if not bool(p.decided > 0):
        raise Undefined("there are no two classes whose means differ")
    apart = int(p.decided - p.agreeing)
    share = (p.decided - p.agreeing) / p.decided
    return Estimate(float(share), f"{apart} of {int(p.decided)} samples differ")


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
