"""Features one by one: how strong, how good for the target, how much used by the outputs."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import ClassMoments, JointMoments, Moments
from ._classes import several
from ._projection import Outputs
from ._published import Curve, published
from ._spectra import eigenvalues, principal
from .spectrum import at_ranks

SOURCE = "Nam et al., ICLR 2026, arXiv:2410.04264, equation 5"
"""The normalization of the curves is ours: the equation itself was not at hand."""


@published(
    f"{SOURCE}: relative eigenvalues",
    bounds=(0, 1),
    invariant={"rotation", "scale", "order"},
)
def relative_eigenvalue(x: Moments, *, centered: bool = False) -> Curve:
    r"""Strength of each feature beside the strongest.

    $\rho_k / \rho_1$, eigenvalues of $\mathcal T = \sum_i |\Phi_i\rangle\langle\Phi_i|$, that is of
    $\mathbb E[\phi \phi^\top]$

    Args:
        x: moments of the features.
        centered: subtract the mean first; raw, the first feature is mostly the mean.
    """
    values = eigenvalues(x, centered)
    return at_ranks(values / values[0])


@published(
    f"{SOURCE}: cumulative quality, targets are the indicators of the classes",
    bounds=(0, 1),
    invariant={"rotation", "scale", "order"},
)
def cumulative_quality(classes: ClassMoments, *, centered: bool = False) -> Curve:
    r"""How much of the target functions the first k features can express.

    $\Pi^*(k) = \frac{1}{\dim \mathcal H^*} \sum_{j \le k} \lVert P_{\mathcal H^*} e_j \rVert^2$
    with $e_j(x) = v_j^\top \phi(x) / \sqrt{\rho_j}$ and $\mathcal H^*$ spanned by the indicators of
    the classes

    At the end of the curve, the share of the targets that a linear readout of all features can
    fit.

    Args:
        classes: moments by class; samples without a label do not count.
        centered: subtract the mean first, of features and targets.
    """
    values, axes = principal(several(classes).known, centered)
    means = classes.means - classes.known.mean if centered else classes.means
    shares = classes.counts / classes.labelled
    seen = shares @ (means @ axes).square() / values
    return _cumulative(seen, len(shares) - centered)


@published(
    f"{SOURCE}: cumulative utilization",
    bounds=(0, 1),
    invariant={"rotation", "scale", "order", "output_scale", "output_map"},
)
def cumulative_utilization(j: JointMoments, *, centered: bool = False) -> Curve:
    r"""How much of the outputs the first k features make up.

    $\hat\Pi(k) = \frac{1}{\dim \hat{\mathcal H}} \sum_{j \le k} \lVert P_{\hat{\mathcal H}} e_j
    \rVert^2$ with $e_j(x) = v_j^\top \phi(x) / \sqrt{\rho_j}$ and $\hat{\mathcal H}$ spanned by the
    outputs

    Args:
        j: moments of the features with the outputs.
        centered: subtract the mean first, of features and outputs.
    """
    values, axes = principal(j.pooled, centered)
    outputs = Outputs.of(j, "span" if centered else "literal")
    second, cross = outputs.spread, outputs.cross
    if not centered:
        second = second + torch.outer(outputs.mean, outputs.mean)
        cross = cross + torch.outer(j.pooled.mean, outputs.mean)
    variances, directions = torch.linalg.eigh(second)
    if not bool(variances[-1] > 0) or not bool(outputs.spread.trace() > 0):
        raise Undefined("the outputs are the same for every sample")
    kept = variances > outputs.noise * variances[-1]
    whitened = cross @ (directions[:, kept] / variances[kept].sqrt())
    return _cumulative((axes.T @ whitened).square().sum(1) / values, int(kept.sum()))


def _cumulative(seen: Float[Tensor, " r"], dimension: int) -> Curve:
    return at_ranks((seen.cumsum(0) / dimension).clamp(max=1.0))
