"""The two laws of every statistic, and that each equals its plain formula in float64."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from lazyrich.errors import MissingInput, TooFewSamples
from lazyrich.statistics import (
    NO_LABEL,
    Batch,
    ClassCounts,
    ClassMoments,
    FourthMoments,
    JointClassMoments,
    JointMoments,
    Moments,
    Predictions,
    Statistic,
    leave_one_out,
    total,
)

CLOUDS = [Moments, FourthMoments, ClassMoments, JointMoments, JointClassMoments]
KINDS = [*CLOUDS, Predictions]
OFFSETS = [0.0, 1e3, -1e4, 1e6]
every_kind = pytest.mark.parametrize("kind", KINDS)


def cloud(n: int, seed: int, offset: float = 0.0, dtype: torch.dtype = torch.float64) -> Batch:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g, dtype=torch.float64) + offset
    f = torch.randn(n, 2, generator=g, dtype=torch.float64) - offset / 2
    return Batch(x.to(dtype), torch.randint(0, 4, (n,), generator=g), f.to(dtype), torch.arange(n))


def partly_labelled(n: int, seed: int, offset: float = 0.0) -> Batch:
    """Two rows of three have no label; the other labels are far apart, and some negative."""
    batch = cloud(n, seed, offset)
    labels = torch.where(batch.labels % 3 == 0, 50 * batch.labels - 7, NO_LABEL)
    return Batch(batch.x, labels, batch.outputs, batch.samples)


def assert_same(a: object, b: object, tolerance: float) -> None:
    for f in fields(a):  # type: ignore[arg-type]
        x, y = getattr(a, f.name), getattr(b, f.name)
        if x is None or y is None:
            assert x is y
        elif is_dataclass(x):
            assert_same(x, y, tolerance)
        elif isinstance(x, Tensor) and x.is_floating_point():
            assert x.dtype == torch.float64
            torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)
        else:
            assert torch.equal(torch.as_tensor(x), torch.as_tensor(y))


sizes = st.lists(st.integers(1, 9), min_size=3, max_size=5)


makers = st.sampled_from([cloud, partly_labelled])


@every_kind
@given(sizes=sizes, offset=st.sampled_from(OFFSETS), make=makers)
@settings(max_examples=25, deadline=None)
def test_of_a_concatenation_is_the_sum(
    kind: type, sizes: list[int], offset: float, make: Callable[..., Batch]
) -> None:
    parts = [make(n, i, offset) for i, n in enumerate(sizes)]
    tolerance = 1e-12 * max(1.0, abs(offset))
    assert_same(total(kind.of(p) for p in parts), kind.of(Batch.cat(parts)), tolerance)


@every_kind
@given(sizes=sizes, offset=st.sampled_from(OFFSETS), make=makers)
@settings(max_examples=25, deadline=None)
def test_addition_is_associative(
    kind: type, sizes: list[int], offset: float, make: Callable[..., Batch]
) -> None:
    a, b, c = (kind.of(make(n, i, offset)) for i, n in enumerate(sizes[:3]))
    assert_same((a + b) + c, a + (b + c), 1e-12 * max(1.0, abs(offset)))


@every_kind
def test_leaving_one_out_is_the_sum_of_the_others(kind: type) -> None:
    parts = [kind.of(cloud(5, i)) for i in range(4)]
    left = list(leave_one_out(parts))
    assert len(left) == 4
    for i, rest in enumerate(left):
        assert_same(rest, total(p for j, p in enumerate(parts) if j != i), 1e-12)


def test_leaving_one_out_needs_two_blocks() -> None:
    with pytest.raises(TooFewSamples, match="two blocks or more, got 1"):
        list(leave_one_out([Moments.of(cloud(5, 0))]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("offset", OFFSETS)
def test_moments_are_those_of_the_rows_as_given(dtype: torch.dtype, offset: float) -> None:
    if dtype == torch.float16 and abs(offset) > 6e4:
        pytest.skip("float16 ends at 65504")
    parts = [cloud(50, i, offset, dtype) for i in range(4)]
    whole = Batch.cat(parts)
    x, f = whole.x.double().numpy(), whole.outputs.double().numpy()
    joint = total(JointClassMoments.of(p) for p in parts)
    moments, across = joint.read(Moments), joint.read(JointMoments)
    # products in float32 carry seven digits, whatever the offset
    tolerance = 1e-9 if dtype == torch.float64 else 2e-6
    expected = np.cov(x.T, f.T, bias=True)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.covariance, expected[:3, :3], atol=tolerance * scale)
    np.testing.assert_allclose(across.cross / 200, expected[:3, 3:], atol=tolerance * scale)
    np.testing.assert_allclose(across.outputs.covariance, expected[3:, 3:], atol=tolerance * scale)


def test_one_product_holds_all_kinds() -> None:
    parts = [cloud(n, n, 100.0) for n in (7, 1, 30)]
    joint = total(JointClassMoments.of(p) for p in parts)
    for kind in (Moments, FourthMoments, ClassMoments, JointMoments):
        assert_same(joint.read(kind), kind.of(Batch.cat(parts)), 1e-9)
    for kind in (ClassMoments, JointMoments):
        for inner in (Moments, FourthMoments):
            assert_same(total(map(kind.of, parts)).read(inner), joint.read(inner), 1e-9)
    assert joint.read(JointClassMoments) is joint


def test_tails_are_sums_about_the_mean() -> None:
    parts = [cloud(n, n, 100.0) for n in (7, 1, 30)]
    x = Batch.cat(parts).x.numpy()
    x = x - x.mean(0)
    squares = (x**2).sum(1)
    for kind in (FourthMoments, ClassMoments, JointMoments, JointClassMoments):
        tail = total(map(kind.of, parts)).read(FourthMoments).tail
        np.testing.assert_allclose(tail.cubic, squares @ x, atol=1e-9)
        np.testing.assert_allclose(tail.quartic, squares @ squares, rtol=1e-11)
        np.testing.assert_allclose(tail.unit_cubic, (x**3).sum(0), atol=1e-9)
        np.testing.assert_allclose(tail.unit_quartic, (x**4).sum(0), rtol=1e-11)


@pytest.mark.parametrize("kind", [ClassMoments, JointClassMoments])
def test_rows_without_a_label_count_as_rows_and_in_no_class(kind: type[Statistic]) -> None:
    parts = [partly_labelled(n, n) for n in (7, 1, 30)]
    everything = Batch.cat(parts)
    known = everything.rows(everything.labels != NO_LABEL)
    found = total(map(kind.of, parts))
    assert found.n == len(everything)
    for inner in (Moments, FourthMoments):
        assert_same(found.read(inner), inner.of(everything), 1e-12)
    by_class, alone = found.read(ClassMoments), ClassMoments.of(known)
    assert by_class.labelled == len(known)
    assert_same(replace(by_class, unlabelled=None), alone, 1e-12)
    if kind is JointClassMoments:
        assert_same(found.read(JointMoments), JointMoments.of(everything), 1e-12)


def test_the_names_of_classes_do_not_matter() -> None:
    batch = cloud(40, 0)
    renamed = replace(batch, labels=1000 * batch.labels - 1)
    a, b = ClassMoments.of(batch), ClassMoments.of(renamed)
    assert b.classes.tolist() == [-1, 999, 1999, 2999]
    assert_same(replace(b, classes=a.classes), a, 0)


def test_classes_are_counted_where_there_are_labels() -> None:
    a, b = (partly_labelled(30, i) for i in range(2))
    counts = (JointMoments.of(a) + JointMoments.of(b)).labels
    labels = torch.cat([a.labels, b.labels])
    assert counts.classes.tolist() == [-7, 143]
    assert counts.counts.tolist() == [(labels == c).sum() for c in (-7, 143)]
    assert ClassCounts.of(replace(a, labels=None)) is None
    assert JointMoments.of(replace(a, labels=None)).labels is None


def test_predictions_skip_rows_without_a_label() -> None:
    outputs = torch.eye(3)
    found = Predictions.of(Batch(outputs, torch.tensor([0, NO_LABEL, 1]), outputs))
    none = Predictions.of(Batch(outputs, torch.full((3,), NO_LABEL), outputs))
    both = found + none
    assert (both.n, both.labelled, both.correct, both.lowest, both.highest) == (6, 2, 1, 0, 1)


def test_class_moments_equal_numpy_class_by_class() -> None:
    batch = cloud(60, 0, 10.0)
    moments = total(ClassMoments.of(batch.rows(batch.samples % 5 == i)) for i in range(5))
    x, y = batch.x.numpy(), batch.labels.numpy()
    within = sum(np.cov(x[y == c].T, bias=True) * (y == c).sum() for c in range(4))
    np.testing.assert_allclose(moments.within, within, rtol=1e-10)
    squares = [np.trace(np.cov(x[y == c].T, bias=True)) * (y == c).sum() for c in range(4)]
    np.testing.assert_allclose(moments.squares, squares, rtol=1e-10)
    for c in range(4):
        np.testing.assert_allclose(moments.means[c], x[y == c].mean(0), rtol=1e-12)


def test_scatter_within_keeps_its_digits_when_classes_collapse() -> None:
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    centers = torch.tensor([[3.0, 5, 5], [5, 3, 5], [5, 5, 3]])
    x = centers[labels] + 1e-4 * torch.randn(300, 3, generator=g)
    parts = [Batch(x[i::4], labels[i::4]) for i in range(4)]
    exact = ClassMoments.of(Batch(x.double(), labels)).within
    torch.testing.assert_close(total(map(ClassMoments.of, parts)).within, exact, rtol=1e-5, atol=0)


def test_an_empty_batch_adds_nothing() -> None:
    batch = cloud(9, 0)
    nothing = batch.rows(torch.zeros(9, dtype=torch.bool))
    for kind in CLOUDS:
        whole = kind.of(batch)
        assert_same(kind.of(nothing) + whole, whole, 1e-12)
        assert_same(whole + kind.of(nothing), whole, 1e-12)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.requires])
def test_a_missing_input_is_named(kind: type[Statistic]) -> None:
    with pytest.raises(MissingInput, match="needs? (a label|the model's outputs)"):
        kind.of(Batch(torch.zeros(3, 2)))


def test_predictions_count_hits() -> None:
    outputs = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0]])
    found = Predictions.of(Batch(outputs, torch.tensor([0, 1, 1]), outputs))
    assert (found.n, found.correct, found.highest) == (3, 2, 1)


def test_a_scatter_by_blocks_is_the_product() -> None:
    x = torch.randn(50, 300)
    rows = (x - x.mean(0)).double()
    found = Moments.of(Batch(x)).scatter
    torch.testing.assert_close(found, rows.T @ rows, rtol=1e-5, atol=1e-5)
    assert torch.equal(found, found.T)


def test_products_have_all_digits_even_if_training_makes_do_with_less() -> None:
    before = torch.get_float32_matmul_precision()
    rows = torch.randn(400, 200)
    try:
        torch.set_float32_matmul_precision("medium")
        found = Moments.of(Batch(rows)).scatter
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    expected = Moments.of(Batch(rows.double())).scatter
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [1.0, 30.0, 1e4, 1e8])
def test_eigenvalues_about_zero_survive_a_large_mean(size: float) -> None:
    x = torch.randn(60, 5, dtype=torch.float64) / torch.arange(1, 6)
    mean = size * torch.tensor([1.0, 2, -1, 0.5, 0], dtype=torch.float64)
    values, axes = replace(Moments.of(Batch(x - x.mean(0))), mean=mean).about_zero
    expected = torch.linalg.svdvals(torch.cat([x - x.mean(0) + mean])).square() / 60
    torch.testing.assert_close(values, expected, rtol=1e-9 if size < 1e6 else 1e-6, atol=1e-9)
    torch.testing.assert_close(axes.T @ axes, torch.eye(5, dtype=torch.float64))
    second = (x - x.mean(0)).T @ (x - x.mean(0)) / 60 + mean.outer(mean)
    left = second @ axes - axes * values
    assert left.norm() < 1e-12 * second.norm()


@every_kind
def test_the_size_foretold_is_the_size_held(kind: type[Statistic]) -> None:
    held = kind.of(cloud(500, 0))

    def numbers(statistic: object) -> int:
        parts = [getattr(statistic, f.name) for f in fields(statistic)]  # type: ignore[arg-type]
        return sum(
            p.numel() if isinstance(p, Tensor) else numbers(p) if is_dataclass(p) else 1
            for p in parts
        )

    assert numbers(held) == pytest.approx(kind.size(3, 2, 4), rel=0.5)
