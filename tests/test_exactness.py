"""What must not change a number: batches and their order, the origin, the unit of measurement."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from lazyrich import CATALOGUE, Measure
from lazyrich.statistics import Batch, JointClassMoments, Moments, Statistic, total

KINDS = {Moments, *JointClassMoments.contains}
MEASURES = [
    m for m in CATALOGUE.values() if m.needs in KINDS and not (m.takes_initial or m.takes_head)
]
every_measure = pytest.mark.parametrize("m", MEASURES, ids=lambda m: m.name)
CENTERED = [m for m in MEASURES if "shift" in m.invariant]
every_centered_measure = pytest.mark.parametrize("m", CENTERED, ids=lambda m: m.name)
N, D, C = 300, 20, 4


def cloud() -> Batch:
    """The same every time."""
    g = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    labels = torch.randint(0, C, (N,), generator=g)
    x = torch.relu(normal(N, D) / torch.arange(1, D + 1) + normal(C, D)[labels])
    return Batch(x, labels, x @ normal(D, C) + 0.3 + 0.2 * normal(N, C))


def values(m: Measure, statistic: Statistic) -> list[float]:
    found = m.evaluate(statistic.read(m.needs)).found
    numbers = list(found.values()) if isinstance(found, dict) else [found.value]
    assert all(map(math.isfinite, numbers))
    return numbers


@cache
def in_order(order: str, size: int) -> JointClassMoments:
    b = cloud()
    rows = {"given": torch.arange(N), "shuffled": torch.randperm(N), "sorted": b.labels.argsort()}
    return in_batches(b.rows(rows[order]), size)


def in_batches(b: Batch, size: int) -> JointClassMoments:
    rows = torch.arange(len(b)).split(size)
    return total(JointClassMoments.of(b.rows(at)) for at in rows)


def moved(b: Batch, x: Tensor) -> Batch:
    return Batch(x, b.labels, b.outputs)


@every_measure
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_and_their_order_do_not_matter(m: Measure, size: int) -> None:
    expected = pytest.approx(values(m, in_order("given", N)), rel=1e-9, abs=1e-9)
    for order in ("given", "shuffled", "sorted"):
        assert values(m, in_order(order, size)) == expected


@every_centered_measure
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_float32_far_from_the_origin_loses_nothing_of_what_it_was_given(
    m: Measure, offset: float
) -> None:
    b = cloud()
    given = moved(b, (b.x + offset).float())
    exact = moved(b, given.x.double() - offset)
    expected = values(m, JointClassMoments.of(exact))
    assert values(m, in_batches(given, 64)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@every_centered_measure
@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
def test_float64_far_from_the_origin_keeps_nine_digits(m: Measure, offset: float) -> None:
    b = cloud()
    given = moved(b, b.x + offset)
    exact = moved(b, given.x - offset)
    expected = values(m, JointClassMoments.of(exact))
    assert values(m, in_batches(given, 64)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@every_measure
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_unit_of_measurement_does_not_matter(
    m: Measure, scale: float, dtype: torch.dtype
) -> None:
    b = cloud()
    b = moved(b, b.x.to(dtype))
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    found = values(m, in_batches(moved(b, b.x * scale), 64))
    expected = values(m, JointClassMoments.of(b))
    assert found == pytest.approx(expected, rel=tolerance, abs=tolerance / 100)


@every_measure
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_as_the_numbers_it_holds(m: Measure, dtype: torch.dtype) -> None:
    b = cloud()
    given = moved(b, b.x.to(dtype))
    expected = values(m, JointClassMoments.of(moved(b, given.x.double())))
    assert values(m, in_batches(given, 64)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@every_measure
def test_the_data_are_left_as_they_were(m: Measure) -> None:
    b = cloud()
    before = [t.clone() for t in (b.x, b.labels, b.outputs)]
    statistic = in_batches(b, 64)
    first = values(m, statistic)
    assert values(m, statistic) == first
    for now, then in zip((b.x, b.labels, b.outputs), before, strict=True):
        assert torch.equal(now, then)
