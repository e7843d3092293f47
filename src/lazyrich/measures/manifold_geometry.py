"""GLUE: the shape of manifolds as a linear readout feels it, and how it makes their capacity."""

from functools import partial
from math import isfinite

from ..errors import Undefined
from ..statistics import Clouds
from ._published import Estimate, published
from ._solvers.conventions import STANDARD, Conventions
from ._solvers.shared_solves import (
    remarks,
    shapes,
    single_remarks,
    single_shapes,
    solutions,
)
from ._solvers.solved_manifolds import SolvedManifolds, solve_manifolds
from .capacity import INF, estimate

__all__ = ["Conventions", "SolvedManifolds", "solve_manifolds"]

_glue = partial(
    published,
    "Chou et al. 2025, doi:10.1101/2024.02.26.582157; Chou, Le, Wang & Chung 2025, "
    "arXiv:2503.18114, definition B.6 and algorithm 2",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="plug-in, jackknife over draws",
    own_interval=True,
)
_single = partial(
    published,
    "Chung, Lee & Sompolinsky 2018, doi:10.1103/PhysRevX.8.031003: manifolds without correlations",
    bounds=(0, INF),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="plug-in, jackknife over draws",
    own_interval=True,
)


@_glue(bounds=(0, INF), richer="low")
def manifold_dimension(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""D_M, the dimensions of each manifold that a readout has to deal with.

    $D_M = \frac1P \mathbb{E}[b]$ with $b = (S_1 t)^\top (S_1 S_1^\top)^+ (S_1 t)$, where row i of
    S is the anchor of manifold i, $\sum_m \lambda_{im} x_{im} / \sum_m \lambda_{im}$, $S_0$ is its
    mean over draws and $S_1 = S - S_0$
    """
    return _shape(clouds, conventions, seed, "dimension")


@_glue(bounds=(0, INF), richer="low")
def manifold_radius(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""R_M, the size of manifolds along those dimensions beside the distance of their centers.

    $R_M = \sqrt{\mathbb{E}[c] / \mathbb{E}[b - c]}$ with
    $c = (S_1 t)^\top (S_0 S_0^\top + S_1 S_1^\top)^+ (S_1 t)$ and b, S as for the dimension

    With `radius="mean_of_ratios"`, the root of $\mathbb{E}[c / (b - c)]$.
    """
    return _shape(clouds, conventions, seed, "radius")


@_glue(bounds=(0, 1))
def center_alignment(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""How far the centers of different manifolds lie along one line.

    $\rho^c = \langle |\cos(s^0_i, s^0_j)| \rangle_{i \ne j}$, centers being mean anchors

    With `alignment="product"`, the inner product in place of the cosine, as definition B.6 prints
    it, where the mean squared length of points is one.
    """
    return _shape(clouds, conventions, seed, "center")


@_glue(bounds=(0, 1))
def axis_alignment(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""How far different manifolds vary along the same direction at the same time.

    $\rho^a = \mathbb{E} \langle |\cos(s^1_i, s^1_j)| \rangle_{i \ne j}$, axes being anchors less
    their mean
    """
    return _shape(clouds, conventions, seed, "axis")


@_glue(bounds=(0, 1))
def center_axis_alignment(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""How far manifolds vary towards or away from the centers of others.

    $\psi = \mathbb{E} \langle |\cos(s^0_i, s^1_j)| \rangle_{i \ne j}$
    """
    return _shape(clouds, conventions, seed, "center_axis")


@_glue(bounds=(0, INF), richer="high")
def approximate_capacity(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""The capacity of balls of that dimension and radius.

    $(1 + R_M^{-2}) / D_M$, which is $P / \mathbb{E}[c]$ for a radius from the ratio of means
    """
    return _shape(clouds, conventions, seed, "approximate")


@published(
    "Chou, Kirsanov, Yang & Chung 2026, arXiv:2603.01879, appendix B.3",
    bounds=(0, INF),
    richer="high",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="plug-in, jackknife over draws",
    own_interval=True,
)
def utility(clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0) -> Estimate:
    r"""Capacity beside what dimension and radius alone explain of it.

    $\Psi = \alpha_M D_M / (1 + R_M^{-2})$, so that $\alpha_M = \Psi (1 + R_M^{-2}) / D_M$
    """
    return _shape(clouds, conventions, seed, "utility")


@_single()
def single_manifold_dimension(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""Mean over manifolds of the dimension that each has by itself.

    $\frac1P \sum_i D_i$ with $D_i = \mathbb{E}[(s^1_i \cdot t)^2 / \lVert s^1_i \rVert^2]$ from
    the cone of manifold i alone
    """
    return _by_itself(clouds, conventions, seed, "dimension")


@_single()
def single_manifold_radius(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> Estimate:
    r"""Mean over manifolds of the radius that each has by itself.

    $\frac1P \sum_i R_i$, with $R_i$ the radius from the cone of manifold i alone
    """
    return _by_itself(clouds, conventions, seed, "radius")


def _shape(clouds: Clouds, conventions: Conventions, seed: int, name: str) -> Estimate:
    found = shapes(clouds, conventions, seed)[name]
    if not isfinite(found.value):
        raise Undefined("the anchors give no finite value: they do not vary, or have no length")
    facts, cautions = remarks(clouds, conventions, seed)
    inactive = solutions(clouds, conventions, seed)[0].inactive
    facts.append(f"{float(inactive.mean()):.1%} of the anchors inactive")
    bounded = name in ("center", "axis", "center_axis") and conventions.alignment == "cosine"
    return estimate(found, facts, cautions, bounds=(0.0, 1.0 if bounded else INF))


def _by_itself(clouds: Clouds, conventions: Conventions, seed: int, name: str) -> Estimate:
    found = single_shapes(clouds, conventions, seed)[name]
    if not isfinite(found.value):
        raise Undefined("the anchors of a manifold by itself give no finite value")
    return estimate(found, *single_remarks(clouds, conventions, seed))
