"""Two representations of the same samples: the laws of their sums, and the formulas on n x n."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from test_statistics import assert_same

from lazyrich import CATALOGUE, Estimate
from lazyrich.errors import MissingInput
from lazyrich.statistics import Batch, CrossMoments, FourthMoments, PairMoments, total
from oracles.cka import cka as cka_by_kernels
from oracles.procrustes import procrustes as procrustes_by_scipy

KINDS = [CrossMoments, PairMoments]
OFFSETS = [0.0, 1e3, -1e4, 1e6]
every_kind = pytest.mark.parametrize("kind", KINDS)
sizes = st.lists(st.integers(1, 9), min_size=3, max_size=5)


def pair(n: int, seed: int, offset: float = 0.0, dtype: torch.dtype = torch.float64) -> Batch:
    """Two correlated clouds of 3 and 2 units, skewed so that no odd sum is zero."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64)
    y = x[:, :2].square() + torch.randn(n, 2, generator=g, dtype=torch.float64)
    return Batch((x + offset).to(dtype), other=(y - offset / 2).to(dtype))


@every_kind
@given(sizes=sizes, offset=st.sampled_from(OFFSETS))
@settings(max_examples=25, deadline=None)
def test_of_a_concatenation_is_the_sum(kind: type, sizes: list[int], offset: float) -> None:
    parts = [pair(n, i, offset) for i, n in enumerate(sizes)]
    tolerance = 1e-12 * max(1.0, abs(offset))
    assert_same(total(map(kind.of, parts)), kind.of(Batch.cat(parts)), tolerance)


@every_kind
@given(sizes=sizes, offset=st.sampled_from(OFFSETS))
@settings(max_examples=25, deadline=None)
def test_addition_is_associative(kind: type, sizes: list[int], offset: float) -> None:
    a, b, c = (kind.of(pair(n, i, offset)) for i, n in enumerate(sizes[:3]))
    assert_same((a + b) + c, a + (b + c), 1e-12 * max(1.0, abs(offset)))


@every_kind
def test_an_empty_batch_adds_nothing(kind: type) -> None:
    whole, nothing = kind.of(pair(9, 0)), kind.of(pair(0, 0))
    assert_same(nothing + whole, whole, 1e-12)
    assert_same(whole + nothing, whole, 1e-12)


@every_kind
def test_swapping_is_putting_the_second_first(kind: type) -> None:
    b = pair(20, 0)
    assert_same(kind.of(b).swapped, kind.of(Batch(b.other, other=b.x)), 1e-12)


@every_kind
def test_one_representation_is_not_enough(kind: type) -> None:
    with pytest.raises(MissingInput, match=r"brings one.*lz\.compare"):
        kind.of(Batch(torch.ones(3, 2)))


def test_every_sum_is_that_of_the_rows() -> None:
    parts = [pair(n, n, 100.0) for n in (7, 1, 30)]
    found = total(map(CrossMoments.of, parts))
    whole = Batch.cat(parts)
    x, y = (a.numpy() - a.numpy().mean(0) for a in (whole.x, whole.other))
    a, b = (x**2).sum(1), (y**2).sum(1)
    for value, wanted in (
        (found.cross, x.T @ y),
        (found.x_squares, a.sum()),
        (found.y_squares, b.sum()),
        (found.x_bends_y, a @ y),
        (found.y_bends_x, b @ x),
        (found.quartic, a @ b),
    ):
        np.testing.assert_allclose(value, wanted, rtol=1e-9)


def of(b: Batch, name: str, size: int = 7, **options: str) -> float:
    """A measure of batches of some rows at a time."""
    parts = [b.rows(at) for at in torch.arange(len(b)).split(size)]
    return CATALOGUE[name](total(map(PairMoments.of, parts)), **options)


@pytest.mark.parametrize("kind", ["debiased", "plain"])
@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_cka_of_batches_is_that_of_the_kernels(size: int, kind: str) -> None:
    b = pair(65, 0)  # the last batch holds one row, or two
    moved = Batch(b.x + 1e4, other=b.other - 3e3)
    wanted = cka_by_kernels(b.x.numpy(), None, None, b.other.numpy(), kind)
    assert of(b, "cka", size, kind=kind) == pytest.approx(wanted, rel=1e-10)
    assert of(moved, "cka", size, kind=kind) == pytest.approx(wanted, rel=1e-9)


def test_debiased_cka_is_that_of_a_sum_over_quadruples() -> None:
    """Song et al. 2012: a mean over all ways to take four different samples."""
    b = pair(8, 0)
    kernels = [a.numpy() @ a.numpy().T for a in (b.x, b.other)]

    def product(k: np.ndarray, m: np.ndarray) -> float:
        terms = [
            k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in permutations(range(8), 4)
        ]
        return float(np.mean(terms))

    k, m = kernels
    wanted = product(k, m) / np.sqrt(product(k, k) * product(m, m))
    assert of(b, "cka") == pytest.approx(wanted, rel=1e-10)


@pytest.mark.parametrize("n", [8, 16, 32])
def test_debiased_cka_of_unrelated_data_is_zero_on_average(n: int) -> None:
    found = []
    for seed in range(100):
        g = torch.Generator().manual_seed(seed)
        b = Batch(torch.randn(n, 20, generator=g), other=torch.randn(n, 10, generator=g))
        found.append(of(b, "cka", n))
    assert abs(np.mean(found)) < 3 * np.std(found) / 10
    assert of(b, "cka", n, kind="plain") > 0.1


@pytest.mark.parametrize("batch", [64, 1024])
def test_unrelated_features_are_unlike_at_any_size_of_batch(batch: int) -> None:
    g = torch.Generator().manual_seed(0)
    b = Batch(torch.randn(1024, 512, generator=g), other=torch.randn(1024, 512, generator=g))
    assert abs(of(b, "cka", batch)) < 0.02


def test_the_null_levels_are_those_of_shuffling() -> None:
    b = pair(30, 0)
    measures = [CATALOGUE["cka"].using(kind="plain"), CATALOGUE["linear_regression"]]
    g = torch.Generator().manual_seed(0)
    shuffled = [
        PairMoments.of(Batch(b.x, other=b.other[torch.randperm(30, generator=g)]))
        for _ in range(300)
    ]
    for m in measures:
        found = [m.evaluate(s).found.value for s in shuffled]
        null = m.evaluate(PairMoments.of(b)).found.null
        assert abs(np.mean(found) - null) < 3 * np.std(found) / np.sqrt(300)


def test_a_representation_is_like_itself_whatever_the_batch() -> None:
    x = torch.randn(65, 12)
    for size in (1, 2, 3, 64, 65):
        for name in ("cka", "procrustes", "linear_regression"):
            assert of(Batch(x, other=x), name, size) == pytest.approx(1, abs=1e-6)


def test_shuffling_one_side_destroys_the_likeness() -> None:
    x = torch.randn(400, 6)
    order = torch.randperm(400)
    for name in ("cka", "procrustes", "linear_regression"):
        assert of(Batch(x, other=x[order]), name) < 0.25


def test_the_distance_of_procrustes_is_scipys_and_obeys_the_triangle() -> None:
    g = torch.Generator().manual_seed(1)
    clouds = [torch.randn(20, d, generator=g, dtype=torch.float64) for d in (3, 5, 2)]

    def distance(i: int, j: int) -> float:
        b = Batch(clouds[i], other=clouds[j])
        found = of(b, "procrustes", kind="distance")
        args = b.x.numpy(), None, None, b.other.numpy(), "distance"
        assert found == pytest.approx(procrustes_by_scipy(*args), rel=1e-10)
        return found

    for i, j, k in permutations(range(3)):
        assert distance(i, k) <= distance(i, j) + distance(j, k)


def test_regression_looks_from_the_first_to_the_second() -> None:
    b = pair(200, 0)
    back = Batch(b.other, other=b.x)
    assert of(Batch(b.x, other=b.x[:, :1]), "linear_regression") == pytest.approx(1)
    assert of(Batch(b.x[:, :1], other=b.x), "linear_regression") < 0.5
    moved = Batch(b.x, other=3 * b.other @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]]).double() + 7)
    assert of(moved, "linear_regression") == pytest.approx(of(b, "linear_regression"), rel=1e-10)
    bent = Batch(b.x, other=b.other * torch.tensor([1.0, 5.0]))
    assert of(bent, "linear_regression") != pytest.approx(of(b, "linear_regression"), rel=1e-3)
    assert of(back, "linear_regression") != pytest.approx(of(b, "linear_regression"), rel=1e-3)


def test_regression_refuses_as_many_units_as_samples() -> None:
    x, y = torch.randn(50, 50), torch.randn(50, 3)
    found, defined = CATALOGUE["linear_regression"].evaluate(PairMoments.of(Batch(x, other=y)))
    assert not defined and "50 samples explain anything" in found.note


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scale_and_units_of_measurement_do_not_matter(scale: float) -> None:
    b = pair(60, 0)
    scaled = Batch(b.x * scale, other=b.other / scale)
    for name in ("cka", "procrustes", "linear_regression"):
        assert of(scaled, name) == pytest.approx(of(b, name), rel=1e-10)


def test_parts_of_a_pair_are_those_of_each_alone() -> None:
    b = pair(20, 0)
    assert_same(PairMoments.of(b).y, FourthMoments.of(Batch(b.other)), 0)
    assert_same(PairMoments.of(b).x, FourthMoments.of(Batch(b.x)), 0)


@pytest.mark.parametrize(("n", "d", "e"), [(300, 6, 4), (60, 40, 25), (30, 80, 5), (12, 30, 40)])
def test_the_null_of_procrustes_is_the_mean_over_shuffles(n: int, d: int, e: int) -> None:
    g = torch.Generator().manual_seed(n)
    x = torch.randn(n, d, generator=g, dtype=torch.float64) / torch.arange(1, d + 1)
    y = torch.randn(n, e, generator=g, dtype=torch.float64) + 5
    find = CATALOGUE["procrustes"].evaluate

    def similarity(other: torch.Tensor) -> Estimate:
        return find(PairMoments.of(Batch(x, other=other))).found

    shuffles = [similarity(y[torch.randperm(n, generator=g)]).value for _ in range(100)]
    mean, error = np.mean(shuffles), np.std(shuffles) / 10
    found = similarity(y)
    assert found.null == pytest.approx(mean, abs=4 * error + (0.01 if n > 12 else 0.06) * mean)
    assert found.null == similarity(y).null  # seeded


def test_more_units_than_samples_match_whatever_they_are() -> None:
    """Both sides are then a rotation of the samples, white: any shuffle can be rotated back."""
    x, y = torch.eye(9, dtype=torch.float64), torch.eye(9, dtype=torch.float64).flip(0)
    found = CATALOGUE["procrustes"].evaluate(PairMoments.of(Batch(x, other=y))).found
    assert found.value == pytest.approx(1) and found.null == pytest.approx(1)
