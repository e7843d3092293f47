"""Manifold capacity and geometry: exact theory, the dense reference, conventions, odd data."""

import csv
import gc
import re
import weakref
from fnmatch import fnmatchcase
from math import atan, cos, isnan, pi, sin, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.optimize import nnls

import lazyrich as lz
from experiments import cifar_resnets
from experiments.data import data_folder
from lazyrich import CATALOGUE, Estimate, LazyrichError
from lazyrich.errors import Undefined, UnknownName
from lazyrich.measures._solvers import shared_solves
from lazyrich.measures.manifold_geometry import Conventions, SolvedManifolds, solve_manifolds
from lazyrich.statistics import Batch, Clouds
from oracles import capacity as dense, manifold_geometry as dense_geometry

try:
    data_folder()
    MISSING = ""
except FileNotFoundError as error:
    MISSING = str(error)


def real(test: Any) -> Any:
    return pytest.mark.data(pytest.mark.skipif(bool(MISSING), reason=MISSING)(test))


SHAPES = [
    "capacity",
    "manifold_dimension",
    "manifold_radius",
    "center_alignment",
    "axis_alignment",
    "center_axis_alignment",
]
RAW = {"labels": "uniform", "center": False, "points": 256, "classes": 100}


def clouds(x: Any, member: Any) -> Clouds:
    x, member = torch.as_tensor(x), torch.as_tensor(member)
    return Clouds.of(Batch(x, member.long(), None, torch.arange(len(x))))


def solved(x: Any, member: Any, *, seed: int = 0, **conventions: Any) -> SolvedManifolds:
    return solve_manifolds(clouds(x, member), conventions=Conventions(**conventions), seed=seed)


def exact_capacity(x: Any, member: Any, draws: int = 3000, **conventions: Any) -> tuple:
    """Capacity with its error by support count, and by the norm of projections."""
    chosen = Conventions(**(RAW | {"draws": draws} | conventions))
    found = shared_solves.capacities(clouds(x, member), chosen, 0)
    return found["capacity"][:2], found["by_norm"][:2]


def agrees(found: tuple, exact: float) -> bool:
    return all(abs(value - exact) < 4 * max(error, 1e-12) for value, error in found)


def orthogonal(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, n)))[0].T


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def classes(p: int, m: int, d: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """p Gaussian classes of m points, spread about their centers."""
    centers = normal(p, 1, d, seed=seed)
    points = centers + spread * normal(p, m, d, seed=seed + 1)
    return points.reshape(p * m, d), np.repeat(np.arange(p), m)


# Exact theory


def test_independent_points_have_capacity_two_however_they_correlate() -> None:
    x = normal(30, 60) + 3 * normal(1, 60, seed=1)
    assert agrees(exact_capacity(x, range(30)), 2)


@pytest.mark.parametrize("labels", ["uniform", "balanced", "one_vs_rest"])
def test_orthogonal_points_have_capacity_two_over_their_number(labels: str) -> None:
    lengths = np.random.default_rng(1).uniform(0.3, 3, 100)
    x = orthogonal(100, 150) * lengths[:, None]
    found = exact_capacity(x, np.repeat(np.arange(5), 20), labels=labels)
    assert agrees(found, 0.1)


@pytest.mark.parametrize("radius", [0.2, 1.0, 5.0])
def test_segments(radius: float) -> None:
    planes = orthogonal(20, 40).reshape(10, 2, 40)
    x = np.stack([planes[:, 0] + s * radius * planes[:, 1] for s in (1, -1)], 1).reshape(20, 40)
    exact = 1 / (0.5 + 2 / pi * atan(radius))
    assert agrees(exact_capacity(x, np.repeat(np.arange(10), 2)), exact)


def circles(radius: float, m: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Four circles, m points each, in spaces of their own."""
    frames = orthogonal(12, 30).reshape(4, 3, 30)
    angle = 2 * pi * np.arange(m) / m
    rim = np.cos(angle)[:, None, None] * frames[:, 1] + np.sin(angle)[:, None, None] * frames[:, 2]
    x = (frames[:, 0] + radius * rim).transpose(1, 0, 2).reshape(4 * m, 30)
    return x, np.repeat(np.arange(4), m)


def ball_capacity(radius: float, dimension: int) -> float:
    """1 / E |projection on the circular cone about a ball|^2, by quadrature."""
    chi, angle = stats.chi(dimension), atan(radius)

    def at(t: float) -> float:
        def inside(x: float) -> float:
            return float((x * x + t * t) * stats.norm.pdf(x))

        def outside(x: float) -> float:
            return float((x * cos(angle) + t * sin(angle)) ** 2 * stats.norm.pdf(x))

        first = integrate.quad(inside, t / radius, np.inf)[0]
        return first + integrate.quad(outside, -t * radius, t / radius)[0]

    ends = max(0, chi.ppf(1e-12)), chi.ppf(1 - 1e-12)
    return 1 / integrate.quad(lambda t: at(t) * chi.pdf(t), *ends, limit=200)[0]


def test_balls_of_radius_one() -> None:
    for dimension in (1, 2, 5, 10):
        assert ball_capacity(1, dimension) == pytest.approx(2 / (dimension + 1))


@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0])
def test_circles_lie_between_the_discs_inside_and_around(radius: float) -> None:
    m = 64
    low, high = ball_capacity(radius, 2), ball_capacity(radius * cos(pi / m), 2)
    for value, error in exact_capacity(*circles(radius, m), draws=2000):
        assert low - 4 * error < value < high + 4 * error


def ball_radius(radius: float, dimension: int) -> float:
    """R_M of a ball whose anchors follow the support function, by quadrature."""
    chi = stats.chi(dimension)

    def parts(t: float) -> tuple[float, float]:
        outside = 1 - stats.norm.sf(t / radius)
        q = radius**2
        c, rest = t * t * q / (1 + q) * outside, t * t / (1 + q) * outside

        def within(x: float, power: int) -> float:
            q = (t / x) ** 2
            return float(t * t * q**power / (1 + q) * stats.norm.pdf(x))

        c += integrate.quad(within, t / radius, np.inf, args=(1,))[0]
        rest += integrate.quad(within, t / radius, np.inf, args=(0,))[0]
        return c, rest

    ends = max(1e-9, chi.ppf(1e-10)), chi.ppf(1 - 1e-10)
    c, rest = (
        integrate.quad(lambda t, i=i: parts(t)[i] * chi.pdf(t), *ends, limit=200)[0] for i in (0, 1)
    )
    return sqrt(c / rest)


@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0])
def test_dimension_and_radius_of_circles(radius: float) -> None:
    chosen = Conventions(**RAW, anchors="support", draws=2000)
    found = shared_solves.shapes(clouds(*circles(radius)), chosen, 0)
    dimension, size = found["dimension"], found["radius"]
    assert abs(dimension.value - 2) < 4 * dimension.standard_error
    # 64 points on a circle of that radius: up to a thousandth smaller
    exact = ball_radius(radius, 2)
    assert abs(size.value - exact) < 4 * size.standard_error + 2e-3 * exact


def simplex(p: int) -> np.ndarray:
    return np.eye(p) - 1 / p


@pytest.mark.parametrize(("p", "dimension"), [(2, 0.75), (3, 1.375), (10, 4.99902)])
def test_centered_simplex(p: int, dimension: float) -> None:
    found = exact_capacity(simplex(p), range(p))
    assert agrees(found, p / dimension)


@pytest.mark.parametrize(
    ("p", "capacity", "slack"), [(2, 4.0, 0.0), (3, 2.575, 0.004), (10, 1.429, 0.002)]
)
def test_centered_simplex_one_against_the_rest(p: int, capacity: float, slack: float) -> None:
    for value, error in exact_capacity(simplex(p), range(p), labels="one_vs_rest"):
        assert abs(value - capacity) <= 4 * error + slack + 1e-12


def test_points_without_structure_have_capacity_two_over_their_number() -> None:
    m = 50
    needed = [
        1 / solved(normal(2 * m, 4 * m, seed=s), np.repeat([0, 1], m), **RAW).values["capacity"][0]
        for s in range(8)
    ]
    assert abs(np.mean(needed) - m / 2) < 4 * np.std(needed) / sqrt(8)


def test_two_estimators_expect_the_same() -> None:
    for data in (circles(1.0), classes(5, 12, 40, 0.8), (simplex(10), np.arange(10))):
        (s,) = shared_solves.solutions(clouds(*data), Conventions(**RAW, draws=1000), 0)
        assert 0 < abs(s.self_check) < 4


def separable(signed: np.ndarray) -> bool:
    """Whether some vector has a positive product with every row: else 0 is in their hull."""
    rows = np.vstack([signed.T, np.ones(len(signed))])
    return nnls(rows, np.append(np.zeros(signed.shape[1]), 1.0), maxiter=9999)[1] > 1e-9


def test_simulated_capacity_and_curve_equal_brute_force() -> None:
    p, m, repeats = 5, 5, 300
    x, member = classes(p, m, 40, 0.8)
    s = solved(x, member, **RAW, draws=4000)
    rng = np.random.default_rng(3)
    share = []
    for n in range(1, p * m + 1):
        hits = 0
        for _ in range(repeats):
            signs = rng.choice([-1.0, 1.0], p)[member]
            hits += separable(signs[:, None] * (x @ rng.standard_normal((40, n))))
        share.append(hits / repeats)
    share = np.array(share)
    error = np.sqrt((share * (1 - share)).clip(1 / repeats) / repeats)
    assert np.abs(s.separability[1:] - share).max() < 0.1
    assert (np.abs(s.separability[1:] - share) < 4.5 * error + 0.02).all()
    needed, simulated = (1 - share).sum(), s.values["simulated"]
    spread = sqrt((share * (1 - share)).sum() / repeats)
    exact = p / simulated.value
    assert abs(needed - exact) < 4 * (spread + exact / simulated.value * simulated.standard_error)
    assert p / simulated.value == pytest.approx(p / s.values["capacity"].value - 0.5, rel=1e-4)


def test_separability_of_independent_points_is_that_of_cover() -> None:
    p = 10
    data = clouds(normal(p, 30), range(p))
    share = shared_solves.separability(data, Conventions(**RAW, draws=4000), 0)
    exact = stats.binom.cdf(np.arange(p + 1) - 1, p - 1, 0.5)
    np.testing.assert_allclose(share, exact, atol=0.05)
    assert share[0] == 0 and (np.diff(share) >= 0).all()


def test_no_simulated_capacity_where_one_dimension_is_always_enough() -> None:
    records = measured(simplex(2), [0, 1], "simulated_capacity", labels="one_vs_rest", bias=0.0)
    assert records[0].status == "undefined"
    assert records[0].note == "separable in every number of dimensions"


def test_ground_truth_moves_capacity_as_published() -> None:
    """Spheres of Chou et al. 2025, appendix B.5: signs of the effect of each property."""

    def capacity(d: int, r: float, shared_center: float = 0, shared_axes: float = 0) -> float:
        p, m, n = 4, 40, 300
        draw = np.random.default_rng(7).standard_normal
        axes, center = draw((p, d, n)), draw((p, n))
        axes = sqrt(1 - shared_axes) * axes + sqrt(shared_axes) * axes[:1]
        center = sqrt(1 - shared_center) * center + sqrt(shared_center) * center[:1]
        s = draw((p, m, d))
        s /= np.linalg.norm(s, axis=2, keepdims=True)
        x = (center[:, None] + r * s @ axes).reshape(p * m, n)
        return solved(x, np.repeat(np.arange(p), m), **RAW, draws=400).values["capacity"].value

    base = capacity(4, 1.0)
    assert capacity(8, 1.0) < 0.9 * base
    assert capacity(4, 2.0) < 0.9 * base
    assert capacity(4, 1.0, shared_center=0.8) < 0.95 * base
    assert capacity(4, 1.0, shared_axes=0.8) > 1.05 * base


# The dense reference


@pytest.mark.parametrize("spread", [0.05, 1.0])
@pytest.mark.parametrize(
    "conventions",
    [
        {},
        {"labels": "uniform", "anchors": "support", "alignment": "product"},
        {"labels": "one_vs_rest", "radius": "mean_of_ratios"},
        {"labels": "one_vs_rest", "anchors": "drop", "bias": 0.5, "center": False},
        {"labels": "uniform", "anchors": "support", "radius": "mean_of_ratios", "bias": 2.0},
        {"labels": ((1, 1, -1, -1), (1, -1, -1, -1)), "center": False, "anchors": "drop"},
    ],
)
def test_equals_the_dense_reference(conventions: dict, spread: float) -> None:
    x, member = classes(4, 9, 50, spread)
    chosen = Conventions(**conventions, draws=100)
    s = solve_manifolds(clouds(x, member), conventions=chosen)
    assert s.residual < 1e-9
    reference = dense.solve(x, member, chosen)
    shapes = dense_geometry.shapes(reference)
    for name, expected in zip(
        ("dimension", "radius", "center", "axis", "center_axis"), shapes, strict=True
    ):
        assert s.values[name].value == pytest.approx(expected, rel=1e-8, abs=1e-10), name
    capacity = dense.capacity(x, member, None, chosen)
    assert s.values["capacity"].value == pytest.approx(capacity, rel=1e-12)


def test_matrices_are_of_classes_in_the_order_of_their_labels() -> None:
    x, member = classes(4, 9, 50, 1.0)
    labels = np.array([7, 3, 30, 5])[member]
    s = solved(x, labels, center=False)
    assert s.classes.tolist() == [3, 5, 7, 30]
    means = np.stack([x[labels == c].mean(0) for c in s.classes.tolist()])
    cosines = np.corrcoef(means)  # means of their units are nearly zero
    apart = ~np.eye(4, dtype=bool)
    assert np.corrcoef(s.centers.numpy()[apart], cosines[apart])[0, 1] > 0.9
    np.testing.assert_allclose(s.centers.diagonal(), 1)
    np.testing.assert_allclose(s.axes, s.axes.T, atol=1e-12)
    for name, matrix in (
        ("center", s.centers.abs()),
        ("axis", s.axes_absolute),
        ("center_axis", s.center_axes_absolute),
    ):
        assert s.values[name].value == pytest.approx(float(matrix[apart].mean()), rel=0.1)
    assert bool((s.axes.abs() <= s.axes_absolute + 1e-12).all())


def test_values_by_class_make_up_those_of_manifolds_by_themselves() -> None:
    x, member = classes(4, 9, 50, np.array([0.1, 0.5, 1, 2]).repeat(9).reshape(4, 9, 1))
    options = {"center": False, "anchors": "support"}
    s = solved(x, member, **options)
    records = measured(x, member, "single_*", **options)
    capacity, dimension, radius = (
        next(r.value for r in records if r.measure == f"single_manifold_{name}")
        for name in ("capacity", "dimension", "radius")
    )
    assert dimension == pytest.approx(np.mean([c["dimension"].value for c in s.single]))
    assert radius == pytest.approx(np.mean([c["radius"].value for c in s.single]))
    needed = sum(1 / c["capacity"].value for c in s.single) / 4
    assert capacity == pytest.approx(1 / needed, rel=1e-3)
    sizes = [c["radius"].value for c in s.single]
    assert sizes == sorted(sizes)


# Conventions


class Found(NamedTuple):
    """A measure's value as a record would show it."""

    measure: str
    estimator: str
    value: float
    note: str
    status: str
    standard_error: float | None
    null: float | None


def measured(
    x: Any, member: Any, names: str | list[str], seed: int = 0, **conventions: Any
) -> list[Found]:
    patterns = [names] if isinstance(names, str) else names
    data, found = clouds(x, member), []
    for m in CATALOGUE.values():
        if any(fnmatchcase(m.name, p) for p in patterns):
            m = m.using(conventions=Conventions(**conventions), seed=seed)
            value, defined = m.evaluate(data)
            value = Estimate(value[50]) if isinstance(value, dict) else value
            status = ("caution" if value.caution else "ok") if defined else "undefined"
            error, null = value.standard_error, value.null
            row = Found(m.name, m.conventions, value.value, value.note, status, error, null)
            found.append(row)
    return found


def values(found: list[Found]) -> list[float]:
    return [f.value for f in found]


@pytest.mark.parametrize(
    ("option", "measure"),
    [
        ({"labels": "uniform"}, "capacity"),
        ({"labels": "one_vs_rest"}, "capacity"),
        ({"labels": ((1, 1, -1, -1, -1), (1, -1, 1, -1, 1))}, "capacity"),
        ({"center": False}, "center_alignment"),
        ({"bias": 1.0}, "center_alignment"),
        ({"anchors": "support"}, "manifold_radius"),
        ({"anchors": "drop"}, "manifold_radius"),
        ({"radius": "mean_of_ratios"}, "manifold_radius"),
        ({"alignment": "product"}, "axis_alignment"),
        ({"points": 8}, "capacity"),
        ({"classes": 3}, "capacity"),
        ({"draws": 60}, "capacity"),
        ({"points": 6, "repeats": 2}, "capacity"),
    ],
)
def test_every_convention_changes_the_value_and_is_stated(option: dict, measure: str) -> None:
    x, member = classes(5, 12, 40, 0.2)
    base = {"labels": "one_vs_rest"} if "anchors" in option else {}
    plain = measured(x, member, measure, **base)[0]
    changed = measured(x, member, measure, **base, **option)[0]
    assert changed.value != pytest.approx(plain.value, rel=1e-6)
    assert changed.estimator != plain.estimator
    assert str(Conventions(**base, **option)) in changed.estimator


def test_the_seed_draws() -> None:
    x, member = classes(4, 10, 30, 1.0)
    one, two, again = (measured(x, member, "capacity", seed=s)[0] for s in (1, 2, 1))
    assert one.value == again.value != two.value
    assert abs(one.value - two.value) < 5 * (one.standard_error + two.standard_error)


def test_one_class_against_the_rest_needs_its_bias() -> None:
    x, member = classes(10, 20, 400, 1.0)
    without = measured(x, member, "capacity", labels="one_vs_rest", bias=0.0)[0]
    biased = measured(x, member, "capacity", labels="one_vs_rest")[0]
    assert biased.value > 1.5 * without.value
    assert without.status == "caution" and "hardly touched" in without.note
    assert "bias 1" in biased.estimator and "hardly touched" not in biased.note


def test_balanced_labels_hardly_depend_on_the_origin() -> None:
    x, member = classes(10, 20, 400, 1.0)
    x = x + 3 * normal(400, seed=9)
    settings = [{}, {"bias": 1.0}, {"center": False}]
    found = [measured(x, member, "capacity", **s)[0] for s in settings]
    for other in found[1:]:
        assert other.value == pytest.approx(found[0].value, rel=0.05)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"labels": "ovr"}, UnknownName, "no convention for labels matches 'ovr'. Nearest:"),
        ({"anchors": "nan"}, UnknownName, "no convention for anchors matches 'nan'"),
        ({"radius": "mean"}, UnknownName, "convention for radius.*mean_of_ratios"),
        ({"labels": ((1, 2), (1, -1))}, LazyrichError, "rows of 1 and -1"),
        ({"labels": ((1, -1, 1), (1, -1))}, LazyrichError, "one side for each class"),
        ({"points": 0}, LazyrichError, "points=0: 1 or more are needed"),
        ({"classes": 1}, LazyrichError, "classes=1: 2 or more"),
        ({"draws": 10}, LazyrichError, "draws=10: 20 or more"),
        ({"points": 100, "repeats": 3}, LazyrichError, "3 x 100 points a class, and 256 are kept"),
    ],
)
def test_conventions_that_make_no_sense_are_refused(
    options: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        Conventions(**options)


def test_dichotomies_must_fit_the_classes() -> None:
    with pytest.raises(LazyrichError, match="each dichotomy has 2 sides, and there are 3 classes"):
        solved(normal(9, 20), np.arange(9) % 3, labels=((1, -1),))


def test_dichotomies_may_come_as_lists() -> None:
    assert Conventions(labels=[[1, -1]]) == Conventions(labels=((1, -1),))
    assert str(Conventions(labels=[[1, -1]])).startswith("1 given labels")


# Errors and nulls


def test_intervals_cover_and_the_bias_is_gone() -> None:
    x, member = classes(4, 12, 60, 0.6)
    data = clouds(x, member)

    def sampled(draws: int, seed: int) -> dict:
        asked = data, Conventions(draws=draws), seed
        return shared_solves.shapes(*asked) | shared_solves.capacities(*asked)

    truth = sampled(8000, 99)
    covered, corrected = [], []
    for seed in range(40):
        found = sampled(100, seed)
        for name in ("capacity", "dimension", "radius", "axis"):
            low, high = found[name][2:]
            covered.append(low < truth[name].value < high)
        corrected.append(found["dimension"].value)
    assert np.mean(covered) > 0.88
    assert np.mean(corrected) == pytest.approx(truth["dimension"].value, rel=0.015)


def test_repeats_over_subsamples_show_what_points_do() -> None:
    x, member = classes(4, 100, 60, 1.0)
    once = solved(x, member, points=20).values["capacity"]
    four = solved(x, member, points=20, repeats=4).values["capacity"]
    assert abs(once.value - four.value) < 0.1 * once.value
    assert four.high - four.low < once.value
    each = [
        s.capacities()["capacity"]
        for s in shared_solves.solutions(clouds(x, member), Conventions(points=20, repeats=4), 0)
    ]
    assert four.standard_error == pytest.approx(np.std(each, ddof=1) / 2, rel=0.3)
    with pytest.raises(
        Undefined, match="4 repeats of 30 points are asked for, and class 0 has 100"
    ):
        solved(x, member, points=30, repeats=4)


def test_the_null_is_the_capacity_of_shuffled_labels() -> None:
    m = 20
    x, member = classes(5, m, 200, 0.3)
    found = measured(x, member, "capacity")[0]
    shuffled = measured(x, np.random.default_rng(0).permutation(member), "capacity")[0]
    assert found.value > 3 * found.null
    assert found.null == pytest.approx(shuffled.value, rel=0.1)
    noise = measured(*classes(5, m, 200, 100.0), "capacity")[0]
    assert noise.null == pytest.approx(noise.value, rel=0.1) == pytest.approx(2 / m, rel=0.2)


def test_the_null_of_single_manifolds_is_that_of_shuffled_labels() -> None:
    x, member = classes(5, 20, 200, 0.3)
    found = measured(x, member, "single_manifold_capacity")[0]
    mixed = np.random.default_rng(0).permutation(member)
    shuffled = measured(x, mixed, "single_manifold_capacity")[0]
    assert found.value > 2 * found.null
    assert found.null == pytest.approx(shuffled.value, rel=0.1)
    assert shuffled.null == pytest.approx(shuffled.value, rel=0.1)


def test_identities_hold_for_the_records() -> None:
    x, member = classes(6, 15, 80, 0.7)
    names = ["capacity", "manifold_dimension", "manifold_radius", "approximate_capacity", "utility"]
    found = {f.measure: f.value for f in measured(x, member, names)}
    capacity, dimension, radius, approximate, utility = (found[name] for name in names)
    assert approximate == pytest.approx((1 + radius**-2) / dimension, rel=1e-12)
    assert utility == pytest.approx(capacity / approximate, rel=1e-12)


def test_a_failed_self_check_or_an_inexact_projection_is_a_caution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_solves.Solution, "self_check", -4.3)
    monkeypatch.setattr(shared_solves, "_ACCURATE", 0.0)
    found = measured(*classes(3, 50, 60, 1.0), "capacity")[0]
    assert found.status == "caution"
    assert "two estimators of capacity differ by -4.3 errors" in found.note
    assert re.search("projections are accurate to .e-1[4-6] only", found.note)


# Invariances


@pytest.mark.parametrize("labels", ["balanced", "uniform", "one_vs_rest"])
def test_nothing_but_geometry_counts(labels: str) -> None:
    x, member = classes(5, 12, 40, 0.8)
    order = np.random.default_rng(4).permutation(len(x))
    names = np.array([3, 9, 1, 0, 7])
    moved = {
        "rows": (x[order], member[order]),
        "names": (x, names[member]),
        "rotation": (x @ orthogonal(40, 40), member),
        "scale": (1e-5 * x, member),
        "shift": (x + 5, member),
        "silent units": (np.hstack([x, np.zeros((60, 3))]), member),
    }
    base = solved(x, member, labels=labels).values
    for move, data in moved.items():
        found = solved(*data, labels=labels).values
        for name, value in base.items():
            assert found[name].value == pytest.approx(value.value, rel=1e-9, abs=1e-12), move


def test_each_manifold_may_have_a_scale_of_its_own() -> None:
    x, member = classes(5, 12, 40, 0.8)
    squares = [(x[member == i] ** 2).sum() for i in range(5)]
    scale = np.empty(5)
    scale[np.argsort(squares)] = [0.3, 0.7, 1, 2, 5]  # keeps the order of lengths
    first = solved(x, member, center=False).values
    second = solved(x * scale[member][:, None], member, center=False).values
    for name, value in first.items():
        assert second[name].value == pytest.approx(value.value, rel=1e-9, abs=1e-12)


# Odd data


def test_two_classes() -> None:
    found = measured(*classes(2, 30, 100, 1.0), [*SHAPES, "utility"])
    assert all(np.isfinite(r.value) for r in found)
    capacity = solved(simplex(2), [0, 1]).values["capacity"]
    assert capacity.value == pytest.approx(4, rel=0.2)


def test_classes_of_unequal_size_and_of_one_point() -> None:
    x, member = classes(4, 30, 100, 0.7)
    keep = np.concatenate([np.flatnonzero(member == i)[:n] for i, n in enumerate((1, 5, 12, 30))])
    found = measured(x[keep], member[keep], SHAPES)
    for r in found:
        assert np.isfinite(r.value) and r.status == "caution"
        assert "classes have 1 to 30 points, and capacity depends on their number" in r.note
    points = measured(normal(6, 20), range(6), SHAPES)
    assert all(np.isfinite(values(points)))


def test_fewer_points_than_asked_for_is_a_caution() -> None:
    x, member = classes(3, 20, 60, 0.7)
    note = measured(x, member, "capacity")[0].note
    assert "20 points a class where 50 were asked for" in note
    assert measured(x, member, "capacity", points=20)[0].status == "ok"


def test_more_classes_than_asked_for() -> None:
    x, member = classes(12, 8, 60, 0.7)
    found = measured(x, member, "capacity", classes=5, points=8)[0]
    assert "5 of 12 classes of 8 points" in found.note
    repeats = shared_solves.solutions(
        clouds(x, member), Conventions(classes=5, points=4, repeats=2), 0
    )
    first, second = (set(s.manifolds.classes.tolist()) for s in repeats)
    assert not first & second


def test_points_that_repeat_others_change_nothing() -> None:
    x, member = classes(4, 10, 60, 0.7)
    once = solved(x, member)
    twice = solved(np.vstack([x, x]), np.hstack([member, member]))
    for name, value in once.values.items():
        assert twice.values[name].value == pytest.approx(value.value, rel=1e-9, abs=1e-12)
    assert "40 points are at the origin or repeat others" in twice.facts
    assert twice.sizes.tolist() == [20] * 4


def test_points_at_the_origin_count_for_nothing() -> None:
    x, member = classes(3, 10, 40, 0.7)
    x[[0, 15]] = 0
    found = solved(x, member, center=False)
    assert "2 points are at the origin or repeat others" in found.facts
    without = np.delete(np.arange(30), [0, 15])
    bare = solved(x[without], member[without], center=False)
    assert found.values["capacity"].value == pytest.approx(bare.values["capacity"].value)
    x[member == 1] = 0
    with pytest.raises(Undefined, match="all points of class 1 are at the origin"):
        solved(x, member, center=False)


def test_points_without_a_label_are_left_out() -> None:
    x, member = classes(3, 10, 40, 0.7)
    torn = np.concatenate([member, np.full(5, -100)])
    found = solved(np.vstack([x, 9 * normal(5, 40)]), torn)
    assert found.values == solved(x, member).values


def test_more_points_than_dimensions() -> None:
    found = solved(*classes(5, 30, 12, 0.2), labels="one_vs_rest")
    assert found.values["capacity"].value > 5 / 12
    assert isnan(found.values["capacity"].value) is False and not found.missing
    assert found.residual < 1e-9


def test_data_that_nothing_separates() -> None:
    x, member = classes(4, 40, 5, 3.0)
    found = measured(x, member, [*SHAPES, "simulated_capacity", "separability_curve"])
    by_name = {r.measure: r for r in found}
    assert by_name["capacity"].value == pytest.approx(4 / 5, rel=1e-9)
    assert by_name["capacity"].status == "caution"
    assert "100% of the targets lie inside their cone" in by_name["capacity"].note
    assert "capacity cannot fall below 0.8" in by_name["capacity"].note
    assert by_name["simulated_capacity"].value == pytest.approx(4 / 5, rel=1e-9)
    for name in ("manifold_dimension", "axis_alignment"):
        assert by_name[name].status == "undefined"
        assert "5 dimensions are too few to separate so many points" in by_name[name].note
    assert "hardly any dichotomy is separable" in by_name["separability_curve"].note
    s = solved(x, member)
    assert s.full == 1 and s.missing and s.centers is None
    assert {"capacity", "simulated"} <= set(s.values) and "dimension" not in s.values


def test_collapsed_classes_are_points_under_zero_anchors() -> None:
    x, member = classes(6, 20, 60, 1e-4)
    found = solved(x, member, labels="uniform", center=False).values
    assert found["capacity"].value == pytest.approx(2, rel=0.1)
    assert found["dimension"].value == pytest.approx(1, rel=0.05)
    assert found["radius"].value == pytest.approx(1, rel=0.05)
    touching = solved(x, member, labels="uniform", center=False, anchors="support").values
    assert touching["radius"].value < 0.01
    inactive = solved(x, member, labels="uniform", center=False).inactive
    assert float(inactive.mean()) == pytest.approx(0.5, abs=0.1)


def test_fewer_than_two_classes_or_no_variation_is_undefined() -> None:
    with pytest.raises(Undefined, match="needs two classes or more, saw 1"):
        solved(normal(9, 3), np.zeros(9))
    with pytest.raises(Undefined, match="the same for every sample"):
        solved(np.ones((9, 3)), np.arange(9) % 3)


# Sharing


def test_measures_of_one_call_share_one_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = shared_solves.solution
    monkeypatch.setattr(shared_solves, "solution", lambda *a: calls.append(a) or real(*a))
    measured(*classes(3, 10, 20, 0.8), ["capacity", "simulated*", "manifold_*", "utility"])
    assert len(calls) == 1


def test_solves_are_forgotten_with_their_clouds() -> None:
    c = clouds(*classes(3, 10, 20, 0.8))
    solution = weakref.ref(shared_solves.solutions(c, Conventions(), 0)[0])
    assert solution() is shared_solves.solutions(c, Conventions(), 0)[0]
    assert shared_solves.solutions(c, Conventions(), 1)[0] is not solution()
    del c
    gc.collect()
    assert solution() is None


def test_half_precision_activations() -> None:
    x, member = classes(4, 12, 60, 0.7)
    exact = solved(x, member).values
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 0.02), (torch.bfloat16, 0.05)):
        found = solved(torch.as_tensor(x).to(dtype), member).values
        for name in ("capacity", "dimension", "radius", "axis"):
            assert found[name].value == pytest.approx(exact[name].value, rel=tolerance)


# Real networks and published tables


STAGES = ["layer1", "layer2", "layer3"]
PINNED = {
    "capacity": {
        20: (0.0461, 0.0504, 0.1046),
        32: (0.0476, 0.0511, 0.1184),
        44: (0.0478, 0.0516, 0.1200),
        56: (0.0470, 0.0516, 0.1226),
    },
    "manifold_dimension": {
        20: (24.92, 22.64, 7.145),
        32: (22.22, 22.27, 6.736),
        44: (22.49, 22.50, 7.170),
        56: (23.19, 22.21, 7.064),
    },
    "manifold_radius": {
        20: (1.199, 1.147, 0.844),
        32: (1.160, 1.138, 0.820),
        44: (1.165, 1.136, 0.821),
        56: (1.179, 1.134, 0.814),
    },
    "axis_alignment": {
        20: (0.0464, 0.0421, 0.0817),
        32: (0.0568, 0.0424, 0.0801),
        44: (0.0552, 0.0415, 0.0774),
        56: (0.0529, 0.0419, 0.0746),
    },
}


@real
@pytest.mark.slow
@pytest.mark.parametrize("depth", [20, 32, 44, 56])
def test_capacity_of_a_trained_network_rises_from_stage_to_stage(depth: int) -> None:
    """A ResNet on CIFAR-10, 10 classes of 50 test images, whole maps."""
    records = lz.measure(
        cifar_resnets.resnet(depth),
        cifar_resnets.Images(700, 350),
        list(PINNED),
        layers=STAGES,
        view="flatten",
        progress=False,
    )
    for name, pinned in PINNED.items():
        found = [records.where(measure=name, layer=layer)[0] for layer in STAGES]
        for r, value in zip(found, pinned[depth], strict=True):
            assert r.status == "ok" and r.d in (16384, 8192, 4096)
            assert r.low < r.value < r.high
            assert abs(r.value - value) < 2 * r.standard_error
    first, second, third = (records.where(measure="capacity", layer=layer)[0] for layer in STAGES)
    assert first.high < second.low and second.high < third.low
    for r in (first, second, third):
        assert r.null == pytest.approx(0.04, rel=0.03)


@real
def test_identities_of_the_tables_that_the_authors_published() -> None:
    vgg = table("glue_official_cifar100_vgg11.csv")
    np.testing.assert_allclose(vgg["R_M_cor"], vgg["R_raw_M_cor"] / vgg["ell_M_cor"], rtol=1e-9)
    assert all(vgg[f"cor_{name}"].max() <= 1 for name in ("axes", "center", "center_axes"))
    ood = table("glue_official_ood_fig3.csv")
    assert ood["center_axis_alignment_id"].max() > 1, "which no mean of cosines can be"
    for part in ("train", "id", "ood"):
        capacity, dimension, radius, utility = (
            ood[f"{name}_{part}"] for name in ("capacity", "dimension", "radius", "utility")
        )
        # means over repeats, so that the identity holds about and not exactly
        ratio = utility * (1 + radius**-2) / dimension / capacity
        assert np.median(ratio) == pytest.approx(1, abs=0.006)
        assert np.quantile(np.abs(ratio - 1), 0.95) < 0.04


def table(name: str) -> dict[str, np.ndarray]:
    with (data_folder() / name).open() as file:
        rows = list(csv.DictReader(file))
    return {
        k: np.array([float(r[k]) for r in rows]) for k in rows[0] if k not in ("arch_name", "layer")
    }
