"""D_LR: how far the features are from the least that the outputs need."""

from math import sqrt
from typing import Literal, NamedTuple

import torch

from ..errors import Undefined
from ..statistics import JointMoments
from ._published import Estimate, published
from .effective_dimension import varying

Kind = Literal["literal", "span"]
SOURCE = "Nam et al., ICLR 2026, arXiv:2410.04264"


@published(
    f"{SOURCE}, definition 1",
    bounds=(0, 1),
    richer="low",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def low_rank_richness(j: JointMoments, *, kind: Kind = "literal") -> float | Estimate:
    r"""D_LR, the distance of the feature kernel from the projection onto the outputs' span.

    $D_{LR} = 1 - \operatorname{CKA}(\mathcal T, \mathcal T_{MP})
    = 1 - R^2 \sqrt{d_\text{eff} / r}$

    0 is rich: the features span what the outputs need and nothing else. $R^2$ is the share of the
    features' variance that the outputs explain, $d_\text{eff}$ the effective dimension, and
    $r = \lVert H P H \rVert_F^2$ the output rank. Equal to the n x n definition, from second
    moments alone.

    Args:
        j: moments of the features with the outputs.
        kind: `literal` projects on the span of the raw outputs and then centers, as printed;
            `span` projects on the span of the centered outputs. They differ by up to
            1 - sqrt((C - 1) / C).
    """
    p = _projection(j, kind)
    value = 1 - p.explained / (sqrt(p.squared_norm) * _kernel_norm(j))
    d = j.cross.shape[0]
    if p.squared_norm > d / 2:
        note = f"output rank {p.squared_norm:.3g} exceeds half of {d} units: not richness"
        return Estimate(value, note, caution=True)
    return value


@published(
    f"{SOURCE}; factor by the inequality of Ky Fan",
    bounds=(0, 1),
    richer="high",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def richness_shape(j: JointMoments, *, kind: Kind = "literal") -> float:
    r"""How close the spectrum alone could come: 1 - D_LR under the best outputs of this rank.

    $\text{shape} = \sum_{k \le r} \lambda_k / (\sqrt r \, \lVert \lambda \rVert_2)$, so that
    $1 - D_{LR} = \text{shape} \cdot \text{align}$
    """
    p = _projection(j, kind)
    return _reachable(j, p) / (sqrt(p.squared_norm) * _kernel_norm(j))


@published(
    f"{SOURCE}; factor by the inequality of Ky Fan",
    bounds=(0, 1),
    richer="high",
    invariant={"shift", "rotation", "scale", "order", "output_scale", "output_map"},
)
def richness_align(j: JointMoments, *, kind: Kind = "literal") -> float:
    r"""How well the outputs sit on the leading directions of the features.

    $\text{align} = \operatorname{tr}(P \Sigma) / \sum_{k \le r} \lambda_k$
    """
    p = _projection(j, kind)
    return p.explained / _reachable(j, p)


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
def output_rank(j: JointMoments, *, kind: Kind = "literal") -> float | Estimate:
    r"""Rank of the outputs as D_LR counts it, 1 for every direction above rounding.

    $r = \lVert H P H \rVert_F^2$

    A direction counts in full however weak it is; the note says how many carry less than 1e-4 of
    the strongest one's variance.
    """
    p = _projection(j, kind)
    if p.weak:
        note = f"{p.weak} directions carry under 1e-4 of the strongest"
        return Estimate(p.squared_norm, note, caution=True)
    return p.squared_norm


class _Projection(NamedTuple):
    """P on the outputs, centered: what it explains of the features, and its own size."""

    explained: float  # tr(P S)
    squared_norm: float  # |H P H|_F^2, the rank r
    singular: tuple[int, float]  # its singular values: so many ones, then one fraction
    weak: int  # output directions with under 1e-4 of the strongest one's variance


def _projection(j: JointMoments, kind: Kind) -> _Projection:
    varying(j.pooled)
    spread, mean = j.outputs.covariance, j.outputs.mean
    if float(spread.trace()) <= 1e-12 * float(mean.square().sum()):
        raise Undefined("the outputs are the same for every sample")
    product = spread + torch.outer(mean, mean) if kind == "literal" else spread
    variances, directions = torch.linalg.eigh(product)
    noise = max(1e-10, (8 * j.resolution) ** 2)
    kept = variances > noise * variances[-1]
    whitening = directions[:, kept] / variances[kept].sqrt()
    explained = (j.cross / j.n @ whitening).square().sum().item()
    rank = int(kept.sum())
    # share of the constant function inside the span; centering takes that much of one direction
    constant = min((mean @ whitening).square().sum().item(), 1.0) if kind == "literal" else 0.0
    fraction = 1.0 - constant
    squared_norm = rank - 1 + fraction**2
    if squared_norm <= 1e-12 * rank:
        raise Undefined("the outputs are the same for every sample")
    centered = torch.linalg.eigvalsh(spread)
    weak = int((centered[centered > noise * centered[-1]] < 1e-4 * centered[-1]).sum())
    return _Projection(explained, squared_norm, (rank - 1, fraction), weak)


def _reachable(j: JointMoments, p: _Projection) -> float:
    """The most variance that a projection with these singular values can explain (Ky Fan)."""
    whole, fraction = p.singular
    values = j.pooled.eigenvalues
    rest = float(values[whole]) if whole < len(values) else 0.0
    return float(values[:whole].sum()) + fraction * rest


def _kernel_norm(j: JointMoments) -> float:
    return float(torch.linalg.matrix_norm(j.pooled.covariance))
