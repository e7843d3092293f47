"""Numbers that follow from the formulas alone."""

from math import log, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyrich import CATALOGUE, Batch, ClassMoments, JointMoments, Moments

D_LR, NC1 = CATALOGUE["low_rank_richness"].function, CATALOGUE["nc1"].function
effective_dimension = CATALOGUE["effective_dimension"].function


def number(found: float | tuple[float, str]) -> float:
    return found[0] if isinstance(found, tuple) else found


def richness(x: Tensor, f: Tensor, **options: str) -> float:
    f = f[:, None] if f.ndim == 1 else f
    return number(D_LR(JointMoments.of(Batch(x, None, f)), **options))


def whitened(n: int, d: int) -> Tensor:
    """A sample whose covariance is exactly the identity and whose mean is exactly zero."""
    z = torch.randn(n, d, dtype=torch.float64)
    u, _, v = torch.linalg.svd(z - z.mean(0), full_matrices=False)
    return u @ v * sqrt(n)


def etf(c: int, d: int) -> Tensor:
    """c vertices of a simplex, unit length, in d dimensions."""
    frame = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0][:c]
    vertices = (torch.eye(c, dtype=torch.float64) - 1 / c) @ frame
    return vertices / vertices.norm(dim=1, keepdim=True)


def noise_within(labels: Tensor, d: int, variance: float) -> Tensor:
    """Rows whose mean is zero in every class and whose covariance is variance times identity."""
    z = torch.randn(len(labels), d, dtype=torch.float64)
    z = z - torch.stack([z[labels == c].mean(0) for c in labels.unique()])[labels]
    u, _, v = torch.linalg.svd(z, full_matrices=False)
    return u @ v * sqrt(len(labels) * variance)


LABELS = torch.arange(10).repeat_interleave(20)
ONE_HOT = torch.eye(10, dtype=torch.float64)[LABELS]


@pytest.mark.parametrize("kind", ["literal", "span"])
def test_collapsed_simplex_with_one_hot_outputs_is_rich(kind: str) -> None:
    x = 3 * etf(10, 64)[LABELS] + torch.randn(64, dtype=torch.float64)
    assert richness(x, ONE_HOT, kind=kind) == pytest.approx(0, abs=1e-12)


def test_noise_in_the_sum_of_the_outputs_counts_in_span_and_not_in_literal() -> None:
    x = 3 * etf(10, 64)[LABELS]
    noisy = ONE_HOT + 1e-3 * torch.randn(200, 1, dtype=torch.float64)
    assert richness(x, noisy) == pytest.approx(0, abs=1e-6)
    assert richness(x, noisy, kind="span") == pytest.approx(1 - sqrt(9 / 10), abs=1e-5)
    assert richness(x, noisy - 0.1) == pytest.approx(0.051, abs=1e-3)


@pytest.mark.parametrize(("d", "c"), [(512, 10), (100, 1)])
def test_isotropic_features_are_lazy(d: int, c: int) -> None:
    z = whitened(2000, d)
    f = z @ torch.randn(d, c, dtype=torch.float64)
    assert richness(z, f) == pytest.approx(1 - sqrt(c / d), abs=1e-10)


def test_outputs_that_are_the_features() -> None:
    two = whitened(50, 2) * torch.tensor([2.0, 1.0])
    assert richness(two, two) == pytest.approx(1 - 5 / sqrt(34), abs=1e-12)
    variances = 1 / torch.arange(1, 101, dtype=torch.float64)
    many = whitened(400, 100) * variances.sqrt()
    assert richness(many, many) == pytest.approx(0.594313, abs=1e-6)


def test_outputs_orthogonal_to_the_features_explain_nothing() -> None:
    z = whitened(400, 110)
    assert richness(z[:, :100], z[:, 100:]) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("variance", "value"), [(0.1, 0.198216), (0.01, 0.002766)])
def test_noise_beside_the_signal_moves_d_lr_and_not_nc1(variance: float, value: float) -> None:
    labels = torch.arange(10).repeat_interleave(200)
    one_hot = torch.eye(10, dtype=torch.float64)[labels]
    u, _, _ = torch.linalg.svd(one_hot - 0.1, full_matrices=False)
    x = torch.cat([u[:, :9] * sqrt(2000), noise_within(labels, 500, variance)], 1)
    assert richness(x, one_hot) == pytest.approx(value, abs=1e-6)
    assert number(NC1(ClassMoments.of(Batch(x, labels)))) == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize(
    ("shares", "value"),
    [((0.6, 0.3, 0.1), 0.108867), ((0.5, 0.3, 0.2), 0.030303), ((0.9, 0.05, 0.05), 0.091323)],
)
def test_imbalance_alone_moves_d_lr(shares: tuple[float, ...], value: float) -> None:
    counts = torch.tensor([round(1000 * share) for share in shares])
    labels = torch.arange(3).repeat_interleave(counts)
    one_hot = torch.eye(3, dtype=torch.float64)[labels]
    assert richness(one_hot - 1 / 3, one_hot) == pytest.approx(value, abs=1e-6)
    balanced = one_hot / torch.tensor(shares, dtype=torch.float64).sqrt()
    assert richness(balanced, one_hot) == pytest.approx(0, abs=1e-12)


def test_a_cross_of_four_points() -> None:
    x = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]], dtype=torch.float64)
    assert richness(x, x[:, 0]) == pytest.approx(1 - 1 / sqrt(2), abs=1e-12)


def test_nc1_of_a_simplex_with_spherical_noise() -> None:
    labels = torch.arange(10).repeat_interleave(500)
    x = etf(10, 64)[labels] + noise_within(labels, 64, 0.01)
    parts = [Batch(x[i::7], labels[i::7]) for i in range(7)]
    merged = sum((ClassMoments.of(p) for p in parts[1:]), ClassMoments.of(parts[0]))
    assert number(NC1(merged)) == pytest.approx(0.1**2 * 9**2 / 10, rel=1e-9)


def test_d_lr_is_one_minus_shape_times_align() -> None:
    x = torch.relu(whitened(3000, 80) @ torch.randn(80, 80, dtype=torch.float64) + 1)
    j = JointMoments.of(Batch(x, None, x @ torch.randn(80, 5, dtype=torch.float64) + 2))
    for kind in ("literal", "span"):
        shape, align = (
            CATALOGUE[name].function(j, kind=kind) for name in ("richness_shape", "richness_align")
        )
        assert number(D_LR(j, kind=kind)) == pytest.approx(1 - shape * align, abs=1e-14)


def test_d_lr_is_one_minus_explained_share_times_root_of_dimension_over_rank() -> None:
    x = whitened(500, 40) / torch.arange(1, 41)
    f = x[:, :4] + 0.2 * torch.randn(500, 4, dtype=torch.float64)
    j = JointMoments.of(Batch(x, None, f))
    design = np.column_stack([f.numpy(), np.ones(500)])
    residual = x.numpy() - design @ np.linalg.lstsq(design, x.numpy(), rcond=None)[0]
    explained = 1 - (residual**2).sum() / float(j.pooled.scatter.trace())
    dimension = number(effective_dimension(j.pooled))
    expected = 1 - explained * sqrt(dimension / 4)
    assert number(D_LR(j, kind="span")) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("dtype", "value"), [(torch.bfloat16, 0.0), (torch.float32, 0.0)])
def test_rounding_of_the_outputs_is_not_a_direction(dtype: torch.dtype, value: float) -> None:
    x = etf(10, 64)[LABELS]
    probabilities = torch.softmax(5 * ONE_HOT, 1).to(dtype)
    assert richness(x, probabilities, kind="span") == pytest.approx(value, abs=1e-6)


def test_redundant_outputs_count_once() -> None:
    z = whitened(300, 10)
    f = torch.stack([z[:, 0], z[:, 0], z[:, 0] + 1e-8 * z[:, 1]], 1)
    rank = CATALOGUE["output_rank"].function
    assert number(rank(JointMoments.of(Batch(z, None, f)), kind="span")) == pytest.approx(1)
    apart = f + torch.tensor([0, 0, 1e-4], dtype=torch.float64) * z[:, 2:3]
    found = rank(JointMoments.of(Batch(z, None, apart)), kind="span")
    assert found[:2] == (pytest.approx(2), "1 directions carry under 1e-4 of the strongest")


def test_effective_dimension_of_known_spectra() -> None:
    z = whitened(400, 64)
    assert number(effective_dimension(Moments.of(Batch(z)))) == pytest.approx(64, rel=1e-12)
    scaled = z * torch.arange(1, 65, dtype=torch.float64) ** -0.65
    assert number(effective_dimension(Moments.of(Batch(scaled)))) == pytest.approx(
        6.792573, abs=1e-6
    )
    line = torch.outer(torch.arange(30.0), torch.ones(5))
    assert number(effective_dimension(Moments.of(Batch(line)))) == pytest.approx(1, rel=1e-6)


def test_the_digits_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    pixels = torch.as_tensor(load_digits().data)
    found = number(effective_dimension(Moments.of(Batch(pixels))))
    assert found == pytest.approx(13.168511170069616, rel=1e-12)


def test_compression_is_the_log_ratio_of_dimensions() -> None:
    from lazyrich import Profile

    value, note, *_ = CATALOGUE["total_compression"].function(
        Profile({"conv1": 20.0, "middle": 99.0, "penultimate": 5.0})
    )
    assert value == pytest.approx(log(4))
    assert note == "conv1 20 -> penultimate 5"
