"""Noise on a layer, and its projection: closed forms, and what the modules behind see."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError, ShapeError
from lazyrich.interventions import (
    Dropout,
    Gaussian,
    Noise,
    SaltAndPepper,
    Uniform,
    perturb,
    project,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def network(d: int = 12, classes: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, classes))


def task(n: int = 4000, d: int = 12) -> list[tuple[Tensor, Tensor]]:
    """Rows of unequal spread about a mean that is not zero, in uneven batches."""
    x = normal(n, d) * torch.linspace(2, 0.1, d) + 1
    y = network(d)(x).argmax(1)
    return [(x[: n // 4], y[: n // 4]), (x[n // 4 :], y[n // 4 :])]


def participation(x: Tensor) -> float:
    values = np.linalg.eigvalsh(np.cov(x.double().numpy().T, bias=True))
    return float(values.sum() ** 2 / (values**2).sum())


NOISES: list[Noise] = [
    Gaussian(0.7),
    Gaussian(0.4, relative=True),
    Uniform(1.1),
    Uniform(0.6, relative=True),
    Dropout(0.3),
    SaltAndPepper(0.2),
    SaltAndPepper(0.1, low=-1.0, high=4.0),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_the_effective_dimension_under_noise_is_that_in_closed_form(noise: Noise) -> None:
    records = perturb(network(), task(), "0", [noise], draws=4, interval=0)
    found = records.where(measure="effective_dimension", estimator=str(noise))[0]
    closed = float(found.note.removeprefix("in closed form "))
    assert found.value == pytest.approx(closed, rel=0.02)
    (plain,) = records.where(measure="effective_dimension", estimator="as it is")
    assert abs(found.value / plain.value - 1) > 0.05  # so that the two per cent mean something


def test_closed_forms_by_hand() -> None:
    """Two independent units of variances 4 and 1 and means 0 and 3."""
    from lazyrich.interventions._noises import Range
    from lazyrich.statistics import Moments

    half = torch.tensor(0.5, dtype=torch.float64)
    x = Moments(
        2 * half, torch.tensor([0.0, 3.0]).double(), torch.tensor([[4.0, 0], [0, 1]]).double()
    )
    seen = Range(-1.0, 5.0, 2.0)
    for noise, diagonal in (
        (Gaussian(1.0), [5.0, 2.0]),
        (Gaussian(1.0, relative=True), [8.0, 5.0]),
        (Uniform(3.0), [7.0, 4.0]),
        (Dropout(0.5), [8.0, 11.0]),
        # means (1 - p) m + p (low + high) / 2, squares (1 - p) E x² + p (low² + high²) / 2
        (SaltAndPepper(0.5), [0.5 * 4 + 0.5 * 13 - 1.0, 0.5 * 10 + 0.5 * 13 - 2.5**2]),
    ):
        assert noise.covariance(x, seen).tolist() == [[diagonal[0], 0.0], [0.0, diagonal[1]]]


def test_sampled_noise_is_what_it_says() -> None:
    from lazyrich.interventions._noises import Range

    x, generator = torch.full((200_000,), 2.0), torch.Generator().manual_seed(0)
    seen = Range(-1.0, 5.0, 3.0)
    drawn = Gaussian(0.5)(x, seen, generator) - x
    assert float(drawn.std()) == pytest.approx(0.5, rel=0.01)
    drawn = Uniform(0.5, relative=True)(x, seen, generator) - x
    assert float(drawn.abs().max()) == pytest.approx(1.5, rel=0.01)
    assert float(drawn.std()) == pytest.approx(1.5 / math.sqrt(3), rel=0.01)
    drawn = Dropout(0.2)(x, seen, generator)
    assert float((drawn == 0).double().mean()) == pytest.approx(0.2, rel=0.02)
    assert drawn.unique().tolist() == pytest.approx([0, 2.5])
    drawn = SaltAndPepper(0.2)(x, seen, generator)
    for extreme in (-1.0, 5.0):
        assert float((drawn == extreme).double().mean()) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("view", ["mean", "flatten", "tokens"])
def test_maps_are_changed_where_they_are_and_the_rest_of_the_network_sees_it(view: Any) -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(48, 2))
    x = normal(50, 1, 6, 6)
    y = (normal(50, seed=2) > 0).long()
    capture = lz.Capture(model, view=view)
    records = perturb(capture, [(x, y)], "0", [SaltAndPepper(1.0, 0.0, 0.0)], draws=1, interval=0)
    changed = model[3].bias.detach().argmax()
    found = records.where(measure="accuracy")
    assert found[1].value == pytest.approx(float((y == changed).double().mean()))
    assert records.where(measure="effective_dimension")[1].status == "undefined"
    assert "closed form" not in repr(records)


def test_strength_zero_changes_nothing_and_draws_are_told_by_the_seed() -> None:
    def values(seed: int, strength: float) -> list[float]:
        noises = [Gaussian(strength)]
        return (
            perturb(network(), task(400), "1", noises, seed=seed)
            .where(estimator=str(Gaussian(strength)))
            .values()
        )

    assert values(0, 0.0)[2:4] == [0.0, 0.0]
    assert values(0, 1.0) == values(0, 1.0)
    assert values(0, 1.0) != values(1, 1.0)


def test_changes_are_paired_sample_by_sample() -> None:
    model, data = network(), task(500)
    records = perturb(model, data, "0", [Dropout(0.5)], draws=1, interval=0)
    by = {r.measure: r for r in records if r.estimator == str(Dropout(0.5))}
    before = records.where(estimator="as it is", measure="cross_entropy")[0]
    difference = by["cross_entropy"].value - before.value
    assert by["cross_entropy_change"].value == pytest.approx(difference)
    assert by["accuracy_change"].value == pytest.approx(by["accuracy"].value - 1)
    assert by["accuracy"].low == pytest.approx(_wilson(by["accuracy"].value, 500), abs=1e-9)


def _wilson(p: float, n: int, z: float = 1.959963984540054) -> float:
    middle = p + z * z / (2 * n)
    return (middle - z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)


def test_the_input_of_the_last_linear_layer_can_be_changed() -> None:
    model, data = network(), task(300)
    one = perturb(model, data, "penultimate", [Gaussian(1.0)])
    other = perturb(model, data, "1", [Gaussian(1.0)])  # the same tensor, as outputs
    assert one.values() == other.values()
    assert one.unique("layer") == ["penultimate"]


def test_outputs_in_a_tuple_can_be_changed() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(3, 5, batch_first=True)
            self.fc = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.rnn(x)[0][:, -1])

    x, y = normal(40, 7, 3), torch.arange(40) % 2
    records = perturb(Reads(), [(x, y)], "rnn[0]", [Gaussian(5.0)], interval=0)
    assert records.where(measure="cross_entropy_change")[0].value != 0
    with pytest.raises(LazyrichError, match=r"rnn\[0\], rnn\[1\]\[0\]"):
        perturb(Reads(), [(x, y)], "rnn", [Gaussian(5.0)])


@pytest.mark.parametrize("layer", ["0", "penultimate"])
def test_the_model_comes_back_as_it_was(layer: str) -> None:
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    data = task(300)
    state = torch.get_rng_state()
    perturb(model, data, layer, [Gaussian(1.0)])
    project(model, data, data, layer, components=[2])
    assert model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_projection_by_hand() -> None:
    model, data = network(), task(600)
    fit, x = data[1][0], data[0][0]
    records = project(
        model, [fit[:100], fit[100:]], [(x, data[0][1])], "0", components=[3], draws=0, interval=0
    )
    hidden, other = (model[0](t).detach().double() for t in (fit, x))
    values, axes = np.linalg.eigh(np.cov(hidden.numpy().T))
    top, mean = torch.from_numpy(axes[:, ::-1][:, :3].copy()), hidden.mean(0)
    projected = (other - mean) @ top @ top.T + mean
    outputs = model[2](projected.float().relu()).detach()
    by = {r.measure: r for r in records if r.index == 3}
    entropy = nn.functional.cross_entropy(outputs, data[0][1])
    assert by["cross_entropy"].value == pytest.approx(float(entropy), rel=1e-5)
    assert by["effective_dimension"].value == pytest.approx(participation(projected), rel=1e-5)
    explained = values[::-1][:3].sum() / values.sum()
    assert by["explained_variance"].value == pytest.approx(explained, rel=1e-5)
    assert by["accuracy"].null is None and by["accuracy"].n == 150


def test_shares_of_variance_and_all_components() -> None:
    model, data = network(d=6), task(500, d=6)
    values = np.linalg.eigvalsh(np.cov(torch.cat([x for x, _ in data]).numpy().T))[::-1]
    shares = values.cumsum() / values.sum()
    inputs = nn.Sequential(nn.Identity(), model)
    found = project(inputs, data, data, "0", variance=[0.5, 0.9, 1.0], components=[6], interval=0)
    wanted = [int((shares < share - 1e-9).sum()) + 1 for share in (0.5, 0.9)]
    assert found.where(measure="explained_variance").unique("index") == [6, *wanted]
    whole = found.where(index=6, measure="accuracy_change", estimator="leading components")
    assert whole.values() == [0.0]


def test_projection_of_maps_acts_on_channels_at_every_place() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 5, 1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3))
    x = normal(60, 2, 4, 4)
    y = model(x).argmax(1)
    records = project(model, [x], [(x, y)], "0", components=[2], draws=3, interval=0)
    (accuracy,) = records.where(index=2, measure="accuracy")
    assert accuracy.value == 1.0  # two channels in, so that there are no more than two directions
    assert accuracy.null is not None and accuracy.null < 1
    with pytest.raises(LazyrichError, match="components=3: whole numbers up to 2"):
        project(model, [x], [(x, y)], "0", components=[3])


def test_collapsed_classes_need_one_component_less_than_there_are_classes() -> None:
    means = torch.linalg.qr(normal(20, 5))[0].T * 3
    y = torch.arange(500) % 5
    x = means[y] + 0.05 * normal(500, 20, seed=3)
    model = nn.Sequential(nn.Linear(20, 5))
    with torch.no_grad():
        model[0].weight.copy_(means)
        model[0].bias.zero_()
    records = project(model, [x], [(x, y)], "penultimate", components=[1, 2, 3, 4], interval=0)
    accuracy = records.where(measure="accuracy", estimator="leading components").values()
    assert accuracy[3] == 1.0 and max(accuracy[:3]) < 0.95


def test_targets_of_a_regression_and_a_page(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    data = [(normal(80, 4), normal(80, 2, seed=1))]
    records = perturb(model, data, "0", [Gaussian(0.5)])
    records += project(model, data, data, "0", components=[2])
    assert set(records.unique("measure")) == {
        "squared_error",
        "squared_error_change",
        "effective_dimension",
        "explained_variance",
    }
    assert "squared_error_change" in lz.report(records, tmp_path / "page.html").read_text()


def once() -> Iterator[Any]:
    yield from task(100)


@pytest.mark.parametrize(
    "layer, noises, options, told",
    [
        ("0", [], {}, "one or more is needed"),
        ("0", [Gaussian(1.0)], {"draws": 0}, "draws=0"),
        ("outputs", [Gaussian(1.0)], {}, "one layer before the outputs"),
        ("*", [Gaussian(1.0)], {}, "names 0, 1, penultimate, 2"),
        ("nowhere", [Gaussian(1.0)], {}, "no layer matches 'nowhere'"),
        ("0", [SaltAndPepper(0.1)], {"data": once()}, "can be read only once"),
        ("0", [Gaussian(1.0)], {"data": [normal(20, 12)]}, "no labels"),
        ("0", [Gaussian(1.0)], {"data": task(12), "interval": 10}, "interval=10 needs 20"),
    ],
)
def test_bad_input_is_told(layer: str, noises: Any, options: dict[str, Any], told: str) -> None:
    data = options.pop("data", task(100))
    with pytest.raises((LazyrichError, ShapeError), match=told):
        perturb(network(), data, layer, noises, **options)


@pytest.mark.parametrize(
    "options, told",
    [
        ({}, "how many to keep"),
        ({"components": [1], "draws": -1}, "draws=-1"),
        ({"components": [0.5]}, "components=0.5: whole numbers up to 12"),
        ({"components": [17]}, "components=17: whole numbers up to 12"),
        ({"variance": [0]}, "variance=0: shares above 0"),
        ({"variance": [1.1]}, "variance=1.1"),
    ],
)
def test_bad_components_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(LazyrichError, match=told):
        project(network(), task(100), task(100), "0", **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(-1.0),
        lambda: Uniform(math.inf),
        lambda: Dropout(1.0),
        lambda: Dropout(-0.1),
        lambda: SaltAndPepper(1.5),
    ],
)
def test_bad_noise_is_told(make: Any) -> None:
    with pytest.raises(LazyrichError, match=r"is no (strength|share) of noise|leaves nothing"):
        make()
