"""Recursive Feature Machines against the algorithm as published, its symmetries and its peers."""

import pytest
import torch
from torch import Tensor

from lazyrich.rfm._kernel import Kernel, fill, mirror, squared_distances
from lazyrich.rfm._outer_products import (
    Expansion,
    by_gradients,
    by_pairs,
    cheaper_way,
    outer_products,
)
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
