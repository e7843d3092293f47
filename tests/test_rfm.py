"""Recursive Feature Machines against the algorithm as published, its symmetries and its peers."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyrich.errors import LazyrichError, MemoryRefused
from lazyrich.rfm import RFMClassifier, RFMRegressor
from lazyrich.rfm._fitting import rounds
from lazyrich.rfm._kernel import Kernel, fill, mirror, squared_distances
from lazyrich.rfm._machine import Metric
from lazyrich.rfm._outer_products import (
    Expansion,
    by_gradients,
    by_pairs,
    cheaper_way,
    outer_products,
)
from lazyrich.rfm._recipe import Recipe
from lazyrich.rfm._rows import Rows
from lazyrich.rfm._solvers import Nystrom
from oracles import recursive_feature_machine as oracle


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def slopes(z: Tensor, kernel: Kernel) -> Tensor:
    square = torch.empty(len(z), len(z), dtype=z.dtype)
    fill(square, z, kernel)
    return mirror(square)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("way", ["gradients", "pairs"])
def test_outer_products_are_those_of_autograd(exponent: float, center: bool, way: str) -> None:
    z, alpha = normal(14, 3), normal(14, 2, seed=1)
    z[5] = z[4]  # a point has no slope at itself, wherever it stands twice
    weights = normal(14, seed=2).abs()
    kernel = Kernel(1.7, exponent)
    wanted = oracle.agop(
        z, alpha, torch.eye(3, dtype=torch.float64), 1.7, exponent, weights, center
    )
    for diagonal in (False, True):
        found = outer_products(
            slopes(z, kernel), Expansion(z, alpha), weights, diagonal=diagonal, way=way
        ).mean(center=center)
        assert distance(found, wanted.diagonal() if diagonal else wanted) < 1e-12


@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-3)], ids=["f64", "f32"]
)
def test_both_ways_agree_over_blocks(dtype: torch.dtype, close: float) -> None:
    z, alpha = normal(1100, 4, dtype=dtype), normal(1100, 40, seed=1, dtype=dtype)
    weights = normal(1100, seed=2, dtype=dtype).abs()
    w, f = slopes(z, Kernel(3.0)), Expansion(z, alpha)
    one = by_gradients(lambda start, stop: w[start:stop], z, f, weights)
    other = by_pairs(w, f, weights)
    assert distance(other.total, one.total) < close
    assert distance(other.sums, one.sums) < close
    assert other.weight == one.weight


def test_the_cheaper_way_depends_on_inputs_times_outputs() -> None:
    assert cheaper_way(5000, 20, 1) == "gradients"
    assert cheaper_way(1000, 500, 10) == "pairs"


def test_one_square_holds_kernel_and_slopes() -> None:
    z = normal(700, 3)
    kernel = Kernel(1.3, 0.8)
    square = torch.empty(700, 700, dtype=torch.float64)
    fill(square, z, kernel)
    values, w = kernel.values_and_slopes(squared_distances(z, z))
    torch.testing.assert_close(square.tril(), values.tril())
    torch.testing.assert_close(square.triu(1), w.triu(1))
    torch.testing.assert_close(mirror(square), w)
    wanted = oracle.gram(z[:9], z[:9], torch.eye(3, dtype=torch.float64), 1.3, 0.8)
    torch.testing.assert_close(values[:9, :9], wanted, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equal_points_have_no_distance(dtype: torch.dtype) -> None:
    z = normal(50, 30, dtype=dtype) + 3
    squared = squared_distances(z[::2].clone(), z)
    assert bool((squared[range(25), range(0, 50, 2)] == 0).all())
    assert int((squared == 0).sum()) == 25


def machine(**options: Any) -> RFMRegressor:
    plain = {"selection": None, "normalize": None, "bandwidth": 3.0, "reg": 0.1, "iterations": 3}
    return RFMRegressor(**(plain | options))


def task(n: int = 24, d: int = 4, c: int = 2) -> tuple[Tensor, Tensor]:
    x = normal(n, d)
    return x, torch.stack([x[:, 0] * x[:, 1 + k] + k for k in range(c)], dim=1)


def fitted(x: Tensor, y: Tensor, weights: Tensor | None = None, **options: Any) -> RFMRegressor:
    return machine(**options).fit(x.numpy(), y.numpy(), weights)


def metric(of: RFMRegressor) -> Tensor:
    return torch.from_numpy(of.M_)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"exponent": 1.5},
        {"exponent": 2.0},
        {"exponent": 0.7, "normalize": "max"},
        {"normalize": "trace"},
        {"diagonal": True},
        {"center_gradients": True, "normalize": "trace"},
        {"device": "cpu"},
    ],
)
def test_three_rounds_are_those_of_the_slow_algorithm(options: dict[str, Any]) -> None:
    (x, y), new = task(), normal(9, 4, seed=3)
    found = fitted(x, y, **options)
    slow = {k: v for k, v in options.items() if k not in ("device", "center_gradients")}
    alpha, m = oracle.machine(
        x, y, bandwidth=3.0, reg=0.1, center="center_gradients" in options, **slow
    )[-1]
    assert distance(metric(found), m.diagonal() if "diagonal" in options else m) < 1e-8
    predicted = torch.from_numpy(found.predict(new.numpy()))
    wanted = oracle.gram(new, x, m, 3.0, options.get("exponent", 1.0)) @ alpha
    assert distance(predicted, wanted) < 1e-7


@pytest.mark.parametrize("center", [False, True])
def test_weights_and_repetitions_are_the_slow_algorithm_on_repeated_rows(center: bool) -> None:
    x, y = task(10)
    counts = torch.tensor([1, 2, 3, 1, 1, 2, 1, 1, 4, 1])
    repeated = [t.repeat_interleave(counts, dim=0) for t in (x, y)]
    _, m = oracle.machine(*repeated, bandwidth=3.0, reg=0.1, center=center)[-1]
    by_rows = fitted(*repeated, center_gradients=center)
    by_weights = fitted(x, y, counts.double(), center_gradients=center)
    assert distance(metric(by_rows), m) < 1e-8
    assert distance(metric(by_weights), metric(by_rows)) < 1e-12
    new = normal(9, 4, seed=3).numpy()
    assert np.allclose(by_rows.predict(new), by_weights.predict(new), rtol=0, atol=1e-12)


def test_rows_that_differ_in_targets_only_count_by_their_mean() -> None:
    x, y = task(10)
    _, m = oracle.machine(torch.cat([x, x]), torch.cat([y, -y / 2]), bandwidth=3.0, reg=0.1)[-1]
    assert distance(metric(fitted(torch.cat([x, x]), torch.cat([y, -y / 2]))), m) < 1e-8


def test_rows_of_weight_zero_are_not_there() -> None:
    x, y = task(20)
    weights = (torch.arange(20) % 3 > 0).double()
    some = fitted(x[weights > 0], y[weights > 0])
    assert torch.equal(metric(fitted(x, y, weights)), metric(some))


@pytest.mark.parametrize("selection", [None, "validation", "cv"])
def test_the_order_of_rows_does_not_matter(selection: str | None) -> None:
    x, y = task(40)
    order = torch.randperm(40)
    one, other = (fitted(x[o], y[o], selection=selection) for o in (slice(None), order))
    assert distance(metric(one), metric(other)) < 1e-12
    assert one.iteration_ == other.iteration_


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-9), ("float32", 2e-4)])
def test_a_shift_of_the_features_does_not_matter(dtype: str, close: float) -> None:
    x, y = task(60)
    one, other = fitted(x, y, dtype=dtype), fitted(x + 100, y, dtype=dtype)
    assert distance(metric(other), metric(one)) < close


@pytest.mark.parametrize("rule", [None, "trace", "max"])
def test_rotations_turn_the_metric_unless_the_largest_entry_scales_it(rule: str | None) -> None:
    x, y = task(60)
    q = torch.linalg.qr(normal(4, 4, seed=7))[0]
    one, turned = (fitted(rows, y, normalize=rule, iterations=2) for rows in (x, x @ q))
    change = distance(metric(turned), q.T @ metric(one) @ q)
    assert change > 1e-2 if rule == "max" else change < 1e-10


def test_mixtures_of_outputs_have_the_same_metric() -> None:
    x, y = task(60, c=3)
    q = torch.linalg.qr(normal(3, 3, seed=7))[0]
    for center in (False, True):
        one, mixed = (fitted(x, t, center_gradients=center) for t in (y, y @ q))
        assert distance(metric(mixed), metric(one)) < 1e-12


def test_scaled_targets_scale_the_first_agop() -> None:
    x, y = task(60)
    one, three = (metric(fitted(x, k * y, iterations=1)) for k in (1, 3))
    assert distance(three, 9 * one) < 1e-12
    one, three = (metric(fitted(x, k * y, normalize="trace")) for k in (1, 3))
    assert distance(three, one) < 1e-12
    assert float(one.trace()) == pytest.approx(4)


def test_constant_targets_leave_the_metric_as_it_is() -> None:
    x, y = task(20)
    found = fitted(x, torch.full_like(y, 2.0), center_targets=True)
    assert torch.equal(metric(found), torch.eye(4, dtype=torch.float64))
    assert np.allclose(found.predict(100 * x.numpy()), 2)
    assert np.allclose(fitted(x, y).predict(1e6 * x.numpy()), 0)


def test_centering_takes_the_linear_part_out() -> None:
    x = normal(400, 3)
    y = torch.stack([4 * x[:, 0], -4 * x[:, 0], x[:, 1].square()], dim=1)
    options = {"iterations": 1, "normalize": "trace", "bandwidth": 10.0, "reg": 1e-3}
    plain = metric(fitted(x, y, **options)).diagonal()
    centered = metric(fitted(x, y, center_gradients=True, **options)).diagonal()
    assert int(plain.argmax()) == 0
    assert int(centered.argmax()) == 1
    assert float(centered[0]) < 0.1 * float(centered[1])


def test_median_bandwidth_is_that_of_distances_in_the_metric() -> None:
    x, y = task(30)
    found = fitted(x, y, bandwidth="median")._tree.leaves[0].machine
    z = found.expansion.centers
    assert found.kernel.bandwidth == pytest.approx(
        float(torch.pdist(z).sort().values[torch.pdist(z).numel() // 2]), rel=0.01
    )
    scaled = fitted(1e-3 * x, y, bandwidth="median", normalize="trace")
    assert distance(metric(scaled), metric(fitted(x, y, bandwidth="median", normalize="trace"))) < (
        1e-9
    )


def test_landmarks_minimize_the_same_loss_over_fewer_functions() -> None:
    x, y = task(40)
    weights = normal(40, seed=5).abs()
    found = fitted(x, y, weights, landmarks=12, iterations=0)
    machine = found._tree.leaves[0].machine
    centers = machine.expansion.centers + torch.from_numpy(machine.mean)
    one = torch.eye(4, dtype=torch.float64)
    tall, square = (oracle.gram(rows, centers, one, 3.0, 1.0) for rows in (x, centers))
    normal_matrix = tall.T @ (weights[:, None] * tall) + 0.1 * square
    alpha = torch.linalg.solve(normal_matrix, tall.T @ (weights[:, None] * y))
    assert distance(machine.expansion.coefficients, alpha) < 1e-8
    for options in ({}, {"center_gradients": True}):
        found = fitted(x, y, weights, landmarks=12, iterations=1, **options)
        wanted = oracle.agop(x, alpha, one, 3.0, 1.0, weights, bool(options), centers)
        assert distance(metric(found), wanted) < 1e-8


def test_as_many_landmarks_as_rows_are_exact() -> None:
    x, y = task(40)
    assert torch.equal(metric(fitted(x, y, landmarks=40)), metric(fitted(x, y)))
    recipe = Recipe(bandwidth=3.0, reg=0.1)
    rows = Rows.merged(x.numpy(), y.numpy(), np.ones(40))
    solver = Nystrom(rows, recipe, 40)
    start = Metric.euclidean(4, diagonal=False, device=torch.device("cpu"))
    new = normal(9, 4, seed=3).numpy()
    wanted = fitted(x, y, iterations=0).predict(new)
    assert np.allclose(solver.solve(start)(new), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("bandwidth", [1.0, 30.0])
def test_landmarks_whose_kernel_is_singular(bandwidth: float) -> None:
    x, y = task(60)
    options = {"exponent": 2.0, "bandwidth": bandwidth, "iterations": 0, "reg": 1e-3}
    recipe = Recipe(**options)
    rows = Rows.merged(x.numpy(), y.numpy(), np.ones(60))
    start = Metric.euclidean(4, diagonal=False, device=torch.device("cpu"))
    new = normal(20, 4, seed=3).numpy()
    wanted = fitted(x, y, **options).predict(new)
    assert np.allclose(Nystrom(rows, recipe, 60).solve(start)(new), wanted, rtol=0, atol=1e-5)


def test_float32_goes_on_in_float64_where_it_fails() -> None:
    x, y = task(200)
    options = {"exponent": 2.0, "bandwidth": 10.0, "reg": 1e-7, "dtype": "float32"}
    found = fitted(x, y, **options)
    assert found._tree.leaves[0].machine.expansion.coefficients.dtype == torch.float64
    wanted = fitted(x, y, **(options | {"dtype": "float64"}))
    assert distance(metric(found), metric(wanted)) < 1e-6
    usual = fitted(x, y, dtype="float32")
    assert usual._tree.leaves[0].machine.expansion.coefficients.dtype == torch.float32
    with pytest.raises(LazyrichError, match="not positive definite in torch.float64: raise reg"):
        fitted(x, y, **(options | {"bandwidth": 1e3, "reg": 1e-18}))


@pytest.mark.parametrize("device", [None, "cpu"])
def test_the_square_is_refused_before_the_work(device: str | None) -> None:
    x, y = normal(500, 3), normal(500, 1)
    need = r"500 distinct rows in float64 need 0\.0\d+ GiB, and 0.001 GiB are allowed. Set landm"
    with pytest.raises(MemoryRefused, match=need):
        fitted(x, y, memory_limit=1e-3, device=device)
    fitted(x, y, memory_limit=2e-2, device=device, iterations=0)
    with pytest.raises(MemoryRefused, match="100 landmarks for 500 rows need"):
        fitted(x, y, memory_limit=1e-3, landmarks=100)


def test_noise_is_not_predicted() -> None:
    right = []
    for seed in range(10):
        x, new = normal(150, 20, seed=seed).numpy(), normal(100, 20, seed=100 + seed).numpy()
        labels = np.random.default_rng(seed).integers(0, 2, 250)
        found = RFMClassifier(random_state=seed).fit(x, labels[:150])
        right += list(found.predict(new) == labels[150:])
        assert abs(found.predict_proba(new).mean() - 0.5) < 0.1
    assert np.mean(right) == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(right)))


@pytest.mark.slow
def test_low_rank_polynomial_as_published() -> None:
    rng = np.random.default_rng(0)
    x, new = (rng.normal(scale=0.5, size=(4000, 20)) for _ in range(2))
    y, wanted = ((r[:, 0] * r[:, 1] * (r[:, 5] > 0))[:, None] for r in (x, new))
    recipe = Recipe(reg=1e-3, bandwidth=10.0, normalize=None, iterations=5, dtype="float64")
    machines = list(rounds(Rows.merged(x, y, np.ones(4000)), recipe))
    errors = [float(np.square(m(new) - wanted).mean()) for m in machines]
    published = [0.01229, 0.00630, 0.00317, 0.00235, 0.00209, 0.00200]
    assert errors == pytest.approx(published, rel=0.2)
    shares = machines[-1].metric.matrix.diagonal()
    assert set(shares.topk(3).indices.tolist()) == {0, 1, 5}
    assert float(shares.sort().values[-4] / shares.max()) < 0.002


def test_a_spurious_star_is_found() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(600, 12, 12)) / 2, rng.integers(0, 2, 600)
    side = np.where(labels == 1, 1.0, -1.0)
    star = np.zeros((12, 12), bool)
    star[1, 2] = star[2, 1:4] = star[3, 2] = True
    images[:, star] += side[:, None]
    images[:, 7:11, 7:11] += side[:, None, None] * rng.normal(size=(4, 4)) / 4
    found = RFMClassifier(selection=None, iterations=3).fit(images.reshape(600, -1), labels)
    shares = found.feature_importances_
    assert set(shares.argsort()[-5:]) == set(np.flatnonzero(star))
    assert shares[star.ravel()].sum() > 0.5  # five of 144 pixels
