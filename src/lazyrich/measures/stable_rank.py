"""The stable rank: how many directions are as strong as the strongest."""

from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues, judged


@published(
    "Rudelson & Vershynin, J. ACM 2007, doi:10.1145/1255443.1255449; NESum of He & Ozay, ICML 2022",
    bounds=(1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def stable_rank(x: Moments, *, centered: bool = True) -> Estimate:
    r"""Sum of the eigenvalues of the covariance over the largest.

    $\sum_k \lambda_k / \lambda_1 = \lVert X \rVert_F^2 / \lVert X \rVert_2^2$ of the centered
    features X

    Args:
        x: moments of the features.
        centered: whether the mean is subtracted first; not, and it is mostly the mean's.
    """
    values = eigenvalues(x, centered)
    return judged(float(values.sum() / values[0]), int(x.n))
