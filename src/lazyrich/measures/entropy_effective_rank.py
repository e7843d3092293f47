"""The effective rank of Roy & Vetterli, of the covariance or of the features themselves."""

from math import exp
from typing import Literal

from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues, entropy, judged


@published(
    "Roy & Vetterli, The effective rank, EUSIPCO 2007",
    bounds=(1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def entropy_effective_rank(
    x: Moments,
    *,
    of: Literal["covariance", "features"] = "covariance",
    centered: bool = True,
) -> Estimate:
    r"""Exponential of the entropy of a spectrum scaled to sum to one.

    $\exp(-\sum_k p_k \ln p_k)$ with $p_k = \lambda_k / \sum_i \lambda_i$, eigenvalues of the
    centered covariance

    Args:
        x: moments of the features.
        of: whose singular values: of the `covariance`, which are its eigenvalues, or of the
            `features`, which are their roots.
        centered: whether the mean is subtracted first.
    """
    values = eigenvalues(x, centered)
    if of == "features":
        values = values.sqrt()
    return judged(exp(entropy(values / values.sum())), int(x.n))
