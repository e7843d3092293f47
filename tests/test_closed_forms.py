"""Numbers that follow from the formulas alone."""

from itertools import permutations
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazyrich import CATALOGUE, Estimate
from lazyrich.statistics import (
    NO_LABEL,
    Batch,
    ClassMoments,
    JointClassMoments,
    JointMoments,
    Moments,
    Statistic,
)

D_LR, NC1 = CATALOGUE["low_rank_richness"].function, CATALOGUE["nc1"].function
effective_dimension = CATALOGUE["effective_dimension"].function


def number(found: float | tuple[float, str]) -> float:
    return found[0] if isinstance(found, tuple) else found


def richness(x: Tensor, f: Tensor, **options: str) -> float:
    f = f[:, None] if f.ndim == 1 else f
    return number(D_LR(JointMoments.of(Batch(x, None, f)), wide_outputs="allow", **options))


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
            number(CATALOGUE[name].function(j, kind=kind))
            for name in ("richness_shape", "richness_align")
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


def estimate(name: str, data: Statistic, **options: Any) -> Estimate:
    """What a measure says, with its note and null level."""
    return CATALOGUE[name].using(**options).evaluate(data).found


@pytest.mark.parametrize("c", [2, 3, 10, 100])
def test_gauge_forgets_what_a_softmax_does_not_see(c: int) -> None:
    labels = torch.arange(c).repeat_interleave(10)
    x = 3 * etf(c, 2 * c)[labels]
    logits = 5 * torch.eye(c, dtype=torch.float64)[labels]
    noisy = logits + 0.1 * torch.randn(len(labels), 1, dtype=torch.float64)
    assert richness(x, noisy, kind="gauge") == pytest.approx(0, abs=1e-12)
    assert richness(x, noisy, kind="span") == pytest.approx(1 - sqrt((c - 1) / c), abs=1e-12)
    biased = noisy + torch.randn(c, dtype=torch.float64)
    assert richness(x, biased, kind="gauge") == pytest.approx(0, abs=1e-12)


def test_gauge_needs_two_outputs() -> None:
    z = whitened(50, 4)
    found = estimate("low_rank_richness", JointMoments.of(Batch(z, None, z[:, :1])), kind="gauge")
    assert found.note == "one output has no gauge: subtracting its mean leaves nothing"


def test_outputs_as_wide_as_the_features_are_refused() -> None:
    z = whitened(400, 64)
    j = JointMoments.of(Batch(z, None, z @ torch.randn(64, 100, dtype=torch.float64)))
    for name in ("low_rank_richness", "low_rank_richness_adjusted", "richness_shape"):
        found, defined = CATALOGUE[name].evaluate(j)
        assert not defined
        assert found.note.startswith("100 outputs can span all 64 dimensions of the features")
    found = estimate("low_rank_richness", j, wide_outputs="allow")
    assert found.value == pytest.approx(0, abs=1e-12)  # isotropic, and it would count as rich
    assert "output rank 64 exceeds half of 64 units: not richness" in found.note


def test_d_lr_says_when_noise_decides_its_rank() -> None:
    x = 3 * etf(10, 64)[LABELS]
    noisy = ONE_HOT + 3e-4 * torch.randn(200, 1, dtype=torch.float64)
    found = estimate("low_rank_richness", JointMoments.of(Batch(x, None, noisy)), kind="span")
    assert found.caution
    assert "decided by noise: 1 output directions carry under 1e-4" in found.note
    assert float(found.note.split()[-1]) == pytest.approx(0, abs=1e-9)
    for kind, outputs in (("literal", noisy), ("gauge", noisy), ("span", ONE_HOT)):
        j = JointMoments.of(Batch(x, None, outputs))
        assert "decided" not in estimate("low_rank_richness", j, kind=kind).note


def test_d_lr_says_what_unequal_classes_do_by_themselves() -> None:
    labels = torch.arange(3).repeat_interleave(torch.tensor([600, 300, 100]))
    one_hot = torch.eye(3, dtype=torch.float64)[labels]
    x = torch.cat([one_hot, torch.zeros(1000, 5)], 1)
    found = estimate("low_rank_richness", JointMoments.of(Batch(x, labels, one_hot)))
    assert found.value == pytest.approx(0.108867, abs=1e-6)
    assert found.note == "unequal classes alone give collapsed features 0.11"
    assert not estimate("low_rank_richness", JointMoments.of(Batch(x, None, one_hot))).note


def test_few_samples_are_said_to_bias_d_lr() -> None:
    z = whitened(100, 64)
    found = estimate("low_rank_richness", JointMoments.of(Batch(z, None, z[:, :3])))
    assert (
        found.note == "biased: n = 100 is less than ten times the effective dimension or the rank"
    )


@pytest.mark.parametrize("kind", ["literal", "span", "gauge"])
def test_the_null_of_d_lr_is_its_mean_over_shuffled_outputs(kind: str) -> None:
    x = torch.relu(torch.randn(60, 12, dtype=torch.float64))
    f = torch.randn(60, 4, dtype=torch.float64) + x[:, :4] + 0.5
    found = estimate("low_rank_richness", JointMoments.of(Batch(x, None, f)), kind=kind)
    shuffled = [richness(x, f[torch.randperm(60)], kind=kind) for _ in range(400)]
    error = float(np.std(shuffled)) / 20
    assert found.null == pytest.approx(np.mean(shuffled), abs=4 * error)
    align = estimate("richness_align", JointMoments.of(Batch(x, None, f)), kind=kind)
    assert align.null * (1 - found.value) == pytest.approx(align.value * (1 - found.null))


def test_features_one_by_one_at_the_richest() -> None:
    x = 2 * torch.eye(64, dtype=torch.float64)[LABELS]
    classes, j = ClassMoments.of(Batch(x, LABELS)), JointMoments.of(Batch(x, LABELS, ONE_HOT))
    tenths = {k: pytest.approx(k / 10) for k in range(1, 11)}
    assert CATALOGUE["cumulative_quality"](classes) == tenths
    assert CATALOGUE["cumulative_utilization"](j) == tenths
    assert CATALOGUE["relative_eigenvalue"](j.pooled) == {k: pytest.approx(1) for k in range(1, 11)}
    ninths = {k: pytest.approx(k / 9) for k in range(1, 10)}
    assert CATALOGUE["cumulative_quality"](classes, centered=True) == ninths
    assert CATALOGUE["cumulative_utilization"](j, centered=True) == ninths


def test_quality_without_use_and_use_without_quality() -> None:
    """Of three features the strongest is used, and the second one tells the classes apart."""
    labels = torch.arange(2).repeat_interleave(50)
    side = 2.0 * labels - 1
    z = noise_within(labels, 2, 1.0)
    x = torch.stack([3 * z[:, 0], 2 * side, z[:, 1]], 1)
    batch = Batch(x, labels, x[:, :1])
    quality = CATALOGUE["cumulative_quality"](ClassMoments.of(batch), centered=True)
    used = CATALOGUE["cumulative_utilization"](JointMoments.of(batch), centered=True)
    assert list(quality.values()) == pytest.approx([0, 1, 1], abs=1e-12)
    assert list(used.values()) == pytest.approx([1, 1, 1], abs=1e-12)


def test_measures_of_flat_and_decaying_spectra() -> None:
    z = whitened(400, 64)
    flat = Moments.of(Batch(z))
    ranks = torch.arange(1, 65, dtype=torch.float64)
    decaying = Moments.of(Batch(z * ranks**-0.65))
    values = {
        "stable_rank": (64, 2.976937),
        "rankme": (64.0013, 48.187135),
        "entropy_effective_rank": (64, 16.194565),
        "alpha_req": (0, 1.3),
        "matrix_entropy": (log(64), log(16.194565)),
        "condition_number": (1, 64**0.65),
    }
    for name, (on_flat, on_decaying) in values.items():
        assert estimate(name, flat).value == pytest.approx(on_flat, abs=1e-4), name
        assert estimate(name, decaying).value == pytest.approx(on_decaying, abs=1e-4), name


def test_the_four_effective_ranks_are_four_numbers() -> None:
    """Singular values or their squares, with the mean or without it: each is asked for by name."""
    x = whitened(200, 4) * torch.tensor([4.0, 2, 1, 1]) + torch.tensor([0.0, 0, 0, 30])
    m = Moments.of(Batch(x))

    def rank(sizes: list[float]) -> float:
        p = np.array(sizes) / sum(sizes)
        return float(np.exp(-(p * np.log(p)).sum()))

    raw, centered = [sqrt(901), 4, 2, 1], [4, 2, 1, 1]
    name = "entropy_effective_rank"
    for sizes, flag in ((raw, False), (centered, True)):
        squares = [s**2 for s in sizes]
        assert estimate(name, m, centered=flag).value == pytest.approx(rank(squares))
        assert estimate(name, m, centered=flag, of="features").value == pytest.approx(rank(sizes))
        assert estimate("rankme", m, centered=flag).value == pytest.approx(rank(sizes), rel=1e-5)
    assert estimate("stable_rank", m, centered=False).value == pytest.approx(922 / 901)
    assert estimate("condition_number", m, centered=False).value == pytest.approx(sqrt(901))
    assert estimate("condition_number", m).value == pytest.approx(4)
    assert estimate("relative_eigenvalue", m)[2] == pytest.approx(16 / 901)
    assert estimate("relative_eigenvalue", m, centered=True)[2] == pytest.approx(4 / 16)


def test_entropy_of_order_two_is_the_log_of_the_effective_dimension() -> None:
    m = Moments.of(Batch(whitened(90, 6) * torch.arange(1, 7) + 3))
    found = estimate("matrix_entropy", m, order=2.0, centered=True).value
    assert found == pytest.approx(log(number(effective_dimension(m))))
    assert "is positive, got -1" in estimate("matrix_entropy", m, order=-1.0).note


def test_alpha_states_its_range_and_how_good_the_line_is() -> None:
    z = whitened(500, 200)
    ranks = torch.arange(1, 201, dtype=torch.float64)
    bent = torch.where(ranks <= 10, 1.0, (ranks / 10) ** -2)
    m = Moments.of(Batch(z * bent.sqrt()))
    found = estimate("alpha_req", m)
    assert found[:3] == (pytest.approx(2), "ranks 11 to 100, R2 = 1.000", False)
    whole = estimate("alpha_req", m, first=1, last=200)
    assert whole.note.startswith("ranks 1 to 200, R2 = 0.8")
    assert whole.caution
    assert estimate("alpha_req", m, first=1, weights="equal").value > whole.value
    assert "0 eigenvalues from rank 101 on" in estimate("alpha_req", m, first=101).note
    assert estimate("alpha_req", m, first=0).note == "ranks are counted from 1, got first=0"
    few = Moments.of(Batch(whitened(500, 5)))
    assert estimate("alpha_req", few).note.startswith("ranks 1 to 5")


def test_float32_does_not_turn_rounding_into_rank() -> None:
    x = torch.randn(3000, 10) @ torch.randn(10, 300) + 2
    single, exact = (Moments.of(Batch(b)) for b in (x, (x - x.mean(0)).double()))
    for name in ("entropy_effective_rank", "matrix_entropy", "rankme", "condition_number"):
        found = [estimate(name, m, centered=True).value for m in (single, exact)]
        assert found[0] == pytest.approx(found[1], rel=0.01), name
    note = "10 of 300 eigenvalues are above rounding: the condition within them"
    assert estimate("condition_number", single).note == note
    assert len(CATALOGUE["spectrum"](single)) == 10


def test_collapse_of_a_simplex_with_spherical_noise() -> None:
    labels = torch.arange(10).repeat_interleave(500)
    classes = ClassMoments.of(Batch(etf(10, 64)[labels] + noise_within(labels, 64, 0.01), labels))
    values = {
        "nc2_equinorm": 0,
        "nc2_equiangular": 0,
        "nc2_maximal_angle": 0,
        "cdnv": 64 * 0.01 / (20 / 9),
        "variability_collapse_index": 0.01 / (0.01 + 1 / 9),
    }
    for name, value in values.items():
        assert estimate(name, classes).value == pytest.approx(value, abs=1e-9), name


def test_means_that_are_no_simplex() -> None:
    means = torch.tensor([[3.0, 0], [-1, 1], [-2, -1]], dtype=torch.float64)
    labels = torch.arange(3).repeat_interleave(4)
    classes = ClassMoments.of(Batch(means[labels], labels))
    sizes = np.array([3, sqrt(2), sqrt(5)])
    cosines = np.array([-1 / sqrt(2), -2 / sqrt(5), 1 / sqrt(10)])
    assert estimate("nc2_equinorm", classes).value == pytest.approx(sizes.std() / sizes.mean())
    assert estimate("nc2_equiangular", classes).value == pytest.approx(cosines.std())
    apart = np.abs(cosines + 0.5).mean()
    assert estimate("nc2_maximal_angle", classes).value == pytest.approx(apart)


def test_two_classes_have_no_angles_to_compare() -> None:
    labels = torch.arange(2).repeat_interleave(9)
    found = estimate("nc2_equinorm", ClassMoments.of(Batch(torch.randn(18, 3), labels)))
    assert found.note == "needs 3 classes or more, saw 2"


BY_CLASS = [m.name for m in CATALOGUE.values() if m.needs is ClassMoments and not m.takes_head]


@pytest.mark.parametrize("name", BY_CLASS)
def test_labels_that_no_sample_has_and_samples_without_label_change_nothing(name: str) -> None:
    labels = torch.arange(60) % 4
    x = torch.randn(60, 6, dtype=torch.float64) + 2 * torch.randn(4, 6, dtype=torch.float64)[labels]
    value = estimate(name, ClassMoments.of(Batch(x, labels)))
    far_apart = torch.tensor([-7, 3, 50, 999])[labels]
    assert estimate(name, ClassMoments.of(Batch(x, far_apart))) == value
    more = torch.cat([x, 100 * torch.randn(50, 6, dtype=torch.float64)])
    ignored = torch.cat([labels, torch.full((50,), NO_LABEL)])
    found = estimate(name, ClassMoments.of(Batch(more, ignored)))
    if isinstance(found, dict):
        assert found == pytest.approx(value, rel=1e-12)
    else:
        assert found[0] == pytest.approx(value[0], rel=1e-12)


def test_alignment_of_collapsed_equal_classes_is_one() -> None:
    classes = ClassMoments.of(Batch(etf(10, 64)[LABELS] + 3, LABELS))
    assert estimate("kernel_target_alignment", classes).value == pytest.approx(1)
    assert estimate("kernel_target_alignment_debiased", classes).value == pytest.approx(1)


@pytest.mark.parametrize("centered", [True, False])
def test_the_null_of_alignment_is_its_mean_over_all_ways_to_label(centered: bool) -> None:
    x = torch.randn(6, 3, dtype=torch.float64) + 1
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    dealt = [
        estimate("kernel_target_alignment", ClassMoments.of(Batch(x, labels[list(p)])), centered=c)
        for p in permutations(range(6))
        for c in [centered]
    ]
    assert dealt[0].null == pytest.approx(np.mean([found.value for found in dealt]), rel=1e-12)


def test_raw_alignment_of_unrelated_labels_is_high_and_says_so() -> None:
    labels = (torch.arange(500) < 50).long()
    x = torch.relu(torch.randn(500, 30))
    classes = ClassMoments.of(Batch(x, labels))
    raw = estimate("kernel_target_alignment", classes, centered=False)
    assert raw.value > 0.5
    assert raw.null == pytest.approx(raw.value, abs=0.02)
    assert estimate("kernel_target_alignment", classes).value < 0.02


def test_units_that_never_change_and_copies_of_units_leave_vci_as_it_is() -> None:
    labels = torch.arange(90) % 3
    x = torch.randn(90, 5, dtype=torch.float64) + labels[:, None]
    wider = [x, torch.cat([x, torch.full((90, 2), 7.0)], 1), torch.cat([x, x[:, :2]], 1)]
    found = [
        estimate("variability_collapse_index", ClassMoments.of(Batch(w, labels))).value
        for w in wider
    ]
    assert found == [pytest.approx(found[0], rel=1e-10)] * 3


def test_the_null_of_vci_is_what_unrelated_labels_give() -> None:
    x, labels = torch.randn(200, 40, dtype=torch.float64), torch.arange(200) % 4
    dealt = [
        estimate(
            "variability_collapse_index", ClassMoments.of(Batch(x, labels[torch.randperm(200)]))
        )
        for _ in range(200)
    ]
    error = float(np.std([found.value for found in dealt])) / sqrt(200)
    assert dealt[0].null == pytest.approx(np.mean([f.value for f in dealt]), abs=4 * error)


def test_effective_dimension_of_known_spectra() -> None:
    z = whitened(400, 64)
    assert number(effective_dimension(Moments.of(Batch(z)))) == pytest.approx(64, rel=1e-12)
    scaled = z * torch.arange(1, 65, dtype=torch.float64) ** -0.65
    assert number(effective_dimension(Moments.of(Batch(scaled)))) == pytest.approx(
        6.792573, abs=1e-6
    )
    line = torch.outer(torch.arange(30.0), torch.ones(5))
    assert number(effective_dimension(Moments.of(Batch(line)))) == pytest.approx(1, rel=1e-6)


DIGITS = {
    "effective_dimension": 13.168511170069628,
    "effective_dimension_debiased": 13.262338534927231,
    "rankme": 29.629945583417754,
    "entropy_effective_rank": 20.553251362760854,
    "stable_rank": 6.7156490058946705,
    "matrix_entropy": 1.5200121154440027,
    "condition_number": 658.9745643754729,
    "alpha_req": 3.698859345731713,
    "nc1": 0.9263489155364321,
    "nc2_equinorm": 0.17144755592687935,
    "nc2_equiangular": 0.250529772606707,
    "nc2_maximal_angle": 0.19489381438460118,
    "cdnv": 0.7152826865256295,
    "variability_collapse_index": 0.3424545181449423,
    "kernel_target_alignment": 0.5096231172281749,
    "kernel_target_alignment_debiased": 0.5067721101562307,
    "low_rank_richness": 0.49112527615529933,
    "low_rank_richness_adjusted": 0.49285117749771823,
}


@pytest.mark.parametrize("name", DIGITS)
def test_the_digits_of_scikit_learn(name: str) -> None:
    """The numbers that docs/conventions.md compares."""
    from sklearn.datasets import load_digits

    data = load_digits()
    labels = torch.as_tensor(data.target)
    batch = Batch(torch.as_tensor(data.data), labels, torch.eye(10, dtype=torch.float64)[labels])
    found = estimate(name, JointClassMoments.of(batch).read(CATALOGUE[name].needs))
    assert found.value == pytest.approx(DIGITS[name], rel=1e-6)


def test_compression_is_the_log_ratio_of_dimensions() -> None:
    from lazyrich import Profile

    value, note, *_ = CATALOGUE["total_compression"].function(
        Profile({"conv1": 20.0, "middle": 99.0, "penultimate": 5.0})
    )
    assert value == pytest.approx(log(4))
    assert note == "compresses: conv1 20 -> penultimate 5"
    turned = Profile({"conv1": 5.0, "penultimate": 20.0})
    value, note, *_ = CATALOGUE["total_compression"].function(turned)
    assert value == pytest.approx(-log(4))
    assert note == "expands: conv1 5 -> penultimate 20"
