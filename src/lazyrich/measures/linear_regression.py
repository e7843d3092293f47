"""Linear regression: how much of one representation can be read linearly from another."""

from ..errors import Undefined
from ..statistics import PairMoments
from ._published import Estimate, published


@published(
    "Kornblith et al. 2019, arXiv:1905.00414, section 5 (linear regression)",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "affine", "order"},
    estimator="least squares",
)
def linear_regression(pair: PairMoments) -> Estimate:
    r"""Share of the variance of the second representation that the first explains linearly.

    $\operatorname{tr}(\Sigma_{yx} \Sigma_{xx}^{+} \Sigma_{xy}) / \operatorname{tr} \Sigma_{yy}$

    Directed: `a ~ b` predicts b from a, in the same samples. With n samples and x of rank r,
    shuffled samples give r / (n - 1) on average, which is the null level; n of d units or fewer
    explain anything at all, and are refused.
    """
    x, n = pair.x.moments, int(pair.n)
    d = len(x.mean)
    if n <= d:
        raise Undefined(f"{n} samples explain anything: more are needed than there are units")
    size = float(pair.y.moments.scatter.trace())
    values = x.resolved(x.eigenvalues, most=min(d, n - 1))
    if not size > 0 or not len(values):
        raise Undefined("one of the two representations does not vary")
    along = x.axes[:, : len(values)].T @ pair.across.cross / n
    explained = float((along.square().sum(1) / values).sum()) * n
    return Estimate(min(explained / size, 1.0), null=len(values) / (n - 1))
