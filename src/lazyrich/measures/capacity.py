"""Manifold capacity: how many classes for each dimension a linear readout could tell apart."""

from math import isfinite

from ..errors import Undefined
from ..statistics import Clouds
from ._published import Curve, Estimate, published
from ._solvers.conventions import STANDARD, Conventions
from ._solvers.jackknife import Sampled
from ._solvers.shared_solves import (
    capacities,
    null_capacity,
    null_single_capacity,
    remarks,
    separability,
    single_capacities,
    single_remarks,
    solutions,
)

INF = float("inf")
PERCENT = (1, 5, *range(10, 100, 10), 95, 99)


@published(
    "Chung, Lee & Sompolinsky 2018, doi:10.1103/PhysRevX.8.031003; as in Chou et al. 2025, "
    "arXiv:2503.18114; support counts after Amelunxen et al. 2014, doi:10.1093/imaiai/iau005",
    bounds=(0, INF),
    richer="high",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="support count, jackknife over draws",
    own_interval=True,
)
def capacity(clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0) -> Estimate:
    r"""Classes a dimension that stay separable when projected to few random dimensions.

    $\alpha_M = P / \mathbb{E}_{y,t} \lVert \operatorname{proj}_{C_y} t \rVert^2$, where
    $C_y = \{\sum_{im} \lambda_{im} y_i x_{im} : \lambda \ge 0\}$, y puts each of the P classes
    on a side and t is standard normal

    2 for classes of one point, about 2 / M for M points without structure. Estimated by the
    dimension of the face of the cone that t projects to: the same expectation, less noise. The
    null level is that of the same points with labels shuffled.
    """
    found = capacities(clouds, conventions, seed)
    facts, cautions = remarks(clouds, conventions, seed)
    facts.append(f"{found['by_norm'].value:.4g} by the norm")
    null = null_capacity(clouds, conventions, seed)
    return estimate(found["capacity"], facts, cautions, null=null)


@published(
    "Cohen, Chung, Lee & Sompolinsky 2020, doi:10.1038/s41467-020-14578-5; as in Chou et al. "
    "2025, arXiv:2503.18114, algorithm 1; exact by the kinematics of cones, Amelunxen et al. 2014",
    bounds=(0, INF),
    richer="high",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="exact identity, support count, jackknife over draws",
    own_interval=True,
)
def simulated_capacity(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""Capacity as projections to n random dimensions would find it, without making them.

    $\alpha_\text{sim} = P / \sum_{n \ge 1} (1 - p_n)$, with $p_n$ the share of dichotomies that
    stay separable in n dimensions. As $\sum_n (1 - p_n) = \mathbb{E} \lVert \operatorname{proj}
    t \rVert^2 - \frac12$ for every cone that is not a subspace,
    $1 / \alpha_\text{sim} = 1 / \alpha_M - 1 / (2 P)$
    """
    found = capacities(clouds, conventions, seed)["simulated"]
    if not isfinite(found.value):
        raise Undefined("separable in every number of dimensions")
    count = len(solutions(clouds, conventions, seed)[0].manifolds.classes)
    unrelated = 1 / null_capacity(clouds, conventions, seed) - 1 / (2 * count)
    null = 1 / unrelated if unrelated > 0 else None
    return estimate(found, *remarks(clouds, conventions, seed), null=null)


@published(
    "Cohen, Chung, Lee & Sompolinsky 2020, doi:10.1038/s41467-020-14578-5; from intrinsic "
    "volumes, Amelunxen et al. 2014, doi:10.1093/imaiai/iau005",
    bounds=(0, INF),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="support count",
    own_interval=True,
)
def separability_curve(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Curve:
    r"""Dimensions in which 1, 5, 10, ... 99 percent of the dichotomies are separable.

    $\min \{n : p_n \ge \text{percent} / 100\}$, interpolated, with
    $1 - p_n = 2 (v_{n+1} + v_{n+3} + \dots)$ and $v_k$ the share of targets that project to a
    face of k dimensions

    P over the dimension at 50 percent is another capacity in use. Percentages that are not reached
    in all dimensions there are have no value.
    """
    share = separability(clouds, conventions, seed)
    curve = {}
    for percent in PERCENT:
        n = int((share < percent / 100).sum())
        if n < len(share):
            below = share[n - 1]
            curve[percent] = float(n - 1 + (percent / 100 - below) / (share[n] - below))
    if not curve:
        raise Undefined("hardly any dichotomy is separable in all dimensions there are")
    return curve


@published(
    "Chung, Lee & Sompolinsky 2018, doi:10.1103/PhysRevX.8.031003: manifolds without correlations",
    bounds=(0, INF),
    richer="high",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="support count, jackknife over draws",
    own_interval=True,
)
def single_manifold_capacity(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""Capacity if the manifolds lay in dimensions of their own, and did not correlate.

    $\alpha = P / \sum_i \mathbb{E} \lVert \operatorname{proj}_{C_i} t \rVert^2$ with $C_i$ the
    cone of manifold i alone: the harmonic mean of what each would have. The null level is that of
    the same points with labels shuffled.
    """
    found = single_capacities(clouds, conventions, seed)["capacity"]
    null = null_single_capacity(clouds, conventions, seed)
    return estimate(found, *single_remarks(clouds, conventions, seed), null=null)


def estimate(
    found: Sampled,
    facts: list[str],
    cautions: list[str],
    *,
    bounds: tuple[float, float] = (0.0, INF),
    null: float | None = None,
) -> Estimate:
    """A sampled value as a measure returns it: cautions first, then what stands behind it."""
    value, error, low, high = found.within(*bounds)
    note = "; ".join([*cautions, *facts])
    return Estimate(value, note, bool(cautions), error, low, high, null)
