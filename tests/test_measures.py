"""One contract for every measure in the catalogue. A new measure is tested by being there."""

from dataclasses import replace
from importlib import import_module
from math import inf, isnan

import numpy as np
import pytest
import torch
from torch import Tensor

import lazyrich as lz
from lazyrich import CATALOGUE, LazyrichError, Measure, Profile, published
from lazyrich.errors import LazyrichWarning, UnknownName
from lazyrich.statistics import (
    Batch,
    GradientMoments,
    LinearMap,
    Moments,
    PairMoments,
    TangentKernel,
    Weights,
)

every_measure = pytest.mark.parametrize("m", CATALOGUE.values(), ids=list(CATALOGUE))
N, D, C = 120, 9, 3


def cloud(dtype: torch.dtype = torch.float64, offset: float = 0.0) -> Batch:
    """Anisotropic classes, and outputs that depend on the features but not on them alone."""
    labels = torch.arange(N) % C
    x = torch.randn(N, D, dtype=torch.float64) / torch.arange(1, D + 1)
    x = x + torch.randn(C, D, dtype=torch.float64)[labels] + offset
    outputs = torch.randn(N, C, dtype=torch.float64) + x[:, :C] - offset + 0.3
    g = torch.Generator().manual_seed(3)
    other = torch.randn(N, C + 1, generator=g, dtype=torch.float64) + x[:, : C + 1]
    return Batch(x.to(dtype), labels, outputs.to(dtype), torch.arange(N), other.to(dtype))


def layers(b: Batch) -> dict[str, Tensor]:
    """Another layer before the cloud, for measures across layers."""
    g = torch.Generator().manual_seed(1)
    return {"first": torch.randn(len(b), 4, generator=g, dtype=torch.float64), "last": b.x}


def start(b: Batch) -> Batch:
    """The same samples at the start of training: related to what they are now, but not the same."""
    g = torch.Generator().manual_seed(2)
    noise = torch.randn(N, D, generator=g, dtype=torch.float64)
    origin = torch.randn(N, D, generator=g, dtype=torch.float64) / torch.arange(1, D + 1)
    return Batch(origin[: len(b)] + noise[: len(b)] / 3, samples=torch.arange(len(b)))


def head() -> Tensor:
    """Weights of a last layer that knows the class means a little."""
    g = torch.Generator().manual_seed(4)
    return torch.randn(C, D, generator=g, dtype=torch.float64)


def linear_map(b: Batch) -> LinearMap:
    """A layer whose weights are the rows, and gradients that come of them, on its smaller side."""
    weight = b.x.double()
    gradients = weight + weight.roll(1, 1) / 2
    gradients = gradients[:, : len(weight)] if len(weight) <= D else gradients
    moments = GradientMoments.of([gradients[:, None]])
    return LinearMap(weight, moments, initial=start(b).x)


def tangent_kernel(b: Batch) -> TangentKernel:
    """The kernel of the rows; a layer's, where the model's is that and the kernel at the start."""
    x, origin = b.x.double(), start(cloud()).x[b.samples]
    before = origin @ origin.T
    targets = torch.nn.functional.one_hot(b.labels, C).double()
    whole = TangentKernel(x @ x.T + before, before)
    return TangentKernel(x @ x.T, before, targets, whole, torch.finfo(torch.float64).eps)


Points = dict[int | None, float]


def values(m: Measure, b: Batch) -> Points:
    """By rank, or under None, and through the engine where it needs no more than arrays."""
    if m.needs is Weights:
        both = Weights({"w": b.x}), Weights({"w": start(b).x})
        return {None: m.function(*both[: 1 + m.takes_initial])}
    if m.needs is LinearMap:
        found = m.evaluate(linear_map(b)).found
        return found if isinstance(found, dict) else {None: found.value}
    if m.needs is TangentKernel:
        found = m.evaluate(tangent_kernel(b)).found
        return found if isinstance(found, dict) else {None: found.value}
    if m.takes_initial:
        return {None: m.evaluate(m.needs.of(b), m.needs.of(start(b))).found.value}
    if m.takes_head:
        return {None: m.evaluate(m.needs.of(b), head=head()).found.value}
    if m.needs is PairMoments:
        return {None: lz.compare({"x": b.x}, {"other": b.other}, measures=m)[0].value}
    data = layers(b) if m.needs is Profile else {m.layer or "outputs": b.x}
    labels = None if b.labels is None else b.labels.numpy()
    records = lz.measure_arrays(data, m, labels=labels, outputs=b.outputs)
    assert records[0].measure == m.name
    return {r.index: r.value for r in records}


def differing(m: Measure, b: Batch, **tolerance: float) -> dict[int | None, tuple[float, float]]:
    """The points where a measure is not what its oracle says, with both values."""
    found = values(m, b)
    pairs = {k: (found[k], wanted) for k, wanted in expected(m, b).items()}
    tolerance |= {"nan_ok": True}
    return {k: (v, w) for k, (v, w) in pairs.items() if v != pytest.approx(w, **tolerance)}


def expected(m: Measure, b: Batch) -> Points:
    oracle = getattr(import_module(f"oracles.{m.module}"), m.name)
    arrays = [a.double().numpy() for a in layers(b).values()]
    x = arrays if m.needs is Profile else b.x.double().numpy()
    more = {"initial": start(b).x.numpy()} if m.takes_initial else {}
    more |= {"head": head().numpy()} if m.takes_head else {}
    more |= {"initial": start(b).x.numpy()} if m.needs is LinearMap else {}
    more |= {"initial": start(cloud()).x[b.samples].numpy()} if m.needs is TangentKernel else {}
    more |= {"other": b.other.double().numpy()} if m.needs is PairMoments else {}
    found = oracle(x, b.labels.numpy(), b.outputs.double().numpy(), **more)
    return found if isinstance(found, dict) else {None: found}


def rotation() -> Tensor:
    return torch.linalg.qr(torch.randn(D, D, dtype=torch.float64))[0]


def affine() -> Tensor:
    return torch.randn(D, D, dtype=torch.float64)


OUTPUT_MAP = torch.tensor([[2.0, 1, 0], [-1, 1, 1], [0.5, 0, -1]], dtype=torch.float64)
MOVES = {
    "shift": lambda b: replace(b, x=b.x + 7),
    "scale": lambda b: replace(b, x=b.x * 3.7),
    "rotation": lambda b: replace(b, x=b.x @ rotation()),
    "affine": lambda b: replace(b, x=b.x @ affine() + 1),
    "order": lambda b: b.rows(torch.randperm(len(b))),
    "swap": lambda b: replace(b, x=b.other, other=b.x),
    "output_shift": lambda b: replace(b, outputs=b.outputs + torch.tensor([5.0, 0, 1])),
    "output_scale": lambda b: replace(b, outputs=b.outputs * 2.5),
    "output_map": lambda b: replace(b, outputs=b.outputs @ OUTPUT_MAP),
}


@every_measure
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_equals_its_oracle(m: Measure, offset: float) -> None:
    if m.needs in (LinearMap, TangentKernel) and offset:
        pytest.skip("weights and kernels have no offset")
    b = cloud(offset=offset)
    assert not differing(m, b, rel=1e-10, abs=1e-10)


@every_measure
def test_float32_equals_its_oracle_on_the_same_rows(m: Measure) -> None:
    b = cloud(torch.float32, offset=100.0)
    assert not differing(m, b, rel=1e-4)


@every_measure
@pytest.mark.parametrize("move", MOVES)
def test_keeps_the_invariances_it_claims_and_breaks_the_others(m: Measure, move: str) -> None:
    if move.startswith("output") and "outputs" not in getattr(m.needs, "requires", ()):
        pytest.skip("does not look at the outputs")
    if move == "swap" and m.needs is not PairMoments:
        pytest.skip("looks at one representation")
    b = cloud()
    before = pytest.approx(values(m, b), rel=1e-7)
    tries = 1 if move in m.invariant else 5  # a count may stay the same by chance
    same = all(values(m, MOVES[move](b)) == before for _ in range(tries))
    assert same == (move in m.invariant)


@every_measure
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_stays_within_its_bounds_at_every_scale(m: Measure, scale: float) -> None:
    b = cloud()
    low, high = m.bounds
    assert all(low <= v <= high for v in values(m, replace(b, x=b.x * scale)).values())


@every_measure
def test_more_units_than_samples_is_no_trouble(m: Measure) -> None:
    b = cloud().rows(torch.arange(7))
    assert not differing(m, b, rel=1e-8, abs=1e-10)


@every_measure
def test_is_undefined_with_a_reason_where_nothing_varies(m: Measure) -> None:
    still = torch.ones(20, D)
    if m.needs is Weights:
        pytest.skip("a size is defined for any weights")
    if m.needs is LinearMap:
        found, defined = m.evaluate(linear_map(Batch(still * 0, samples=torch.arange(20))))
        assert isnan(found.value) and not defined and len(found.note) > 10
        return
    if m.needs is TangentKernel:
        none = TangentKernel(torch.zeros(20, 20).double(), torch.zeros(20, 20).double())
        found, defined = m.evaluate(none)
        assert isnan(found.value) and not defined and len(found.note) > 10
        return
    if m.takes_initial:
        same = m.needs.of(Batch(still))
        found, defined = m.evaluate(same, same)
        assert isnan(found.value) and not defined and len(found.note) > 10
        return
    if m.takes_head:
        found, defined = m.evaluate(m.needs.of(Batch(still, torch.arange(20) % C)), head=head())
        assert isnan(found.value) and not defined and len(found.note) > 10
        return
    if m.needs is PairMoments:
        row = lz.compare({"x": still}, {"other": still[:, :2]}, measures=m)[0]
        assert isnan(row.value) and row.status == "undefined" and len(row.note) > 10
        return
    data = {"first": still, "last": still, m.layer or "outputs": still}
    records = lz.measure_arrays(data, m, labels=np.zeros(20, int), outputs=torch.ones(20, 1))
    assert isnan(records[0].value)
    assert records[0].status == "undefined"
    assert len(records[0].note) > 10


@every_measure
def test_names_its_source_and_documents_itself(m: Measure) -> None:
    assert len(m.source) > 20
    assert m.formula
    assert m.summary.endswith(".")
    assert m.richer in ("low", "high", "neither")


def test_undefined_is_nan_with_a_warning_outside_the_engine() -> None:
    with pytest.warns(LazyrichWarning, match="the same for every sample"):
        found = CATALOGUE["effective_dimension"](Moments.of(Batch(torch.ones(30, 2))))
    assert isnan(found)


def test_an_option_changes_the_value_and_is_stated() -> None:
    b = cloud()
    m = CATALOGUE["low_rank_richness"]
    for kind in ("literal", "span"):
        record = lz.measure_arrays(b.x, m.using(kind=kind), outputs=b.outputs)[0]
        oracle = import_module("oracles.low_rank_richness").low_rank_richness
        assert record.value == pytest.approx(oracle(b.x.numpy(), 0, b.outputs.numpy(), kind))
        assert record.estimator == f"plug-in, kind={kind}, wide_outputs=refuse"
    with pytest.raises(UnknownName, match="option of low_rank_richness matches 'knd'.*kind"):
        m.using(knd="span")


def test_two_measures_cannot_share_a_name() -> None:
    with pytest.raises(ValueError, match="two measures are named 'effective_dimension'"):

        @published("a source that is long enough to be one")
        def effective_dimension(x: Moments) -> float:
            return 1.0


def test_a_measure_of_ones_own_is_measured_like_any_other() -> None:
    @published("somebody, somewhere, 2026", bounds=(0, inf))
    def largest_mean(x: Moments) -> float:
        r"""Largest absolute mean. $\max_i |\mu_i|$"""
        return x.mean.abs().max().item()

    try:
        found = lz.measure_arrays(np.full((9, 2), 3.0), "largest_*")
        assert found.values() == [3.0]
        assert found.definitions["largest_mean"].formula == r"\max_i |\mu_i|"
    finally:
        CATALOGUE.pop("largest_mean")


def test_unknown_measures_are_refused_with_the_nearest_names() -> None:
    with pytest.raises(LazyrichError, match="no measure matches 'nc2'. Nearest: nc4, nc3, nc1"):
        lz.measure_arrays(np.ones((9, 2)), "nc2")
