"""NC3 and NC4: weights of the last layer beside class means, and what both of them decide."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import CATALOGUE, LazyrichError, published
from lazyrich.errors import MissingInput
from lazyrich.integrations.torchmetrics import MeasureMetric
from lazyrich.statistics import NO_LABEL, Batch, ClassMoments, Moments, NearestMeans
from lazyrich.statistics.nearest import beside_means
from oracles import neural_collapse as oracle

NC3, NC4 = CATALOGUE["nc3"], CATALOGUE["nc4"]
Data = list[tuple[Tensor, Tensor]]


def simplex(k: int = 4) -> Tensor:
    """Class means of a collapsed network, each class once."""
    return torch.eye(k, dtype=torch.float64) - 1 / k


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def data(n: int = 120, size: int = 50) -> Data:
    g = torch.Generator().manual_seed(1)
    x, y = torch.randn(n, 6, generator=g, dtype=torch.float64), torch.arange(n) % 3
    return list(zip(x.split(size), y.split(size), strict=True))


def seen(model: nn.Sequential, batches: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and outputs of the whole."""
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    with torch.no_grad():
        return model[:-1](x).numpy(), y.numpy(), model(x).numpy()


@pytest.mark.parametrize(
    ("weights", "value"),
    [
        (simplex(), 0),
        (17 * simplex(), 0),
        (-simplex(), 4),
        (simplex()[[1, 0, 3, 2]], 8 / 3),  # cosine -1/3
        (torch.eye(4, dtype=torch.float64), 2 - 2 * math.sqrt(3 / 4)),
    ],
)
def test_nc3_of_a_simplex(weights: Tensor, value: float) -> None:
    labels = torch.arange(40) % 4
    classes = ClassMoments.of(Batch(3 * simplex()[labels] + 5, labels))
    assert NC3(classes, head=weights) == pytest.approx(value, abs=1e-12)


def test_nc3_leaves_out_the_weights_of_classes_that_no_sample_belongs_to() -> None:
    labels = torch.tensor([0, 3, 4])[torch.arange(30) % 3]
    weights = torch.randn(6, 3, dtype=torch.float64)
    weights[[0, 3, 4]] = 2 * simplex(3)
    rows = simplex(3)[torch.arange(30) % 3]
    assert NC3(ClassMoments.of(Batch(rows, labels)), head=weights) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "weights", "reason"),
    [
        ([0, 0, 0, 0], simplex(), "needs 2 classes or more, saw 1"),
        ([0, 1, 2, 4], simplex(), "labels from 0 to 4 do not number 4 outputs"),
        ([-1, 1, 2, 3], simplex(), "labels from -1 to 3 do not number 4 outputs"),
        ([0, 1, 2, 3], torch.zeros(4, 4), "the weights are zero or not finite"),
        ([0, 1, 2, 3], torch.full((4, 4), math.nan), "the weights are zero or not finite"),
        ([0, 1, 2, 3], torch.ones(4, 7), "the weights are of 7 units, the rows of 4"),
    ],
)
def test_nc3_is_undefined_with_a_reason(labels: list[int], weights: Tensor, reason: str) -> None:
    found, defined = NC3.evaluate(
        ClassMoments.of(Batch(simplex(), torch.tensor(labels))), head=weights
    )
    assert not defined and math.isnan(found.value) and found.note == reason


def test_both_agree_with_a_direct_computation_in_a_network() -> None:
    model, batches = net(), data()
    features, labels, outputs = seen(model, batches)
    found = lz.measure(model, batches, ["nc3", "nc4"])
    assert [(r.layer, r.measure) for r in found] == [("penultimate", "nc3"), ("penultimate", "nc4")]
    head = model[-1].weight.detach().numpy()
    wanted = oracle.nc3(features, labels, outputs, head), oracle.nc4(features, labels, outputs)
    assert found.values() == pytest.approx(wanted, rel=1e-10)
    assert found[1].note == f"{round(120 * wanted[1])} of 120 samples differ"
    assert 0.2 < wanted[1] < 0.9, "a case that decides nothing"


@pytest.mark.parametrize("size", [1, 7, 120])
@pytest.mark.parametrize("interval", [0, 5])
def test_batches_do_not_change_a_number(size: int, interval: int) -> None:
    names = ["nc3", "nc4"]
    whole = lz.measure(net(), data(), names, interval=interval)
    found = lz.measure(net(), data(size=size), names, interval=interval)
    assert found.values() == pytest.approx(whole.values(), rel=1e-10)
    for r, other in zip(found, whole, strict=True):
        if interval:
            assert r.standard_error == pytest.approx(other.standard_error, rel=1e-9)
            assert r.low < r.value < r.high


def test_the_interval_of_nc4_is_that_of_a_share() -> None:
    row = lz.measure(net(), data(600), "nc4", interval=20)[0]
    assert row.standard_error == pytest.approx(
        math.sqrt(row.value * (1 - row.value) / 600), rel=0.5
    )


def test_fewer_samples_than_units_are_no_trouble() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 3)).double()
    batches = data(12)
    features, labels, outputs = seen(model, batches)
    head = model[-1].weight.detach().numpy()
    found = lz.measure(model, batches, ["nc4", "nc3", "nc1"], layers="penultimate")
    assert found[0].value == pytest.approx(oracle.nc4(features, labels, outputs))
    assert found[1].value == pytest.approx(oracle.nc3(features, labels, outputs, head), rel=1e-10)


@pytest.mark.parametrize("how", ["parametrized", "hooked"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_a_head_that_makes_its_weights_is_read_as_it_works(how: str) -> None:
    model = net()
    with torch.no_grad():
        model[-1].weight.mul_(torch.tensor([[1.0], [2.0], [5.0]]))
    plain = lz.measure(model, data(), "nc3").values()
    norm = nn.utils.parametrizations.weight_norm if how == "parametrized" else nn.utils.weight_norm
    norm(model[-1])
    with torch.no_grad():  # both factors together make the same weights as before
        if how == "parametrized":
            model[-1].parametrizations.weight.original1.mul_(3)
        else:
            model[-1].weight_v.mul_(3)
    assert lz.measure(model, data(), "nc3").values() == pytest.approx(plain, rel=1e-10)


def test_without_a_head_nc3_is_left_out_unless_asked_for() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Linear(6, 8), nn.Parameter(torch.randn(8, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x).relu() @ self.last

    model = lz.Capture(Bare().double(), penultimate="body")
    assert "nc3" not in lz.measure(model, data()).unique("measure")
    with pytest.raises(MissingInput, match="nc3: compares with the weights.*no Linear reads them"):
        lz.measure(model, data(), "nc3")
    with pytest.raises(MissingInput, match="nc3: .*arrays do not bring.*lz.measure"):
        lz.measure_arrays({"penultimate": torch.randn(9, 2)}, "nc3", labels=np.arange(9) % 3)
    with pytest.raises(MissingInput, match="nc3: class moments need a label"):
        lz.measure(net(), [x for x, _ in data()], "nc3")
    with pytest.raises(MissingInput, match="nc3: .*'penultimate', which is not among"):
        lz.measure(net(), data(), "nc3", layers="0")


def test_the_head_is_not_tied_to_a_name() -> None:
    @published("somebody, somewhere, 2026", layer="penultimate")
    def head_size(x: Moments, head: Tensor) -> float:
        r"""Size of the head. $\lVert W \rVert_F$"""
        return head.norm().item()

    try:
        (row,) = lz.measure(net(), data(), "head_size")
        assert row.value == pytest.approx(net()[-1].weight.norm().item())
    finally:
        CATALOGUE.pop("head_size")


def test_the_head_is_the_linear_that_reads_the_features_named() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(3, 3)).double()
    named = lz.Capture(model, penultimate="1:input")
    x, y = data(size=120)[0]
    features = model[0](x).detach().numpy()
    wanted = oracle.nc3(features, y.numpy(), None, model[1].weight.detach().numpy())
    assert lz.measure(named, data(), "nc3").values() == [pytest.approx(wanted)]


def test_flattened_tokens_do_not_fit_their_head() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3)).double()
    tokens = [(x.reshape(-1, 3, 2), y) for x, y in data()]
    row = lz.measure(model, tokens, "nc3", layers="penultimate", view="flatten")[0]
    assert row.status == "undefined" and row.note == "the weights are of 4 units, the rows of 12"
    assert lz.measure(model, tokens, "nc3", view="mean")[0].status == "ok"


def test_nc3_is_measured_by_default_and_nc4_when_asked_for() -> None:
    names = lz.measure(net(), data()).unique("measure")
    assert "nc3" in names and "nc4" not in names


def test_nc4_of_collapsed_features_is_zero_and_of_turned_outputs_one() -> None:
    labels = torch.arange(40) % 4
    rows = {"penultimate": 2 * simplex()[labels] + 1}
    right, wrong = (
        lz.measure_arrays(rows, "nc4", labels=labels, outputs=simplex()[at % 4])[0]
        for at in (labels, labels + 1)
    )
    assert (right.value, wrong.value) == (0, 1)
    assert right.note == "0 of 40 samples differ"


def test_nc4_of_arrays_in_more_units_than_samples() -> None:
    g = np.random.default_rng(0)
    x, labels, outputs = g.normal(size=(30, 100)) + 1e3, np.arange(30) % 3, g.normal(size=(30, 3))
    (row,) = lz.measure_arrays({"penultimate": x}, "nc4", labels=labels, outputs=outputs)
    assert row.value == pytest.approx(oracle.nc4(x, labels, outputs))
    assert row.d == 100


def test_nc4_counts_samples_with_a_label_only() -> None:
    g = np.random.default_rng(0)
    x, labels, outputs = g.normal(size=(60, 5)), np.arange(60) % 3, g.normal(size=(60, 4))
    more = np.concatenate([labels, np.full(9, NO_LABEL)])
    padded, other = (np.concatenate([a, 50 + a[:9]]) for a in (x, outputs))
    alone, mixed = (
        lz.measure_arrays({"penultimate": a}, "nc4", labels=b, outputs=c)[0]
        for a, b, c in ((x, labels, outputs), (padded, more, other))
    )
    assert alone.value == mixed.value == oracle.nc4(x, labels, outputs)


@pytest.mark.parametrize(
    ("labels", "spread", "reason"),
    [
        (np.zeros(12, int), 1.0, "there are no two classes whose means differ"),
        (np.arange(12) % 3, 0.0, "there are no two classes whose means differ"),
        (np.full(12, NO_LABEL), 1.0, "no sample has a label"),
        (np.arange(12) % 4, 1.0, "labels from 0 to 3 do not number 3 outputs"),
    ],
)
def test_nc4_is_undefined_with_a_reason(labels: np.ndarray, spread: float, reason: str) -> None:
    x = 7 + spread * torch.randn(12, 5)
    outputs = torch.randn(12, 3)
    (row,) = lz.measure_arrays({"penultimate": x}, "nc4", labels=labels, outputs=outputs)
    assert row.status == "undefined" and row.note == reason


def test_data_that_can_be_read_once_is_refused_before_the_work() -> None:
    def once() -> Iterator[tuple[Tensor, Tensor]]:
        raise AssertionError("read")
        yield

    with pytest.raises(LazyrichError, match="nc4: reads the data twice.*not a generator"):
        lz.measure(net(), once(), "nc4")


def test_data_that_differs_from_reading_to_reading_is_refused() -> None:
    class Dwindling:
        left = 3

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.left -= 1
            return iter(data()[: self.left])

    with pytest.raises(LazyrichError, match="gave 100 rows when it was read first, and then 50"):
        lz.measure(net(), Dwindling(), "nc4")


def test_what_nc4_lacks_is_told_before_the_second_reading() -> None:
    with pytest.raises(MissingInput, match="nc4: .*need a label"):
        lz.measure(net(), [x for x, _ in data()], "nc4")
    with pytest.raises(MissingInput, match="nc4: .*need the model's outputs"):
        lz.measure_arrays({"penultimate": torch.randn(9, 2)}, "nc4", labels=np.arange(9) % 3)
    with pytest.raises(MissingInput, match="nearest class means are known from a first reading"):
        NearestMeans.of(Batch(torch.ones(3, 2), torch.arange(3), torch.ones(3, 3)))


def test_statistics_of_parts_add_up() -> None:
    x, labels = torch.randn(50, 4), torch.arange(50) % 3
    whole = beside_means(Batch(x, labels, torch.randn(50, 3)), ClassMoments.of(Batch(x, labels)))
    a, b, c = (NearestMeans.of(whole.rows(at)) for at in torch.arange(50).split([20, 1, 29]))
    assert (a + b) + c == a + (b + c) == NearestMeans.of(whole)
    assert (a + b + c).n == 50


def test_shuffled_loaders_and_models_that_draw_show_the_same_rows_twice() -> None:
    x, y = (torch.cat(parts) for parts in zip(*data(), strict=True))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True
    )
    shuffled, given = (lz.measure(net(), d, "nc4", seed=3).values() for d in (loader, data()))
    assert shuffled == given


def test_several_models_and_recorded_steps(tmp_path: Path) -> None:
    one = lz.measure(net(), data(), "nc4")[0].value
    twins = lz.measure({"a": net(), "b": net().float().double()}, data(), ["nc3", "nc4"])
    assert {r.run for r in twins} == {"a", "b"}
    assert twins.where(run="a", measure="nc4")[0].value == one
    with lz.Recorder(net(), iter(data()), tmp_path / "run.jsonl", ["nc3", "nc4"]) as recorder:
        assert recorder.step(0).where(measure="nc4")[0].value == one


def test_a_cache_is_read_twice_as_well(tmp_path: Path) -> None:
    for _ in range(2):
        found = lz.measure(lz.Capture(net(), cache=tmp_path), data(), ["nc3", "nc4"])
        assert found.values() == lz.measure(net(), data(size=120), ["nc3", "nc4"]).values()


def test_one_statistic_is_not_enough_for_torchmetrics() -> None:
    for name in ("nc3", "nc4"):
        with pytest.raises(LazyrichError, match=f"{name} is no function of one statistic"):
            MeasureMetric(name)


def on_rank(rank: int, folder: str, sizes: list[int]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x, y = data(size=120)[0]
    ids = torch.arange(120)
    parts = [tuple(column.split(sizes)[rank] for column in (x, y, ids))]
    if rank and len(sizes) == 2:  # as samplers fill up the last batch
        parts = [tuple(torch.cat([p, c[:1]]) for p, c in zip(parts[0], (x, y, ids), strict=True))]
    capture = lz.Capture(net(), unpack=lambda item: tuple(item))
    found = lz.measure(
        capture, parts if sizes[rank] else [], ["nc3", "nc4"], interval=4, progress=False
    )
    found.save(Path(folder, str(rank)))
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, about groups
@pytest.mark.parametrize("sizes", [[80, 40], [120, 0, 0]])
def test_two_processes_report_what_one_does(tmp_path: Path, sizes: list[int]) -> None:
    mp.spawn(on_rank, (str(tmp_path), sizes), nprocs=2)
    alone = lz.measure(net(), data(), ["nc3", "nc4"], interval=4)
    for rank in range(2):
        found = lz.Records.load(tmp_path / str(rank))
        assert found.values() == pytest.approx(alone.values(), rel=1e-11)
        assert [r.n for r in found] == [120, 120]
        assert found[1].standard_error == pytest.approx(alone[1].standard_error)
