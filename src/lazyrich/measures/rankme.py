"""RankMe: the effective rank of raw features, as self-supervised learning uses it."""

from math import exp

import torch

from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues, entropy, judged

_EPSILON = 1e-7  # the paper's, added to every share


@published(
    "Garrido et al., ICML 2023, arXiv:2210.02885, equation 1",
    bounds=(1, float("inf")),
    invariant={"rotation", "scale", "order"},
)
def rankme(x: Moments, *, centered: bool = False) -> Estimate:
    r"""Exponential of the entropy of the singular values of the raw features.

    $\exp(-\sum_k p_k \ln p_k)$ with $p_k = \sigma_k / \lVert \sigma \rVert_1 + 10^{-7}$ over the
    min(n, d) singular values of the n x d features

    Neither centered nor squared: `entropy_effective_rank` of the covariance is another number,
    often ten times smaller. A mean far from zero makes the first singular value dominate.

    Args:
        x: moments of the features.
        centered: subtract the mean first.
    """
    n, d = int(x.n), len(x.mean)
    sizes = eigenvalues(x, centered).sqrt()
    shares = torch.full((min(n, d),), _EPSILON, dtype=sizes.dtype, device=sizes.device)
    shares[: len(sizes)] += sizes / sizes.sum()
    return judged(exp(entropy(shares)), n)
