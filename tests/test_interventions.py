"""Interventions: what they overwrite, what they score, and what they leave as it was."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError, ShapeError
from lazyrich.interventions import InputMask, mask_inputs


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Looks(nn.Module):
    """Whose first two inputs decide."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(10, 2)
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.weight[0, 0] = self.fc.weight[1, 1] = 1
            self.fc.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def task(n: int = 60) -> list[tuple[Tensor, Tensor]]:
    x = normal(n, 10)
    return [(x[:7], x[:7, :2].argmax(1)), (x[7:], x[7:, :2].argmax(1))]


def values(records: lz.Records, measure: str) -> dict[int | None, float]:
    return {r.index: r.value for r in records if r.measure == measure}


def test_what_matters_is_enough_and_nothing_else_is() -> None:
    model, data = Looks(), task()
    agop = lz.agop(model, [data[1][0]], "fc")
    kept = mask_inputs(model, data, agop, keep=[0.2])
    removed = mask_inputs(model, data, agop, remove=[0.2])
    assert values(kept, "accuracy") == {10: 1.0, 2: 1.0}
    assert values(removed, "accuracy")[10] == 1.0
    assert values(removed, "accuracy")[8] < 0.8
    assert kept[0].estimator == "keep by agop of fc"


def test_scores_by_hand() -> None:
    model, data = Looks(), task()
    x, y = (torch.cat([pair[k] for pair in data]) for k in (0, 1))
    records = mask_inputs(model, data, torch.arange(10.0), keep=[0.95, 0.9], fill=0.5, draws=0)
    masked = torch.cat([torch.full((60, 1), 0.5), x[:, 1:]], 1)
    outputs = model(masked).detach()
    each = nn.functional.cross_entropy(outputs, y, reduction="none").double()
    accuracy, entropy = records.where(index=9)
    assert accuracy.value == pytest.approx(float((outputs.argmax(1) == y).double().mean()))
    assert entropy.value == pytest.approx(float(each.mean()), rel=1e-6)
    assert entropy.standard_error == pytest.approx(float(each.std()) / math.sqrt(60), rel=1e-5)
    assert accuracy.low is not None and accuracy.high is not None
    assert 0 < accuracy.low < accuracy.value < accuracy.high < 1
    assert accuracy.null is None and accuracy.n == 60 and accuracy.d == 10
    assert len(records.where(index=10)) == 4  # 0.95 of ten is ten


def test_one_share_needs_no_list_and_empty_batches_are_passed_over() -> None:
    data = [*task(), (normal(0, 10), torch.zeros(0).long())]
    one = mask_inputs(Looks(), data, torch.ones(10), keep=0.5)
    assert list(one) == list(mask_inputs(Looks(), task(), torch.ones(10), keep=[0.5]))
    with pytest.raises(LazyrichError, match="booleans"):
        InputMask([True, False])  # type: ignore[arg-type]


def test_the_null_level_is_that_of_random_inputs() -> None:
    model, data = Looks(), task()
    agop = lz.agop(model, [data[1][0]], "fc")
    first, second = (mask_inputs(model, data, agop, keep=[0.2], seed=s, draws=50) for s in (0, 0))
    assert list(first) == list(second)
    by_chance = first.where(index=2, measure="accuracy")[0].null
    assert by_chance is not None and 0.45 < by_chance < 0.75
    assert first.where(index=10, measure="accuracy")[0].null is None


def test_a_page_shows_them(tmp_path: Path) -> None:
    records = mask_inputs(Looks(), task(), torch.ones(10), keep=[0.5])
    assert "cross_entropy" in lz.report(records, tmp_path / "page.html").read_text()


def test_targets_of_a_regression() -> None:
    x = normal(20, 3)
    model = nn.Linear(3, 2)
    records = mask_inputs(model, [(x, normal(20, 2, seed=1))], torch.ones(3), keep=[0.0], draws=0)
    wanted = (model.bias.detach() - normal(20, 2, seed=1)).square().mean()
    assert values(records, "squared_error")[0] == pytest.approx(float(wanted), rel=1e-6)


def test_images_one_output_and_a_fill_of_their_own() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    x = normal(30, 3, 2, 2)
    y = (model(x)[:, 0] > 0).long()
    mean = x.mean(0)
    records = mask_inputs(model, [(x, y)], torch.ones(3, 2, 2), keep=[0.5], fill=mean, draws=0)
    assert values(records, "accuracy")[12] == 1.0
    mask = InputMask.of(torch.ones(3, 2, 2), keep=0.5, fill=mean)
    assert torch.equal(mask(x)[:, 0], x[:, 0]) and torch.equal(mask(x)[3, 2], mean[2])


def test_a_masked_network_learns_only_from_what_is_left() -> None:
    mask = InputMask.of(torch.arange(10.0), remove=0.9)
    model = nn.Sequential(mask, nn.Linear(10, 2))
    model(normal(5, 10)).sum().backward()
    assert bool((model[1].weight.grad[:, 0] != 0).all())
    assert bool((model[1].weight.grad[:, 1:] == 0).all())
    assert set(model.state_dict()) == {"0.kept", "0.fill", "1.weight", "1.bias"}


def test_the_model_comes_back_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(10), Looks(), nn.Dropout(0.5))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    mask_inputs(model, task(), torch.ones(10), keep=[0.5])
    assert model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, "either keep"),
        ({"keep": [0.5], "remove": [0.5]}, "either keep"),
        ({"keep": []}, "one share or more"),
        ({"keep": [1.5]}, "1.5 is no share"),
        ({"keep": [True]}, "True is no share"),
        ({"keep": "half"}, "is no share"),
        ({"keep": [0.5], "draws": 1.5}, "draws=1.5"),
        ({"keep": [0.5], "fill": None}, "fill=None"),
        ({"keep": [0.5], "seed": None}, "seed=None"),
        ({"keep": [0.5], "data": [(normal(5, 10) * math.nan, torch.zeros(5).long())]}, "NaN"),
        ({"keep": [0.5], "data": [(normal(5, 10)[:0], torch.zeros(0).long())]}, "is empty"),
        ({"keep": [0.5], "data": [(normal(1, 10), torch.tensor(1))]}, "single number"),
        ({"keep": [0.5], "draws": -1}, "draws=-1"),
        ({"keep": [0.5], "importance": torch.ones(4)}, "10 coordinates, and the mask is over 4"),
        ({"keep": [0.5], "importance": torch.full((10,), math.nan)}, "NaN"),
        ({"keep": [0.5], "importance": [1, 2]}, "importance"),
        ({"keep": [0.5], "fill": torch.ones(3)}, "fill holds 3 numbers for samples of 10"),
        ({"keep": [0.5], "data": [normal(5, 10)]}, "no labels"),
        ({"keep": [0.5], "data": [(normal(5, 10), torch.full((5,), 2))]}, "labels run from 2"),
        ({"keep": [0.5], "data": [(normal(5, 10), torch.zeros(4).long())]}, "5 samples and 4"),
        ({"keep": [0.5], "data": [(normal(5, 10), torch.zeros(5, 3))]}, r"targets \(5, 3\)"),
        ({"keep": [0.5], "data": [(torch.ones(5, 10).long(), torch.zeros(5).long())]}, "int64"),
    ],
)
def test_bad_input_is_told(options: dict[str, Any], told: str) -> None:
    options = {"data": task(), "importance": torch.ones(10)} | options
    with pytest.raises((LazyrichError, ShapeError), match=told):
        mask_inputs(Looks(), options.pop("data"), options.pop("importance"), **options)
