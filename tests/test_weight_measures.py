"""Measures of how parameters move, in closed form."""

from math import isnan

import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import CATALOGUE, LazyrichError
from lazyrich.errors import LazyrichWarning
from lazyrich.statistics import Weights

gini = CATALOGUE["update_gini"]
share = CATALOGUE["update_share"]
distribution = CATALOGUE["neuron_distribution_change"]


def moved(by: Tensor, start: Tensor | None = None) -> tuple[Weights, Weights]:
    start = torch.zeros_like(by) if start is None else start
    return Weights({"w": start + by}), Weights({"w": start})


def test_gini_in_closed_form() -> None:
    assert gini(*moved(torch.eye(1, 50))) == pytest.approx(1 - 1 / 50)
    assert gini(*moved(torch.eye(1, 50, dtype=torch.bfloat16))) == pytest.approx(1 - 1 / 50)
    assert gini(*moved(torch.ones(50))) == pytest.approx(0)
    assert gini(*moved(torch.arange(1.0, 1001))) == pytest.approx((1000 - 1) / (3 * 1000))
    g = torch.Generator().manual_seed(0)
    exponential = torch.empty(200_000, dtype=torch.float64).exponential_(generator=g)
    assert gini(*moved(exponential)) == pytest.approx(0.5, abs=0.005)


def test_the_share_in_closed_form() -> None:
    assert share(*moved(torch.eye(1, 50))) == 1 / 50
    assert share(*moved(torch.ones(50))) == pytest.approx(0.9)
    assert share.using(mass=0.5)(*moved(torch.ones(50))) == 0.5
    g = torch.Generator().manual_seed(0)
    normal = torch.randn(200_000, generator=g, dtype=torch.float64)
    assert share(*moved(normal)) == pytest.approx(0.444, abs=0.003)
    with pytest.raises(LazyrichError, match="mass=1.5: a share"):
        share.using(mass=1.5)(*moved(normal))


def test_sparsity_is_of_movement_and_of_all_tensors_together() -> None:
    g = torch.Generator().manual_seed(1)
    by, start = torch.randn(2, 40, generator=g, dtype=torch.float64)
    for m in (gini, share):
        expected = m(*moved(by))
        assert m(*moved(7 * by)) == pytest.approx(expected)
        assert m(*moved(by, start)) == pytest.approx(expected)
        apart = (
            Weights({"a": by[:10], "b": by[10:]}),
            Weights({"a": start[:10] * 0, "b": start[10:] * 0}),
        )
        assert m(*apart) == pytest.approx(expected)
        with pytest.warns(LazyrichWarning, match="no parameter has moved"):
            assert isnan(m(*moved(by * 0, start)))


def test_the_distribution_of_neurons_in_closed_form() -> None:
    g = torch.Generator().manual_seed(2)
    start = torch.randn(30, 4, generator=g, dtype=torch.float64)
    size = start.square().mean().sqrt().item()
    assert distribution(*moved(torch.full_like(start, 0.3), start)) == pytest.approx(0.3 / size)
    shuffled = start[torch.randperm(30, generator=g)]
    assert distribution(Weights({"w": shuffled}), Weights({"w": start})) == 0
    by_input = start * torch.tensor([2.0, 1, 1, 1])  # a scale of one input: its mean size / 4
    expected = start[:, 0].abs().mean().item() / 4 / size
    assert distribution(Weights({"w": by_input}), Weights({"w": start})) == pytest.approx(expected)
    kernels = (Weights({"w": t.reshape(30, 2, 2, 1)}) for t in (by_input, start))
    assert distribution(*kernels) == pytest.approx(expected)


def test_layers_without_rows_and_starts_at_zero_are_told() -> None:
    with pytest.warns(LazyrichWarning, match="row of weights for each unit"):
        assert isnan(distribution(*moved(torch.ones(5))))
    with pytest.warns(LazyrichWarning, match="zero at the start"):
        assert isnan(distribution(*moved(torch.ones(5, 2))))


def test_a_recorder_follows_them_layer_by_layer(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    names = [gini.name, share.name, distribution.name]
    path = tmp_path / "run.jsonl"
    with lz.Recorder(
        model, [torch.randn(20, 4)], path, measures=names, when=lz.every(1)
    ) as recorder:
        recorder.step(0)
        with torch.no_grad():
            model[0].weight.add_(1.0)
            model[1].weight.add_(1.0)
        recorder.step(1)
    found = lz.Records.load(path).where(step=1)
    assert found.where(layer="0", measure="update_share").values() == [22 / 30]  # 24 of 30 moved
    assert found.where(layer="0", measure=distribution.name)[0].value > 0
    assert found.where(layer="1", measure=distribution.name)[0].status == "undefined"
    assert found.where(layer="2", measure="update_gini")[0].note == "no parameter has moved"


def test_what_a_parametrization_makes_a_weight_of_counts_as_its_layers() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)))
    parts = Weights.of(model).by_module()
    assert list(parts) == ["0", "1"]
    assert sorted(parts["1"].tensors) == ["bias", "weight.original0", "weight.original1"]
    alone = Weights.of(nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))).by_module()
    assert list(alone) == ["model"]
