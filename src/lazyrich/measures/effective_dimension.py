"""How many directions a representation uses: the participation ratio of its covariance."""

from ..errors import Undefined
from ..statistics import FourthMoments, Moments
from ._published import Estimate, published
from ._spectra import judged, varying
from ._unbiased import squared_norm, squared_trace


@published(
    "Yadav 2026, arXiv:2602.00130; participation ratio as in Gao et al. 2017, doi:10.1101/214262",
    bounds=(1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def effective_dimension(x: Moments) -> Estimate:
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
    return judged(value, int(x.n))


@published(
    "Chun, Canatar, Chung & Lee, ICLR 2026, arXiv:2509.26560 (rows corrected)",
    bounds=(0, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
    estimator="ratio of U-statistics",
)
def effective_dimension_debiased(x: FourthMoments) -> Estimate:
    r"""Participation ratio of the covariance of all samples there could be, of which n were drawn.

    $\widehat{(\operatorname{tr} \Sigma)^2} / \widehat{\lVert \Sigma \rVert_F^2}$, each the mean
    over all choices of four distinct samples.

    It may exceed the number of units. Units are taken as they are: the correction for units that
    were not recorded is another quantity, see `effective_dimension_both_debiased`.
    """
    varying(x.moments)
    return _extrapolated(squared_trace(x) / squared_norm(x), int(x.n))


@published(
    "Chun, Canatar, Chung & Lee, ICLR 2026, arXiv:2509.26560 (columns corrected)",
    bounds=(0, float("inf")),
    invariant={"shift", "scale", "order"},
    estimator="ratio over pairs of different units",
)
def effective_dimension_units_debiased(x: Moments) -> Estimate:
    r"""Participation ratio of all units there could be, of which d were recorded, on these samples.

    $\sum_{i \ne j} C_{ii} C_{jj} / \sum_{i \ne j} C_{ij}^2$

    For units that are a random choice of many, such as recorded neurons; those of an artificial
    layer are all there. It depends on which units there are, not only on the space they span.
    """
    variances = varying(x).covariance.diag()
    squared = variances.square().sum()
    apart = float(x.covariance.square().sum() - squared)
    if apart <= 1e-14 * float(squared):
        raise Undefined("no two units vary together: there may be any number of dimensions")
    return Estimate(float(variances.sum().square() - squared) / apart)


@published(
    "Chun, Canatar, Chung & Lee, ICLR 2026, arXiv:2509.26560 (rows and columns corrected)",
    bounds=(0, float("inf")),
    invariant={"shift", "scale", "order"},
    estimator="ratio of U-statistics over pairs of different units",
)
def effective_dimension_both_debiased(x: FourthMoments) -> Estimate:
    r"""Participation ratio of all samples and units there could be, of which n and d were recorded.

    $\sum_{i \ne j} \widehat{\Sigma_{ii} \Sigma_{jj}} / \sum_{i \ne j} \widehat{\Sigma_{ij}^2}$,
    each the mean over all choices of four distinct samples.

    For units that are a random choice of many, such as recorded neurons; those of an artificial
    layer are all there. It depends on which units there are, not only on the space they span.
    """
    varying(x.moments)
    value = squared_trace(x, apart=True) / squared_norm(x, apart=True)
    return _extrapolated(value, int(x.n))


def _extrapolated(value: float, n: int) -> Estimate:
    if n < value:
        note = f"extrapolated: n = {n} is less than the value"
        return Estimate(value, note, caution=True)
    return Estimate(value)
