"""D_LR: how far the features are from the least that the outputs need."""

from math import sqrt
from typing import Literal

import torch

from ..errors import Undefined
from ..statistics import JointMoments, Residuals
from ._projection import KINDS, Kind, Outputs, Projection, beside_outputs, imbalance
from ._published import Estimate, published
from ._spectra import varying
from ._unbiased import squared_norm

Wide = Literal["refuse", "allow"]
SOURCE = "Nam et al., ICLR 2026, arXiv:2410.04264"


@published(
    f"{SOURCE}, definition 1",
    bounds=(0, 1),
    richer="low",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def low_rank_richness(
    j: JointMoments, *, kind: Kind = "literal", wide_outputs: Wide = "refuse"
) -> Estimate:
    r"""D_LR, the distance of the feature kernel from the projection onto the outputs' span.

    $D_{LR} = 1 - \operatorname{CKA}(\mathcal T, \mathcal T_{MP})
    = 1 - R^2 \sqrt{d_\text{eff} / r}$

    0 is rich: the features span what the outputs need and nothing else. $R^2$ is the share of the
    features' variance that the outputs explain, $d_\text{eff}$ the effective dimension, and
    $r = \lVert H P H \rVert_F^2$ the output rank. Equal to the n x n definition, from second
    moments alone. The null level is the exact mean over all ways to deal the outputs to the
    samples.

    Args:
        j: moments of the features with the outputs.
        kind: `literal` projects on the span of the raw outputs and then centers, as printed;
            `span` projects on the span of the centered outputs; `gauge`, meant for logits, first
            subtracts each sample's mean output, which a softmax does not see, and then takes the
            span. They differ by up to 1 - sqrt((C - 1) / C).
        wide_outputs: `refuse` the value where there are as many outputs as units, `allow` it:
            features that are isotropic noise would then count as rich.

    Raises:
        Undefined: nothing varies, or the outputs are as wide as the features.
    """
    outputs = _readable(j, kind, wide_outputs)
    p = Projection.on(outputs)
    value, null = _distances(j, p)
    n, trace = int(j.n), float(j.pooled.covariance.trace())
    wanted = 10 * max((trace / _kernel_norm(j)) ** 2, p.rank)
    few = f"biased: n = {n} is less than ten times the effective dimension or the rank"
    return _judged(j, outputs, p, Estimate(value, null=null), [few] if n < wanted else [])


@published(
    f"{SOURCE}; adjusted R2, and the norm of the kernel as a U-statistic",
    richer="low",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
    estimator="adjusted for finite samples",
)
def low_rank_richness_adjusted(
    j: JointMoments, *, kind: Kind = "literal", wide_outputs: Wide = "refuse"
) -> Estimate:
    r"""D_LR of all samples there could be, of which n were drawn.

    $1 - \frac{n (\operatorname{tr} P S - \tau \operatorname{tr} S / (n - 1))}{n - 1 - \tau} \Big/
    \sqrt{r \, \widehat{\lVert \Sigma \rVert_F^2}}$ with $\tau = \operatorname{tr} H P H$

    Where the plain value is off by 0.1, this is off by 0.003, if tails are light. It may leave
    [0, 1] and is not cut off. Unrelated outputs give 1.

    Args:
        j: moments of the features with the outputs.
        kind: see `low_rank_richness`.
        wide_outputs: see `low_rank_richness`.

    Raises:
        Undefined: also, no more samples than output directions.
    """
    outputs = _readable(j, kind, wide_outputs)
    p = _estimable(j, outputs)
    n, tau, trace = int(j.n), p.trace, float(j.pooled.covariance.trace())
    explained = n * (p.explained - tau * trace / (n - 1)) / (n - 1 - tau)
    value = 1 - explained / sqrt(p.rank * squared_norm(j.features))
    cautions = _few(n, tau)
    heavy = float(j.features.tail.quartic) / n / trace**2
    if heavy > 2 * (1 + 2 * (_kernel_norm(j) / trace) ** 2):
        cautions.append(
            f"heavy tails (mean |x|^4 is {heavy:.2g} times the mean |x|^2 squared): "
            "low_rank_richness_hc2 is less biased"
        )
    return _judged(j, outputs, p, Estimate(value, null=1.0), cautions)


@published(
    f"{SOURCE}; residuals by HC2, MacKinnon & White 1985, doi:10.1016/0304-4076(85)90158-7",
    richer="low",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
    estimator="HC2 residuals",
    second_pass=beside_outputs,
)
def low_rank_richness_hc2(
    r: Residuals, *, kind: Kind = "literal", wide_outputs: Wide = "refuse"
) -> Estimate:
    r"""D_LR of all samples there could be, where some rows are much noisier than others.

    $1 - \Big(\frac{n}{n - 1} \operatorname{tr} S - \frac1n \sum_i \lVert e_i \rVert^2 / s_i\Big)
    \Big/ \sqrt{r \, \widehat{\lVert \Sigma \rVert_F^2}}$ with $e = (I - P) H X$ and
    $s = \operatorname{diag} (I - P) H (I - P)$

    As `low_rank_richness_adjusted`, but each residual counts over the share $s_i$ of its own noise
    that the fit has left: rows far out in the outputs, which are the noisy ones where tails are
    heavy, are fitted too well. Reads the data twice; intervals take the fit as given, at which the
    residuals are stationary. Equal to the adjusted value where all rows have the same share.

    Args:
        r: moments and residuals of the features beside the outputs.
        kind: see `low_rank_richness`.
        wide_outputs: see `low_rank_richness`.

    Raises:
        Undefined: also, no more samples than output directions.
    """
    j = r.joint
    outputs = _readable(j, kind, wide_outputs)
    p = _estimable(j, outputs)
    n, trace, place = int(j.n), float(j.pooled.covariance.trace()), KINDS.index(kind)
    if not float(r.counted[place]) > 0:
        raise Undefined("the outputs fit every sample, whatever its features are")
    noise = float(r.squared[place] / r.counted[place])
    value = 1 - (n / (n - 1) * trace - noise) / sqrt(p.rank * squared_norm(j.features))
    return _judged(j, outputs, p, Estimate(value, null=1.0), _few(n, p.trace))


@published(
    f"{SOURCE}; factor by the inequality of Ky Fan",
    bounds=(0, 1),
    richer="high",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def richness_shape(
    j: JointMoments, *, kind: Kind = "literal", wide_outputs: Wide = "refuse"
) -> float:
    r"""How close the spectrum alone could come: 1 - D_LR under the best outputs of this rank.

    $\text{shape} = \sum_{k \le r} \lambda_k / (\sqrt r \, \lVert \lambda \rVert_2)$, so that
    $1 - D_{LR} = \text{shape} \cdot \text{align}$
    """
    p = Projection.on(_readable(j, kind, wide_outputs))
    return _reachable(j, p) / (sqrt(p.rank) * _kernel_norm(j))


@published(
    f"{SOURCE}; factor by the inequality of Ky Fan",
    bounds=(0, 1),
    richer="high",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def richness_align(
    j: JointMoments, *, kind: Kind = "literal", wide_outputs: Wide = "refuse"
) -> Estimate:
    r"""How well the outputs sit on the leading directions of the features.

    $\text{align} = \operatorname{tr}(P \Sigma) / \sum_{k \le r} \lambda_k$
    """
    p = Projection.on(_readable(j, kind, wide_outputs))
    reachable = _reachable(j, p)
    unrelated = p.trace * float(j.pooled.covariance.trace()) / (int(j.n) - 1)
    return Estimate(p.explained / reachable, null=unrelated / reachable)


@published(
    SOURCE,
    bounds=(0, float("inf")),
    invariant={
        "shift",
        "rotation",
        "scale",
        "order",
        "affine",
        "output_scale",
        "output_map",
    },
)
def output_rank(j: JointMoments, *, kind: Kind = "literal") -> Estimate:
    r"""Rank of the outputs as D_LR counts it, 1 for every direction above rounding.

    $r = \lVert H P H \rVert_F^2$

    A direction counts in full however weak it is; the note says how many carry less than 1e-4 of
    the strongest one's variance.
    """
    varying(j.pooled)
    outputs = Outputs.of(j, kind)
    p = Projection.on(outputs)
    weak, _ = outputs.weak()
    if weak:
        note = f"{weak} directions carry under 1e-4 of the strongest"
        return Estimate(p.rank, note, caution=True)
    return Estimate(p.rank)


def _readable(j: JointMoments, kind: Kind, wide_outputs: Wide) -> Outputs:
    """The outputs under a reading, if a distance from their span says something of richness."""
    d, c = j.cross.shape
    if c >= d and wide_outputs == "refuse":
        raise Undefined(
            f"{c} outputs can span all {d} dimensions of the features, so that isotropic noise "
            "would count as rich; wide_outputs='allow' gives the number all the same"
        )
    varying(j.pooled)
    return Outputs.of(j, kind)


def _estimable(j: JointMoments, outputs: Outputs) -> Projection:
    """The projection, where samples are enough to tell noise from what the outputs explain."""
    p, n = Projection.on(outputs), int(j.n)
    if n <= p.trace + 1:
        tau = p.trace
        raise Undefined(f"n = {n}: outputs of rank {tau:.3g} need {tau + 2:.3g} samples or more")
    return p


def _few(n: int, tau: float) -> list[str]:
    few = f"n = {n} is less than five times the output rank: a wide error"
    return [few] if n < 5 * (tau + 1) else []


def _judged(
    j: JointMoments, outputs: Outputs, p: Projection, found: Estimate, cautions: list[str]
) -> Estimate:
    """The value with everything that could make it mean something else."""
    d = j.cross.shape[0]
    if p.rank > d / 2:
        cautions.append(f"output rank {p.rank:.3g} exceeds half of {d} units: not richness")
    weak, without = outputs.weak()
    if weak:
        strong = _distances(j, Projection.on(without))[0]
        if abs(strong - _distances(j, p)[0]) > 0.01:
            cautions.append(
                f"decided by noise: {weak} output directions carry under 1e-4 of the strongest "
                f"one's variance, and without them the plain value is {strong:.3g}"
            )
    alone = imbalance(j)
    if alone > 0.01:
        cautions.append(f"unequal classes alone give collapsed features {alone:.2g}")
    return found._replace(note="; ".join(cautions), caution=bool(cautions))


def _distances(j: JointMoments, p: Projection) -> tuple[float, float]:
    """D_LR, and its mean if the outputs were dealt to the samples anew."""
    size = sqrt(p.rank) * _kernel_norm(j)
    unrelated = p.trace * float(j.pooled.covariance.trace()) / (int(j.n) - 1)
    return 1 - p.explained / size, 1 - unrelated / size


def _reachable(j: JointMoments, p: Projection) -> float:
    """The most variance that a projection with these singular values can explain (Ky Fan)."""
    whole, fraction = p.singular
    values = j.pooled.eigenvalues
    rest = float(values[whole]) if whole < len(values) else 0.0
    return float(values[:whole].sum()) + fraction * rest


def _kernel_norm(j: JointMoments) -> float:
    return float(torch.linalg.matrix_norm(j.pooled.covariance))
