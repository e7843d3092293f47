"""The two laws of clouds, and that the points kept depend on sample numbers alone."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from lazyrich.errors import MissingInput
from lazyrich.statistics import NO_LABEL, Batch, Clouds, clouds, leave_one_out, total
from lazyrich.statistics.clouds import scattered


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points a class, so that most have to go."""
    monkeypatch.setattr(clouds, "KEPT", 4)


def batch(first: int, n: int, d: int = 2, dtype: torch.dtype = torch.float64) -> Batch:
    """Samples `first` to `first + n`: their values and labels follow from their numbers."""
    samples = torch.arange(first, first + n)
    x = torch.sin(samples[:, None] * torch.arange(1, d + 1) + 0.5)
    return Batch(x.to(dtype), samples * 7 % 3, None, samples)


def same(a: Clouds, b: Clouds) -> bool:
    names = ("rows", "classes", "counts", "points", "labels", "priorities")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


sizes = st.lists(st.integers(1, 30), min_size=3, max_size=5)


def split(sizes: list[int]) -> list[Batch]:
    firsts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [batch(first, n) for first, n in zip(firsts, sizes, strict=True)]


@given(sizes=sizes)
@settings(max_examples=30, deadline=None)
def test_of_a_concatenation_is_the_sum(sizes: list[int]) -> None:
    parts = split(sizes)
    assert same(total(map(Clouds.of, parts)), Clouds.of(Batch.cat(parts)))


@given(sizes=sizes)
@settings(max_examples=30, deadline=None)
def test_addition_is_associative_and_commutes(sizes: list[int]) -> None:
    a, b, c = map(Clouds.of, split(sizes)[:3])
    assert same((a + b) + c, a + (b + c))
    assert same(a + b, b + a)


@given(sizes=sizes, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_neither_order_nor_batches_decide_what_is_kept(sizes: list[int], seed: int) -> None:
    whole = batch(0, sum(sizes))
    mixed = whole.rows(torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed)))
    ends = torch.tensor(sizes).cumsum(0).tolist()
    parts = [mixed.rows(torch.arange(a, b)) for a, b in zip([0, *ends], ends, strict=False)]
    assert same(total(map(Clouds.of, parts)), Clouds.of(whole))


def test_leaving_one_out_is_the_sum_of_the_others() -> None:
    parts = [Clouds.of(p) for p in split([9, 5, 12])]
    left = list(leave_one_out(parts))
    assert same(left[1], parts[0] + parts[2])


def test_kept_are_those_that_hash_lowest_of_each_class() -> None:
    b = batch(0, 60)
    found = Clouds.of(b)
    assert found.classes.tolist() == [0, 1, 2]
    assert found.counts.tolist() == [20, 20, 20]
    assert float(found.n) == 60
    hashes = scattered(scattered(b.samples))
    for label in range(3):
        own = torch.nonzero(b.labels == label).flatten()
        lowest = own[hashes[own].argsort()[:4]]
        assert torch.equal(found.cloud(label), b.x[lowest])


def test_hashes_spread_evenly() -> None:
    bits = scattered(torch.arange(1 << 16))
    for place in range(0, 64, 7):
        assert ((bits >> place) & 1).double().mean() == pytest.approx(0.5, abs=0.01)
    assert len(bits.unique()) == 1 << 16


def test_all_layers_keep_the_same_samples() -> None:
    narrow, wide = batch(0, 60, d=1), batch(0, 60, d=5)
    assert torch.equal(Clouds.of(narrow).priorities, Clouds.of(wide).priorities)
    torch.testing.assert_close(Clouds.of(wide).points[:, :1], Clouds.of(narrow).points)


def test_rows_of_one_sample_are_told_apart_by_their_place() -> None:
    tokens = Batch(torch.arange(40.0)[:, None], torch.zeros(40, dtype=torch.long))
    samples = torch.arange(8).repeat_interleave(5)
    found = Clouds.of(Batch(tokens.x, tokens.labels, None, samples))
    assert len(found.priorities.unique()) == 4
    assert len((found.points[:, 0] // 5).unique()) > 1  # not one sample's tokens only
    halves = [
        Batch(tokens.x[a:b], tokens.labels[a:b], None, samples[a:b]) for a, b in [(0, 20), (20, 40)]
    ]
    assert same(total(map(Clouds.of, halves)), found)


def test_rows_without_numbers_are_known_by_their_values() -> None:
    b = batch(0, 50)
    plain = Batch(b.x, b.labels)
    order = torch.randperm(50)
    assert same(Clouds.of(plain), Clouds.of(plain.rows(order)))
    halves = [plain.rows(torch.arange(25)), plain.rows(torch.arange(25, 50))]
    assert same(total(map(Clouds.of, halves)), Clouds.of(plain))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ],
)
def test_points_are_stored_as_they_came(given: torch.dtype, stored: torch.dtype) -> None:
    b = batch(0, 9, dtype=given)
    found = Clouds.of(b)
    assert found.points.dtype == stored
    assert set(map(tuple, found.points.tolist())) <= set(map(tuple, b.x.double().tolist()))


def test_rows_without_a_label_count_and_are_not_kept() -> None:
    b = batch(0, 30)
    labels = b.labels.where(b.labels > 0, NO_LABEL)
    found = Clouds.of(Batch(b.x, labels, None, b.samples))
    assert float(found.n) == 30
    assert found.classes.tolist() == [1, 2]
    assert NO_LABEL not in found.labels
    nothing = Clouds.of(Batch(b.x, torch.full((30,), NO_LABEL), None, b.samples))
    assert len(nothing.points) == len(nothing.classes) == 0
    assert torch.equal((nothing + found).points, found.points)


def test_memory_is_that_of_full_classes() -> None:
    found = Clouds.of(batch(0, 90, d=400, dtype=torch.float32))
    held = sum(t.numel() * t.element_size() for t in vars(found).values() if isinstance(t, Tensor))
    assert held <= 8 * Clouds.size(400, 0, 3) <= 1.1 * held


def test_labels_are_needed() -> None:
    with pytest.raises(MissingInput, match="label for each sample"):
        Clouds.of(Batch(torch.ones(3, 2)))
