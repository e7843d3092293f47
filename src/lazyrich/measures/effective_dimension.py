"""How many directions a representation uses: the participation ratio of its covariance."""

from ..errors import Undefined
from ..statistics import Moments
from ._published import Estimate, published


@published(
    "Yadav 2026, arXiv:2602.00130; participation ratio as in Gao et al. 2017, doi:10.1101/214262",
    bounds=(1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def effective_dimension(x: Moments) -> float | Estimate:
    r"""Participation ratio of the spectrum of the centered covariance.

    $(\sum_i \lambda_i)^2 / \sum_i \lambda_i^2 = (\operatorname{tr} C)^2 / \lVert C \rVert_F^2$

    1 for one direction, d for an isotropic cloud. The plug-in value is biased low once it comes
    near the number of samples, about 1/value = 1/true + 1/n.

    >>> import torch
    >>> from lazyrich.statistics import Batch
    >>> corners = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]]).repeat(10, 1)
    >>> effective_dimension(Moments.of(Batch(corners)))
    2.0
    """
    covariance = varying(x).covariance
    value = (covariance.trace().square() / covariance.square().sum()).item()
    n = int(x.n)
    if n < 10 * value:
        return Estimate(
            value, f"biased low: n = {n} is less than ten times the value", caution=True
        )
    return value


def varying(x: Moments) -> Moments:
    """The same moments, if they vary at all.

    Raises:
        Undefined: every row is the same, up to rounding.
    """
    if float(x.covariance.trace()) <= 1e-28 * float(x.mean.square().sum()):
        raise Undefined("the activations are the same for every sample")
    return x
