"""The eigenvalues of a tangent kernel: how many directions it has, and which the targets need."""

from math import exp

from ..statistics import TangentKernel
from ._published import Curve, Estimate, Invariance, published
from ._spectra import entropy

INF = float("inf")
_SPECTRUM = "Jacot, Gabriel & Hongler 2018, arXiv:1806.07572, section 5: eigenvalues are rates"
_INVARIANT: frozenset[Invariance] = frozenset({"rotation", "scale", "order"})


@published(_SPECTRUM, bounds=(0, INF), invariant={"rotation", "order"})
def ntk_spectrum(kernel: TangentKernel) -> Curve:
    r"""Eigenvalues of the kernel above rounding, from the largest.

    $k \mapsto \lambda_k(K)$
    """
    return dict(enumerate(kernel.principal[0].tolist(), 1))


@published(
    "Arora et al. 2019, arXiv:1901.08584, section 4: targets along the eigenvectors",
    bounds=(0, 1 + 1e-9),
    invariant=_INVARIANT,
)
def ntk_target_energy(kernel: TangentKernel) -> Curve:
    r"""Share of the centered targets within the leading eigenvectors of the kernel.

    $k \mapsto \sum_{i \le k} \lVert u_i^\top Y \rVert^2 / \lVert Y \rVert^2$

    What rises early is learned early.
    """
    aims = kernel.aims()
    parts = (kernel.principal[1].T @ aims).square().sum(1) / aims.square().sum()
    return dict(enumerate(parts.cumsum(0).tolist(), 1))


@published(
    "participation ratio as in Gao et al. 2017, doi:10.1101/214262, of a tangent kernel",
    bounds=(1 - 1e-9, INF),
    invariant=_INVARIANT,
)
def ntk_participation(kernel: TangentKernel) -> float:
    r"""Participation ratio of the eigenvalues of the kernel: how many directions it has.

    $(\operatorname{tr} K)^2 / \lVert K \rVert_F^2$
    """
    k = kernel.nonzero()
    return float(k.trace().square() / k.square().sum())


@published(
    "Roy & Vetterli, The effective rank, EUSIPCO 2007; of a tangent kernel as in Baratin et al. "
    "2021, arXiv:2008.00938",
    bounds=(1 - 1e-9, INF),
    invariant=_INVARIANT,
)
def ntk_entropy_rank(kernel: TangentKernel) -> float:
    r"""Exponential of the entropy of the eigenvalues of the kernel, scaled to sum to one.

    $\exp(-\sum_k p_k \ln p_k)$ with $p_k = \lambda_k / \operatorname{tr} K$
    """
    values = kernel.principal[0]
    return exp(entropy(values / values.sum()))


@published(
    "Xiao, Pennington & Schoenholz 2020, arXiv:1912.13053, condition number",
    bounds=(1, INF),
    invariant=_INVARIANT,
)
def ntk_condition(kernel: TangentKernel) -> Estimate:
    r"""Largest eigenvalue of the kernel over the smallest that is above rounding.

    $\lambda_1 / \lambda_r$

    Where r is less than n, the true value is unknown or infinite, and the note says so.
    """
    values, n = kernel.principal[0], len(kernel.matrix)
    value = float(values[0] / values[-1])
    if len(values) < n:
        note = f"{len(values)} of {n} eigenvalues are above rounding: the condition within them"
        return Estimate(value, note, caution=True)
    return Estimate(value)
