"""Estimates that correct for few samples: equal to their definitions, and right on average."""

import math
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

import lazyrich as lz
from lazyrich import CATALOGUE, Estimate
from lazyrich.errors import MissingInput
from lazyrich.measures._projection import beside_outputs
from lazyrich.measures._unbiased import squared_norm, squared_trace
from lazyrich.statistics import (
    Batch,
    ClassMoments,
    FourthMoments,
    JointMoments,
    Moments,
    Residuals,
    Statistic,
    total,
)

ALL = torch.arange(50)


def estimate(name: str, data: Statistic) -> Estimate:
    return CATALOGUE[name].evaluate(data).found


def test_u_statistics_are_means_over_four_distinct_samples() -> None:
    x = torch.randn(8, 3, dtype=torch.float64) + 5
    moments = total(FourthMoments.of(Batch(part)) for part in x.split(3))
    pairs = (x[:, None] - x[None]).numpy()
    four = np.array(list(permutations(range(8), 4)))
    a, b = pairs[four[:, 0], four[:, 1]], pairs[four[:, 2], four[:, 3]]
    assert squared_norm(moments) == pytest.approx(((a * b).sum(1) ** 2).mean() / 4)
    traces = (a**2).sum(1) * (b**2).sum(1)
    assert squared_trace(moments) == pytest.approx(traces.mean() / 4)


PEER = {  # of `dimensionality` 0.1.4, by what it corrects for
    "row": "effective_dimension_debiased",
    "col": "effective_dimension_units_debiased",
    "both": "effective_dimension_both_debiased",
}


def corrected(name: str, x: Tensor) -> float:
    moments = FourthMoments.of(Batch(x))
    return estimate(name, moments.read(CATALOGUE[name].needs)).value


@pytest.mark.parametrize(
    ("name", "value"),
    [("row", 11.523830473303937), ("col", 14.41117631677445), ("both", 16.26964061777889)],
)
def test_debiased_dimensions_are_those_of_the_peer(name: str, value: float) -> None:
    """`dimensionality` 0.1.4 on PyPI, participation_ratio(x, return_all=True)."""
    from sklearn.datasets import load_digits

    pixels = torch.as_tensor(load_digits().data[:120])
    assert corrected(PEER[name], pixels) == pytest.approx(value, rel=1e-10)


def test_debiased_dimensions_are_those_of_the_peer_itself() -> None:
    peer = pytest.importorskip("dimensionality")
    x = torch.randn(60, 90, dtype=torch.float64) + 3
    expected = peer.participation_ratio(x.numpy(), return_all=True)
    for kind, name in PEER.items():
        assert corrected(name, x) == pytest.approx(expected[kind], rel=1e-10)


def test_a_choice_of_samples_and_units_tells_of_all_of_them() -> None:
    """Any number of units mix 3 directions; 8 of them are recorded, on 10 samples."""
    g = torch.Generator().manual_seed(0)
    strengths = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    above, below = float(strengths.square().sum() ** 2), float(strengths.pow(4).sum())
    traces, norms = [], []
    for _ in range(1500):
        latent = torch.randn(10, 3, generator=g, dtype=torch.float64) * strengths
        x = latent @ torch.randn(3, 8, generator=g, dtype=torch.float64)
        moments = FourthMoments.of(Batch(x))
        traces.append(squared_trace(moments, apart=True) / (8 * 7))
        norms.append(squared_norm(moments, apart=True) / (8 * 7))
    for values, true in ((traces, above), (norms, below)):
        mean, error = mean_and_error(values)
        assert mean == pytest.approx(true, abs=3 * error)
        assert error < 0.1 * true


def test_single_units_are_measured_by_name_only() -> None:
    x = torch.randn(30, 4)
    assert not {PEER["col"], PEER["both"]} & set(lz.measure_arrays(x).unique("measure"))
    (row,) = lz.measure_arrays(x[:, :1], PEER["col"])
    assert row.status == "undefined" and "no two units" in row.note


def gaussian(n: int, variances: Tensor) -> Tensor:
    return torch.randn(n, len(variances), dtype=torch.float64) * variances.sqrt()


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values) / sqrt(len(values)))


@pytest.mark.parametrize(("n", "tolerance"), [(32, 0.12), (64, 0.04), (200, 0.01)])
def test_debiased_dimension_is_right_where_the_plain_one_is_not(n: int, tolerance: float) -> None:
    variances = 1 / torch.arange(1, 101, dtype=torch.float64)
    true = float(variances.sum() ** 2 / variances.square().sum())
    debiased, plain = [], []
    for _ in range(200):
        moments = FourthMoments.of(Batch(gaussian(n, variances)))
        debiased.append(estimate("effective_dimension_debiased", moments).value)
        plain.append(estimate("effective_dimension", moments.moments).value)
    # both parts are unbiased, their ratio to first order
    mean, error = mean_and_error(debiased)
    assert mean == pytest.approx(true, abs=tolerance * true + 3 * error)
    assert true - mean_and_error(plain)[0] > 3 * abs(true - mean)


@pytest.mark.parametrize("kind", ["literal", "span", "gauge"])
@pytest.mark.parametrize("rich", [False, True])
def test_adjusted_d_lr_is_right_where_the_plain_one_is_not(kind: str, rich: bool) -> None:
    g = torch.Generator().manual_seed(1)
    d, c, n = 128, 4, 64
    variances = torch.ones(d, dtype=torch.float64)
    if rich:
        variances[c:] = 1e-12
    outputs_rank = c - (kind == "gauge")  # it takes one direction away
    plain, adjusted = [], []
    for _ in range(150):
        x = torch.randn(n, d, generator=g, dtype=torch.float64) * variances.sqrt()
        j = JointMoments.of(Batch(x, None, x[:, :c]))
        for name, values in (("", plain), ("_adjusted", adjusted)):
            m = CATALOGUE[f"low_rank_richness{name}"].using(kind=kind)
            values.append(m.evaluate(j).found.value)
    active = c if rich else d
    true = 1 - (outputs_rank / active) * sqrt(active / outputs_rank)
    mean, error = mean_and_error(adjusted)
    assert mean == pytest.approx(true, abs=0.01 + 3 * error)
    assert abs(mean_and_error(plain)[0] - true) > abs(mean - true)


@pytest.mark.parametrize("n", [12, 24, 48])
def test_unrelated_labels_and_outputs_score_nothing_on_average(n: int) -> None:
    alignment, distance = [], []
    for _ in range(150):
        x = torch.randn(n, 40, dtype=torch.float64)
        labels = torch.arange(n) % 3
        found = estimate("kernel_target_alignment_debiased", ClassMoments.of(Batch(x, labels)))
        alignment.append(found.value)
        assert found.null == 0
        j = JointMoments.of(Batch(x, None, torch.randn(n, 3, dtype=torch.float64)))
        found = estimate("low_rank_richness_adjusted", j)
        distance.append(found.value)
        assert found.null == 1
    for values, nothing in ((alignment, 0.0), (distance, 1.0)):
        mean, error = mean_and_error(values)
        assert mean == pytest.approx(nothing, abs=3.5 * error)


def test_too_few_samples_are_refused_with_what_is_needed() -> None:
    x, f = torch.randn(7, 20), torch.randn(7, 7)
    found, defined = CATALOGUE["low_rank_richness_adjusted"].evaluate(
        JointMoments.of(Batch(x, None, f))
    )
    assert not defined
    assert found.note == "n = 7: outputs of rank 6 need 8 samples or more"
    three = FourthMoments.of(Batch(x[:3]))
    note = "an unbiased estimate needs 4 samples or more, got 3"
    assert estimate("effective_dimension_debiased", three).note == note


def test_a_square_estimated_as_negative_is_no_dimension() -> None:
    x = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    found, defined = CATALOGUE["effective_dimension_debiased"].evaluate(FourthMoments.of(Batch(x)))
    assert not defined
    assert "the unbiased estimate of a square is not positive" in found.note


def test_a_value_beyond_the_samples_is_called_extrapolated() -> None:
    found = estimate("effective_dimension_debiased", FourthMoments.of(Batch(torch.randn(40, 900))))
    assert found.note == "extrapolated: n = 40 is less than the value"


def test_heavy_tails_and_few_samples_are_said_to_widen_adjusted_d_lr() -> None:
    x = torch.randn(400, 30) / torch.rand(400, 1) ** 0.4
    found = estimate("low_rank_richness_adjusted", JointMoments.of(Batch(x, None, x[:, :3])))
    assert found.note.startswith("heavy tails (mean |x|^4 is ")
    light = torch.randn(12, 30)
    found = estimate(
        "low_rank_richness_adjusted", JointMoments.of(Batch(light, None, light[:, :3]))
    )
    assert found.note.startswith("n = 12 is less than five times the output rank")


def test_the_debiased_are_measured_from_a_single_product() -> None:
    from lazyrich._sums import covering
    from lazyrich.statistics import JointClassMoments

    kinds = [m.needs for m in CATALOGUE.values() if m.needs in JointClassMoments.contains]
    assert set(kinds) == {Moments, FourthMoments, ClassMoments, JointMoments}
    assert covering(kinds) == [JointClassMoments]
    assert covering([Moments, FourthMoments]) == [FourthMoments]
    assert covering([FourthMoments, ClassMoments]) == [ClassMoments]
    assert covering([Moments]) == [Moments]


def with_residuals(batch: Batch) -> Residuals:
    return Residuals.of(beside_outputs(batch, JointMoments.of(batch)))


@pytest.mark.parametrize("n", [12, 24, 48])
@pytest.mark.parametrize("kind", ["literal", "span", "gauge"])
def test_noise_of_any_size_in_any_row_is_no_richness_by_hc2(n: int, kind: str) -> None:
    """Rows that are noisy where the outputs are large: the adjusted value takes it for richness."""
    m = CATALOGUE["low_rank_richness_hc2"].using(kind=kind)
    adjusted, hc2 = [], []
    for _ in range(100):
        f = torch.randn(n, 4, dtype=torch.float64)
        x = torch.randn(n, 40, dtype=torch.float64) * (f - f.mean(1, keepdim=True)).norm(
            dim=1, keepdim=True
        )
        r = with_residuals(Batch(x, None, f))
        hc2.append(m.evaluate(r).found.value)
        assert m.evaluate(r).found.null == 1
        name = CATALOGUE["low_rank_richness_adjusted"].using(kind=kind)
        adjusted.append(name.evaluate(r.joint).found.value)
    assert abs(mean_and_error(hc2)[0] - 1) < abs(mean_and_error(adjusted)[0] - 1) / 1.8


def test_hc2_is_nearer_than_adjusted_where_tails_are_heavy() -> None:
    """Student's t with 5 degrees of freedom, one radius a sample; outputs are four of the units."""
    g = np.random.default_rng(0)
    scale = torch.arange(1, 129, dtype=torch.float64) ** -0.5
    covariance = scale.square()
    explained = float(covariance[:4].sum())
    true = 1 - explained / (2 * float(covariance.square().sum()) ** 0.5)
    adjusted, hc2 = [], []
    for _ in range(150):
        radius = torch.as_tensor((3 / g.chisquare(5, size=(96, 1))) ** 0.5)
        x = torch.as_tensor(g.normal(size=(96, 128))) * scale * radius
        r = with_residuals(Batch(x, None, x[:, :4]))
        hc2.append(estimate("low_rank_richness_hc2", r).value)
        adjusted.append(estimate("low_rank_richness_adjusted", r.joint).value)
    assert abs(mean_and_error(hc2)[0] - true) < abs(mean_and_error(adjusted)[0] - true)


def test_hc2_is_the_adjusted_value_where_every_row_weighs_the_same() -> None:
    labels = torch.arange(60) % 3
    f = torch.eye(3, dtype=torch.float64)[labels]
    x = torch.randn(60, 8, dtype=torch.float64) + 3 * torch.randn(3, 8, dtype=torch.float64)[labels]
    r = with_residuals(Batch(x, None, f))
    adjusted = estimate("low_rank_richness_adjusted", r.joint).value
    assert estimate("low_rank_richness_hc2", r).value == pytest.approx(adjusted, abs=1e-12)


def test_a_sample_alone_in_its_class_leaves_no_residual() -> None:
    labels = torch.tensor([0, 1] * 10 + [2])
    x = torch.randn(21, 8, dtype=torch.float64)
    r = with_residuals(Batch(x, None, torch.eye(3, dtype=torch.float64)[labels]))
    assert r.counted.tolist() == [20, 20, 20]
    assert estimate("low_rank_richness_hc2", r).value == pytest.approx(1, abs=0.5)
    everywhere = torch.eye(5, dtype=torch.float64)
    r = with_residuals(Batch(torch.randn(5, 8, dtype=torch.float64), None, everywhere))
    found, defined = CATALOGUE["low_rank_richness_hc2"].evaluate(r)
    assert not defined and found.note == "n = 5: outputs of rank 4 need 6 samples or more"


def test_residuals_of_parts_add_up_and_one_output_has_no_gauge() -> None:
    batch = Batch(torch.randn(50, 4), None, torch.randn(50, 1))
    batch = beside_outputs(batch, JointMoments.of(batch))
    whole, parts = Residuals.of(batch), total(Residuals.of(batch.rows(at)) for at in ALL.split(17))
    torch.testing.assert_close(parts.squared, whole.squared)
    assert parts.counted.tolist() == whole.counted.tolist() == [50, 50, 0]
    assert parts.n == 50
    found, defined = CATALOGUE["low_rank_richness_hc2"].using(kind="gauge").evaluate(whole)
    assert not defined and found.note.startswith("one output has no gauge")


def test_residuals_need_a_first_reading() -> None:
    with pytest.raises(MissingInput, match="residuals are known from a first reading"):
        Residuals.of(Batch(torch.ones(3, 2), None, torch.ones(3, 1)))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_hc2_and_nc4_read_a_loader_twice_whatever_the_batches(size: int) -> None:
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 3))
    model.double()
    x, y = torch.randn(130, 6, dtype=torch.float64), torch.arange(130) % 3
    loader = list(zip(x.split(size), y.split(size), strict=True))
    asked = ["low_rank_richness_hc2", "nc4", "nc1"]
    found = lz.measure(model, loader, asked, dtype=torch.float64, interval=5)
    whole = lz.measure(model, [(x, y)], asked, dtype=torch.float64, interval=5)
    assert sorted(found.unique("measure")) == sorted(asked)
    assert found.values() == pytest.approx(whole.values(), rel=1e-9, nan_ok=True)
    hc2 = found.where(measure="low_rank_richness_hc2")
    assert all(r.standard_error for r in hc2 if math.isfinite(r.value))
