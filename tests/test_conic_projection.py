"""The projection on cones against other solvers, closed forms, and its own conditions."""

from math import pi, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import nnls
from scipy.stats import binom
from torch import Tensor

from lazyrich.errors import Undefined
from lazyrich.measures._solvers import conic_projection
from lazyrich.measures._solvers.alternating_directions import alternating_directions
from lazyrich.measures._solvers.block_pivoting import pivot_each, pivot_together
from lazyrich.measures._solvers.conic_projection import Rays, project, spans_itself

RNG = np.random.default_rng


def gaussian(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(RNG(seed).standard_normal((n, d)))


def clouds(kind: str, p: int = 6, m: int = 15, d: int = 200) -> Tensor:
    """Points of p classes: well apart, collapsed, rectified with a large mean, or in few units."""
    rng = RNG(1)
    if kind == "crowded":
        d = 20
    centers = rng.standard_normal((p, 1, d))
    spread = {"collapsed": 0.01, "apart": 1.0, "crowded": 0.7, "rectified": 1.5}[kind]
    x = (centers + spread * rng.standard_normal((p, m, d))).reshape(p * m, d)
    if kind == "rectified":
        x = np.maximum(x @ rng.standard_normal((d, d)) / sqrt(d) + 0.5, 0)
    return torch.from_numpy(x - x.mean(0) if kind != "apart" else x)


KINDS = ["apart", "collapsed", "rectified", "crowded"]


def problem(kind: str, n: int = 30) -> tuple[Tensor, Rays, Tensor, Tensor]:
    """Unit rays, the same as the solver sees them, targets, and signs by class."""
    x = clouds(kind)
    x = x / x.norm(dim=1, keepdim=True)
    rays = Rays.of(x @ x.T)
    targets = rays.targets(gaussian(n, len(x), 2))
    signs = torch.from_numpy(RNG(3).choice([-1.0, 1.0], (n, 6))).repeat_interleave(15, 1)
    return x, rays, targets, signs


@pytest.mark.parametrize("kind", KINDS)
def test_every_projection_meets_its_conditions(kind: str) -> None:
    _, rays, targets, signs = problem(kind)
    found = project(rays, targets, signs)
    near = (signs * found.multipliers) @ rays.coordinates
    rest = targets - near
    assert found.residual < 1e-9
    assert bool((found.multipliers >= 0).all())
    slack = signs * (rest @ rays.coordinates.T)
    assert float(slack.max()) < 1e-9 * sqrt(rays.rank)
    assert float((near * rest).sum(1).abs().max()) < 1e-9 * rays.rank
    torch.testing.assert_close(found.slack, slack)
    torch.testing.assert_close(found.squared_norm, near.square().sum(1))


@pytest.mark.parametrize("kind", KINDS)
def test_equals_nnls_and_daqp_at_the_same_targets(kind: str) -> None:
    qpsolvers = pytest.importorskip("qpsolvers")
    pytest.importorskip("daqp")
    _, rays, targets, signs = problem(kind)
    found = project(rays, targets, signs)
    x = rays.coordinates.numpy()
    for k, (t, y) in enumerate(zip(targets.numpy(), signs.numpy(), strict=True)):
        weights, _ = nnls((y[:, None] * x).T, t, maxiter=9999)
        squared = ((weights * y) @ x) @ ((weights * y) @ x)
        assert float(found.squared_norm[k]) == pytest.approx(squared, rel=1e-9)
        if not bool(found.full[k]):
            assert float(found.support[k]) == (weights > 0).sum()
            np.testing.assert_allclose(found.multipliers[k], weights, atol=1e-9 * weights.max())
        qp = qpsolvers.Problem(np.eye(len(t)), -t, y[:, None] * x, np.zeros(len(x)))
        rest = qpsolvers.solve_problem(qp, solver="daqp").x
        assert float(found.squared_norm[k]) == pytest.approx(t @ t - rest @ rest, rel=1e-9)


@pytest.mark.parametrize("kind", ["apart", "collapsed", "rectified"])
@pytest.mark.parametrize("cold", [True, False])
def test_pivoting_together_equals_pivoting_each(kind: str, cold: bool) -> None:
    _, rays, targets, signs = problem(kind, 60)
    heights = targets @ rays.coordinates.T
    start = alternating_directions(rays.directions, rays.values, heights, signs, 5.0, 40) != 0
    start = start & (not cold)
    each, solved = pivot_each(*(a.numpy() for a in (rays.gram, heights, signs, start)))
    for memory in (1 << 28, 1 << 14):
        together, done = pivot_together(rays.gram, heights, signs, start, memory)
        both = solved & done.numpy()
        assert both.mean() > 0.8  # rounding, so the machine, decides which are for the slow method
        np.testing.assert_allclose(together[both], each[both], atol=1e-10)


def test_pivoting_gives_up_on_dependent_rays_and_the_slow_method_takes_over() -> None:
    x = torch.cat([gaussian(6, 6), -gaussian(6, 6)[:1]])  # one ray and its opposite
    x = x / x.norm(dim=1, keepdim=True)
    rays = Rays.of(x @ x.T)
    assert rays.rank == len(x) - 1
    every = torch.ones(4, 7, dtype=torch.bool)
    heights = rays.targets(gaussian(4, 7)) @ rays.coordinates.T
    ones = torch.ones(4, 7, dtype=torch.float64)
    assert not pivot_each(rays.gram.numpy(), heights.numpy(), ones.numpy(), every.numpy())[1].all()
    assert not pivot_together(rays.gram, heights, ones, every)[1].all()
    assert project(rays, rays.targets(gaussian(40, 7)), ones[:1].expand(40, -1)).residual < 1e-12


def test_a_projection_that_does_not_converge_is_undefined(monkeypatch: pytest.MonkeyPatch) -> None:
    def stuck(*args: object, **options: object) -> None:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(conic_projection, "nnls", stuck)
    _, rays, targets, signs = problem("crowded", 30)
    with pytest.raises(Undefined, match="did not converge: Maximum number"):
        project(rays, targets, signs)


@given(t=st.integers(1, 12), d=st.integers(1, 12), seed=st.integers(0, 10**6), copies=st.booleans())
@settings(max_examples=60, deadline=None)
def test_conditions_hold_for_any_rays(t: int, d: int, seed: int, copies: bool) -> None:
    x = gaussian(t, d, seed)
    x = torch.cat([x, x[:1] * 2, -x[-1:]]) if copies else x
    rays = Rays.of(x @ x.T)
    signs = torch.from_numpy(RNG(seed).choice([-1.0, 1.0], (5, len(x))))
    found = project(rays, rays.targets(gaussian(5, len(x), seed + 1)), signs)
    assert found.residual < 1e-9
    assert bool((found.support <= rays.rank).all())
    assert bool((found.squared_norm <= rays.rank * (1 + 1e-12)).all())


def test_the_same_target_on_more_rays_of_the_same_cone() -> None:
    x = gaussian(8, 30)
    inside = torch.rand(5, 8, dtype=torch.float64) @ x
    few = Rays.of(x @ x.T)
    more = torch.cat([x, inside])
    many = Rays.of(more @ more.T)
    t = gaussian(20, 30, 4)
    ones = torch.ones(20, 13, dtype=torch.float64)
    found = [
        project(r, r.spanned(t @ (y / y.norm(dim=1, keepdim=True)).T), ones[:, : len(y)])
        for r, y in ((few, x), (many, more))
    ]
    torch.testing.assert_close(found[0].squared_norm, found[1].squared_norm)
    torch.testing.assert_close(found[0].support, found[1].support)


@pytest.mark.parametrize(("t", "d"), [(12, 40), (60, 50)])
def test_a_line_in_a_cone_adds_its_dimensions_to_the_rest_of_the_cone(t: int, d: int) -> None:
    k, n = 5, 40
    spanning = torch.linalg.qr(gaussian(d, k, 5))[0].T
    line = torch.cat([spanning, -spanning.sum(0, keepdim=True), gaussian(6, k, 6) @ spanning])
    x = gaussian(t, d) + 1.0
    x = torch.cat([x / x.norm(dim=1, keepdim=True), line])
    rays = Rays.of(x @ x.T)
    targets = rays.targets(gaussian(n, len(x), 4))
    found = project(rays, targets, torch.ones(n, len(x), dtype=torch.float64))
    assert found.residual < 1e-9
    assert rays.rank < len(x)

    coordinates = rays.coordinates
    across = torch.linalg.svd(coordinates[t:])[2][:k]
    outside = coordinates[:t] - coordinates[:t] @ across.T @ across
    rest = targets - targets @ across.T @ across
    pointed = Rays.of(outside @ outside.T)
    heights = rest @ (outside / outside.norm(dim=1, keepdim=True)).T
    ones = torch.ones(n, t, dtype=torch.float64)
    alone = project(pointed, pointed.spanned(heights), ones)
    along = (targets @ across.T).square().sum(1)
    torch.testing.assert_close(found.squared_norm, along + alone.squared_norm)
    torch.testing.assert_close(found.support, k + alone.support)


def dimension(x: Tensor, n: int, signs: Tensor | None = None) -> tuple[float, float, float, float]:
    """Statistical dimension of a cone by support count and by norm, each with standard error."""
    rays = Rays.of(x @ x.T)
    signs = torch.ones(n, len(x), dtype=torch.float64) if signs is None else signs
    found = project(rays, rays.targets(gaussian(n, len(x), 5)), signs)
    v, f = found.support, found.squared_norm
    return float(v.mean()), float(v.std()) / sqrt(n), float(f.mean()), float(f.std()) / sqrt(n)


def agrees(found: tuple[float, float, float, float], exact: float) -> bool:
    v, v_error, f, f_error = found
    return abs(v - exact) < 4 * v_error and abs(f - exact) < 4 * f_error


def harmonic(m: int) -> float:
    return sum(1 / k for k in range(1, m + 1))


@pytest.mark.parametrize("m", [50, 200])
def test_chamber_of_type_b(m: int) -> None:
    chamber = torch.tril(torch.ones(m, m, dtype=torch.float64))
    assert agrees(dimension(chamber, 2000), harmonic(m) / 2)


def test_cone_of_type_a_roots_and_its_polar_add_up_to_all_dimensions() -> None:
    m = 50
    roots = torch.eye(m, dtype=torch.float64)[:-1] - torch.eye(m, dtype=torch.float64)[1:]
    polar = -torch.linalg.pinv(roots).T
    first, second = dimension(roots, 2000), dimension(polar, 2000)
    assert agrees(first, m - harmonic(m))
    assert agrees(second, harmonic(m) - 1)


def test_dimensions_of_orthogonal_cones_add_up() -> None:
    wedge = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    one = dimension(wedge, 4000)
    three = dimension(torch.block_diag(wedge, wedge, wedge), 4000)
    assert agrees(three, 3 * wedge_dimension(pi / 4))
    assert agrees(one, wedge_dimension(pi / 4))


def wedge_dimension(angle: float) -> float:
    """1/2 for its two edges and angle / pi for its inside."""
    return 0.5 + angle / pi


@pytest.mark.parametrize("units", [20, 14])
def test_points_in_few_dimensions_follow_cover(units: int) -> None:
    p, n = 30, 3000
    signs = torch.from_numpy(RNG(6).choice([-1.0, 1.0], (n, p)))
    share = binom.sf(np.arange(units + 1) - 1, p - 1, 0.5)  # of dichotomies not separable
    exact = share[1:].sum() + (1 - share[units]) / 2
    assert agrees(dimension(gaussian(p, units), n, signs), exact)


def test_a_cone_is_a_subspace_where_nothing_is_separable() -> None:
    square = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    rays = Rays.of(square @ square.T)
    signs = torch.tensor([[1.0, 1, 1, 1], [1, 1, -1, -1], [1, 1, -1, 1]], dtype=torch.float64)
    assert spans_itself(rays, signs).tolist() == [True, False, False]
    halfspace = project(rays, rays.targets(gaussian(400, 4)), signs[2:].expand(400, -1))
    assert float(halfspace.full.double().mean()) == pytest.approx(0.5, abs=0.1)
    assert set(halfspace.support.tolist()) == {1.0, 2.0}


def test_targets_turn_with_the_rays_and_have_one_length() -> None:
    x, z = gaussian(7, 5), gaussian(50, 7, 8)
    turn = torch.linalg.qr(gaussian(5, 5, 9))[0]
    heights = []
    for points in (x, x @ turn):
        rays = Rays.of(points @ points.T)
        t = rays.targets(z)
        torch.testing.assert_close(t.norm(dim=1), torch.full((50,), sqrt(5), dtype=t.dtype))
        heights.append(t @ rays.coordinates.T)
    torch.testing.assert_close(*heights)
