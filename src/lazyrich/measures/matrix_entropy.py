"""The matrix-based entropy of a data set's features."""

from math import log

from ..errors import Undefined
from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues, entropy


@published(
    "Skean et al., ICML 2025, arXiv:2502.02013, equation 1 (data set entropy)",
    bounds=(0, float("inf")),
    invariant={"rotation", "scale", "order"},
)
def matrix_entropy(x: Moments, *, order: float = 1.0, centered: bool = False) -> Estimate:
    r"""Renyi entropy of the eigenvalues of the Gram matrix of the raw features, in nats.

    $\frac{1}{1 - \alpha} \ln \sum_k (\lambda_k / \operatorname{tr} K)^\alpha$ with
    $K = Z Z^\top$; in the limit $\alpha \to 1$ the von Neumann entropy
    $-\sum_k p_k \ln p_k$

    At most ln min(n, d). Of order 2 and centered it is the log of the effective dimension.

    Args:
        x: moments of the features.
        order: alpha.
        centered: subtract the mean first.

    Raises:
        Undefined: the order is not positive.
    """
    if order <= 0:
        raise Undefined(f"the order of a Renyi entropy is positive, got {order}")
    values = eigenvalues(x, centered)
    shares = values / values.sum()
    if order == 1:
        return Estimate(max(entropy(shares), 0.0))
    return Estimate(max(log(float((shares**order).sum())) / (1 - order), 0.0))
