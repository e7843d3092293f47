"""VCI: how much of the variance along the class means is within classes."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..statistics import ClassMoments, Moments
from ._classes import separating, several, with_spread
from ._published import Estimate, published
from ._spectra import eigenvalues, principal


@published(
    "Xu & Liu, ICML 2023, arXiv:2306.03440",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order", "affine"},
)
def variability_collapse_index(classes: ClassMoments) -> Estimate:
    r"""Share of variance left within classes, in the directions that separate them best.

    $1 - \operatorname{tr}(\Sigma_T^{+} \Sigma_B) / \operatorname{rank}(\Sigma_B)$, classes weighted
    by their samples so that $\Sigma_T = \Sigma_W + \Sigma_B$

    0 at collapse, 1 where the class means coincide. The trace sums the squared canonical
    correlations of the features with the classes, so that d units find something in n samples
    even where there is nothing: the null level says how much.
    """
    x = several(classes).known
    shares = classes.counts / classes.labelled
    gaps = (classes.means - x.mean) * shares.sqrt()[:, None]
    between = len(separating(gaps, classes)[0])
    values = eigenvalues(x, centered=True)
    null = max(0.0, 1 - len(values) / (int(x.n) - 1))
    value = 1 - _explained(x, len(values), gaps) / between
    return with_spread(classes, min(max(value, 0.0), 1.0), null)


def _explained(x: Moments, rank: int, gaps: Float[Tensor, "k d"]) -> float:
    """Squared length of the gaps after whitening, within the span of the rows."""
    alive = x.covariance.diagonal() > 0
    if rank == int(alive.sum()):  # no eigenvectors are needed, which take twenty times as long
        factor = torch.linalg.cholesky(x.covariance[alive][:, alive])
        whitened = torch.linalg.solve_triangular(factor, gaps[:, alive].T, upper=False)
        return float(whitened.square().sum())
    values, axes = principal(x, centered=True)
    return float(((gaps @ axes).square().sum(0) / values).sum())
