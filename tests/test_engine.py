"""Model and data in, records out: the same numbers however the data comes."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import CATALOGUE, LazyrichError, Records
from lazyrich._sums import dealt
from lazyrich.errors import (
    MemoryRefused,
    MissingInput,
    NonFinite,
    NotExecuted,
    ShapeError,
    TooFewSamples,
)
from lazyrich.statistics import Batch, Moments


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3))


def samples(n: int = 120, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randn(n, 6, generator=g).to(dtype), torch.arange(n) % 3


def in_batches(size: int, order: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
    x, y = samples()
    order = torch.arange(len(x)) if order is None else order
    return list(zip(x[order].split(size), y[order].split(size), strict=True))


def table(records: Records) -> dict[tuple, float]:
    return {(r.layer, r.measure, r.index): r.value for r in records}


ORDERS = {
    "given": None,
    "shuffled": torch.randperm(120, generator=torch.Generator().manual_seed(2)),
    "sorted by class": torch.arange(120).reshape(40, 3).T.reshape(-1),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 7, 64])
def test_batch_size_and_order_do_not_change_a_number(size: int, order: str) -> None:
    whole = table(lz.measure(net(), in_batches(120), dtype=torch.float64))
    found = table(lz.measure(net(), in_batches(size, ORDERS[order]), dtype=torch.float64))
    assert found.keys() == whole.keys()
    # forward passes over batches of other sizes round differently in float32
    assert list(found.values()) == pytest.approx(
        list(whole.values()), rel=2e-5, abs=2e-6, nan_ok=True
    )


def test_streaming_is_exact_where_the_activations_are() -> None:
    model, (x, y) = net().double(), samples(dtype=torch.float64)
    whole = table(lz.measure(model, [(x, y)]))
    parts = table(lz.measure(model, [(x[:50], y[:50]), (x[50:51], y[50:51]), (x[51:], y[51:])]))
    assert list(parts.values()) == pytest.approx(
        list(whole.values()), rel=1e-9, abs=1e-12, nan_ok=True
    )


def test_arrays_agree_with_the_model() -> None:
    model, (x, y) = net().eval(), samples()
    with torch.no_grad():
        hidden, outputs = model[:2](x).numpy(), model(x).numpy()
    arrays = lz.measure_arrays({"1": hidden}, labels=y.numpy(), outputs=outputs)
    captured = lz.measure(model, [(x, y)], layers="1")
    assert table(arrays) == pytest.approx(table(captured), rel=1e-6, nan_ok=True)


def test_every_record_says_what_it_is() -> None:
    for r in lz.measure(net(), in_batches(50), interval=5, seed=7, run="mine"):
        assert (r.run, r.n, r.dtype, r.seed, r.view) == ("mine", 120, "float32", 7, "mean")
        assert r.measure in CATALOGUE and r.estimator and r.d > 0
        if r.status == "ok":
            assert r.low < r.value < r.high or r.standard_error == 0 or r.index is not None


def test_the_jackknife_is_that_of_leaving_blocks_of_samples_out() -> None:
    x, y = samples(40, torch.float64)
    found = lz.measure_arrays(x, "effective_dimension", labels=y, interval=4)[0]
    block = dealt(torch.arange(40), 4)
    assert block.bincount().tolist() == [10] * 4
    numbers = [lz.measure_arrays(x[block != i], "effective_dimension")[0].value for i in range(4)]
    error = math.sqrt(3 / 4 * sum((v - np.mean(numbers)) ** 2 for v in numbers))
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    assert found.value - found.low == pytest.approx(3.182446 * error, rel=1e-6)


def test_labels_that_come_in_turns_do_not_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((2000, 10))
    outputs[:, 3] += 2
    labels = np.arange(2000) % 10
    order = rng.permutation(2000)
    turns, shuffled = (
        lz.measure_arrays(
            {"outputs": outputs[at]},
            "accuracy",
            labels=labels[at],
            outputs=outputs[at],
            interval=10,
        )[0]
        for at in (np.arange(2000), order)
    )
    assert turns.value == shuffled.value
    for found in (turns, shuffled):  # ten blocks know an error to a quarter or so
        assert found.standard_error == pytest.approx(math.sqrt(0.1 * 0.9 / 2000), rel=0.6)


def test_an_interval_ends_where_the_values_end() -> None:
    x = torch.randn(60, 5)
    for r in lz.measure_arrays(x, labels=np.arange(60) % 3, outputs=x[:, :2], interval=5):
        low, high = CATALOGUE[r.measure].bounds
        assert r.low is None or low <= r.low <= r.value <= r.high <= high


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.ones(30, 6), r"a loader or a list of batches, got Tensor.*\[x\]"),
        ((torch.ones(30, 6), torch.ones(30)), "got tuple"),
        (3, "got int"),
        ("text", "got str"),
    ],
)
def test_what_is_no_loader_is_refused(data: object, message: str) -> None:
    with pytest.raises(LazyrichError, match=message):
        lz.measure(net(), data)


def test_models_without_weights_are_refused() -> None:
    with pytest.raises(LazyrichError, match="lazy modules without weights"):
        lz.measure(nn.LazyLinear(3), in_batches(60))
    with pytest.raises(LazyrichError, match="meta device"):
        lz.measure(nn.Linear(6, 3, device="meta"), in_batches(60))


def test_a_layer_that_changes_its_width_is_named() -> None:
    data = [torch.randn(8, 3, 4), torch.randn(8, 5, 4)]
    model = nn.Sequential(nn.Linear(4, 2))
    with pytest.raises(ShapeError, match="batch 1: it has 10 units here and had 6"):
        lz.measure(model, data, layers="0", view="flatten")


def test_outputs_that_are_masked_with_infinity_spoil_only_what_needs_them() -> None:
    class Masked(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).masked_fill(torch.tensor([True, False, False]), -math.inf)

    model = nn.Sequential(Masked(6, 3))
    with pytest.raises(NonFinite, match="the model's outputs beside it hold NaN or infinity"):
        lz.measure(model, in_batches(60), layers="penultimate")
    found = lz.measure(model, in_batches(60), "effective_dimension", layers="penultimate")
    assert found[0].value > 1


def test_the_interval_of_a_measure_between_layers_uses_the_same_blocks_for_both() -> None:
    x, _ = samples(60, torch.float64)
    records = lz.measure_arrays({"a": x, "b": 3 * x}, ["total_compression"], interval=5)
    assert records[0].layer == "a -> b"
    assert records[0].value == pytest.approx(0, abs=1e-12)
    assert records[0].standard_error == pytest.approx(0, abs=1e-12)
    assert len(records) == 1, "the dimensions it needs were not asked for"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_half_precision_gives_the_numbers_of_its_rounded_rows(dtype: torch.dtype) -> None:
    x, y = samples(dtype=dtype)
    outputs = x[:, :3] + 0.5
    names = ["effective_dimension", "nc1", "richness_align"]
    found = lz.measure_arrays(x, names, labels=y, outputs=outputs)
    exact = lz.measure_arrays(x.double(), names, labels=y, outputs=outputs.double())
    assert found.values() == pytest.approx(exact.values(), rel=1e-5)
    assert found[0].dtype == ("float64" if dtype == torch.float64 else "float32")


def test_the_precision_asked_for_is_used_and_stated() -> None:
    x, _ = samples()
    found = lz.measure_arrays(x, "effective_dimension", dtype=torch.float64)[0]
    assert found.dtype == "float64"
    with pytest.raises(LazyrichError, match=r"float32, float64 or None"):
        lz.measure_arrays(x, dtype=torch.int32)


def test_wide_arrays_are_measured_in_their_span_with_the_same_values() -> None:
    x = torch.randn(30, 200, dtype=torch.float64) / torch.arange(1, 201)
    f = x[:, :2] + 0.1
    names = ["effective_dimension", "low_rank_richness", "nc1"]
    wide = lz.measure_arrays(x, names, labels=np.arange(30) % 3, outputs=f)
    tall = [CATALOGUE["effective_dimension"].function(Moments.of(Batch(x)))]
    assert wide[0].d == 200
    first = tall[0] if isinstance(tall[0], float) else tall[0].value
    assert wide[0].value == pytest.approx(first, rel=1e-12)
    kernel = x - x.mean(0)
    projector = f @ torch.linalg.pinv(f)
    h = torch.eye(30, dtype=torch.float64) - 1 / 30
    k, p = kernel @ kernel.T, h @ projector @ h
    assert wide[1].value == pytest.approx(float(1 - (k * p).sum() / k.norm() / p.norm()), rel=1e-10)


def test_what_the_data_does_not_allow_is_left_out_unless_asked_for() -> None:
    x, _ = samples()
    found = lz.measure(net(), [x])
    assert "nc1" not in found.unique("measure")
    assert "effective_dimension" in found.unique("measure")
    with pytest.raises(MissingInput, match=r"nc1: .*need a label.*\(inputs, labels\)"):
        lz.measure(net(), [x], ["nc1"])
    with pytest.raises(MissingInput, match=r"low_rank_richness: .*need the model's outputs"):
        lz.measure_arrays(x, ["low_rank_richness"])
    with pytest.raises(MissingInput, match=r"accuracy: .*'outputs', which is not among"):
        lz.measure(net(), in_batches(60), ["accuracy"], layers="0")


def test_a_layer_that_cannot_be_read_is_a_row_with_the_reason() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    found = lz.measure(Idle(), in_batches(60), ["effective_dimension"])
    (row,) = found.where(layer="spare")
    assert math.isnan(row.value)
    assert row.status == "failed"
    assert "never ran" in row.note


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_name_layer_and_batch(bad: float) -> None:
    data = in_batches(10)
    data[5][0][3, 2] = bad
    with pytest.raises(NonFinite, match=r"layer '0', batch 5: .*NaN or infinity"):
        lz.measure(net(), data)
    x, _ = samples()
    x[3, 2] = bad
    with pytest.raises(NonFinite, match="layer 'V1'"):
        lz.measure_arrays({"V1": x})


def test_too_few_samples() -> None:
    x, y = samples(1)
    with pytest.raises(TooFewSamples, match="1 sample, and two or more are needed"):
        lz.measure(net(), [(x, y)])
    with pytest.raises(TooFewSamples, match="interval=10 needs 20 samples or more.*has 12"):
        lz.measure(net(), [samples(12)], interval=10)
    with pytest.raises(TooFewSamples, match="the loader is empty or used up"):
        lz.measure(net(), [])
    with pytest.raises(TooFewSamples, match="no array was given"):
        lz.measure_arrays({})
    with pytest.raises(LazyrichError, match="interval=1: "):
        lz.measure(net(), in_batches(60), interval=1)


def test_memory_is_refused_before_the_work() -> None:
    with pytest.raises(MemoryRefused, match=r"widest is '\w+' with 8 units.*raise memory_limit"):
        lz.measure(net(), in_batches(60), memory_limit=1e-9)
    with pytest.raises(MemoryRefused, match="'V1' with 70 units"):
        lz.measure_arrays({"V1": np.ones((90, 70))}, memory_limit=1e-6)


@pytest.mark.parametrize(
    ("activations", "options", "error", "message"),
    [
        (np.ones(5), {}, ShapeError, r"needs \[n samples, d units\], got \[5\]"),
        (np.ones((5, 2, 2)), {}, ShapeError, "view='flatten'"),
        (
            {"V1": np.ones((5, 2))},
            {"labels": [0, 1]},
            ShapeError,
            "V1: 5 samples came with 2 labels",
        ),
        (
            {"V1": np.ones((5, 2))},
            {"outputs": [0, 1]},
            ShapeError,
            "V1: 5 samples came with 2 outputs",
        ),
        ({"V1": [["a", "b"]]}, {}, ShapeError, "V1: not an array of numbers"),
        (np.ones((5, 2)), {"labels": np.ones((5, 2))}, ShapeError, "one class for each sample"),
        (np.ones((5, 2)), {"labels": [0, 1, math.nan, 1, 0]}, NonFinite, "labels: NaN"),
        (np.ones((5, 2)), {"view": "avg"}, LazyrichError, "no view matches 'avg'"),
        (np.ones((5, 2)) * 1j, {}, ShapeError, "complex numbers"),
    ],
)
def test_bad_arrays_are_refused_by_name(
    activations: object, options: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        lz.measure_arrays(activations, **options)


@pytest.mark.parametrize("seed", [0, 1])
def test_class_means_that_fill_fewer_dimensions_than_they_seem_to(seed: int) -> None:
    """A hundred classes through three dimensions, in float32 as networks compute."""
    torch.manual_seed(seed)
    y = torch.arange(2000) % 100
    x = torch.randn(2000, 32) + torch.randn(100, 32)[y]
    model = nn.Sequential(nn.Linear(32, 3), nn.Linear(3, 64), nn.LayerNorm(64), nn.Linear(64, 100))
    found = lz.measure(model, [(x, y)], "nc1")
    exact = lz.measure(model.double(), [(x.double(), y)], "nc1")
    assert found.values() == pytest.approx(exact.values(), rel=1e-3)
    wide = lz.measure(model.float(), [(x, y)], "nc1", dtype=torch.float64)
    assert wide.values() == pytest.approx(exact.values(), rel=1e-3)


@pytest.mark.parametrize("scale", [1e-25, 1e-12, 1e12, 3e18])
def test_float32_of_extreme_size_is_squared_without_loss(scale: float) -> None:
    x, y = samples()
    names = ["effective_dimension", "nc1", "low_rank_richness"]
    plain, extreme = (
        lz.measure_arrays(x * s, names, labels=y, outputs=x[:, :2] + 0.3) for s in (1.0, scale)
    )
    assert extreme.values() == pytest.approx(plain.values(), rel=1e-4)


def test_a_module_whose_calls_vary_is_named() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step, self.times = nn.Linear(6, 6), 0

        def forward(self, x: Tensor) -> Tensor:
            self.times += 1
            for _ in range(self.times):
                x = self.step(x)
            return x

    with pytest.raises(NotExecuted, match="ran 2 times for batch 1, and 1 times for the first"):
        lz.measure(Growing(), in_batches(40))


def test_modules_named_like_the_two_roles_have_addresses_of_their_own() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.outputs, self.penultimate = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.penultimate(self.outputs(x))

    found = lz.measure(Named(), in_batches(60), "effective_dimension")
    widths = {r.layer: r.d for r in found}
    assert widths == {"outputs#1": 5, "penultimate": 5, "penultimate#1": 3, "outputs": 3}


def test_labels_may_be_names() -> None:
    x, y = samples()
    names = np.array(["cat", "dog", "eel"])[y.numpy()]
    a, b = (lz.measure_arrays(x, "nc1", labels=labels).values() for labels in (y, names))
    assert a == b


def test_arrays_of_images_are_read_by_a_view() -> None:
    x = torch.randn(40, 3, 4, 4)
    flat = lz.measure_arrays(x, "effective_dimension", view="flatten")
    mean = lz.measure_arrays(x, "effective_dimension", view="mean")
    assert (flat[0].d, mean[0].d) == (48, 3)
    assert flat.values() == lz.measure_arrays(x.flatten(1), "effective_dimension").values()


def test_a_capture_says_itself_how_to_read() -> None:
    capture = lz.Capture(net(), "0", view="flatten")
    assert lz.measure(capture, in_batches(60)).unique("layer") == ["0"]
    with pytest.raises(LazyrichError, match="a Capture says itself"):
        lz.measure(capture, in_batches(60), layers="1")


def test_measuring_repeats_bit_for_bit() -> None:
    a, b = (lz.measure(net(), in_batches(50), interval=4) for _ in range(2))
    assert a == b


def test_tokens_of_one_sample_stay_in_one_block() -> None:
    """Repeating every sample as many tokens must not make the interval narrower."""
    x = torch.randn(40, 4)
    repeated = lz.Capture(nn.Identity(), "outputs", view="tokens")
    many = lz.measure(repeated, [x[:, None].expand(40, 25, 4)], "effective_dimension", interval=5)
    once = lz.measure_arrays(x, "effective_dimension", interval=5)
    assert many[0].n == 1000
    assert many[0].standard_error == pytest.approx(once[0].standard_error, rel=1e-4)
