"""Slopes over widths: by hand, of networks whose slopes are known, and the verdict on them."""

from dataclasses import replace
from math import isnan

import numpy as np
import pytest
import torch
from scipy.stats import t
from torch import Tensor, nn

from lazyrich import Capture, Records
from lazyrich.errors import EmptyData, LazyrichError, MissingInput, ShapeError
from lazyrich.parametrization import (
    coordinate_check,
    coordinate_verdict,
    parametrize,
    slope,
)

D = 16
WIDTHS = (64, 128, 256, 512)


def data() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(D, D, generator=g, dtype=torch.float64)
    return x, torch.randn(D, 1, generator=g, dtype=torch.float64).sign()


def perceptron(width: int, depth: int) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(D, width, bias=False), nn.ReLU()]
    for _ in range(depth - 1):
        parts += [nn.Linear(width, width, bias=False), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 1, bias=False)).double()


def builder(kind: str, depth: int, lr: float, *, power: float = 0, optimizer: str = "sgd"):
    """Networks whose rate is that of width 256, times a power of the width."""

    def build(width: int, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = perceptron(width, depth)
        rate = lr * (width / 256) ** power
        groups = parametrize(model, kind, optimizer=optimizer, lr=rate, gain=2**0.5, seed=seed)
        return model, {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](groups)

    return build


def slopes(records: Records, measure: str = "feature_change") -> dict[str, float]:
    return {r.layer: r.value for r in records.where(measure=f"{measure}_slope")}


def test_a_power_is_found_with_students_interval() -> None:
    widths = [8, 16, 32, 64]
    exact = slope(widths, [3 * w**-0.5 for w in widths])
    assert exact.value == pytest.approx(-0.5)
    assert exact.high - exact.low < 1e-6
    powers = (-0.4, -0.5, -0.75)
    several = slope(widths, [[2 * w**p for w in widths] for p in powers])
    assert several.each == pytest.approx(powers)
    assert several.value == pytest.approx(np.mean(powers))
    error = np.std(powers, ddof=1) / 3**0.5
    assert several.standard_error == pytest.approx(error)
    assert several.high - several.value == pytest.approx(t.ppf(0.975, 2) * error)
    assert str(exact) == "-0.500 [-0.500, -0.500]"


def test_the_interval_of_one_row_covers_as_often_as_it_says() -> None:
    g = np.random.default_rng(0)
    widths = np.array([8, 16, 32, 64, 128])
    hits = 0
    for _ in range(400):
        found = slope(widths, widths**-1.0 * np.exp(0.2 * g.normal(size=5)))
        hits += found.low <= -1 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize(
    ("widths", "values", "error", "message"),
    [
        ([1, 2], [1, 2], ShapeError, "three different widths"),
        ([2, 2, 4], [1, 2, 3], ShapeError, "three different widths"),
        ([1, 2, 4], [1, 2], ShapeError, r"values of shape \(2,\) for 3 widths"),
        ([1, 2, 4], [1, 0, 2], LazyrichError, "values above zero"),
        ([1, 2, 4], [1, float("nan"), 2], LazyrichError, "values above zero"),
        ([0, 2, 4], [1, 2, 2], LazyrichError, "finite widths"),
    ],
)
def test_what_has_no_slope_is_told(widths, values, error, message) -> None:
    with pytest.raises(error, match=message):
        slope(widths, values)


CASES = {  # kind, depth, half the critical rate, its power of the width; slope of what is hidden
    "standard, rate over width": ("standard", 2, 0.0025, -1, -0.51, "fails"),
    "ntk": ("ntk", 2, 1.0, 0, -0.50, "fails"),
    "mup": ("mup", 2, 0.19, 0, 0.0, "passes"),
    "mean-field": ("mean-field", 1, 0.2, 0, 0.0, "passes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_features_change_by_the_power_of_the_width_that_theory_has(case: str) -> None:
    kind, depth, lr, power, wanted, word = CASES[case]
    build = builder(kind, depth, lr, power=power)
    widths = [2 * w for w in WIDTHS]
    found = coordinate_check(build, widths, [data()], steps=20, seeds=8, progress=False)
    assert slopes(found)[str(2 * depth - 2)] == pytest.approx(wanted, abs=0.05)
    assert coordinate_verdict(found).word == word
    start = slopes(found, "feature_size")["outputs"]
    assert start == pytest.approx(-0.5 if kind in ("mup", "mean-field") else 0, abs=0.12)


@pytest.mark.slow
def test_with_adam_every_kind_has_its_slopes() -> None:
    wanted = {"standard": (1.0, "fails"), "ntk": (-0.5, "fails"), "mup": (0.0, "passes")}
    rates = {"standard": 0.003, "ntk": 0.5, "mup": 0.01}
    for kind, (power, word) in wanted.items():
        build = builder(kind, 2, rates[kind], optimizer="adam")
        found = coordinate_check(build, WIDTHS, [data()], steps=1, seeds=5, progress=False)
        assert slopes(found)["2"] == pytest.approx(power, abs=0.12), kind
        assert coordinate_verdict(found).word == word


def test_one_rate_at_every_width_is_found_out() -> None:
    build = builder("standard", 2, 0.0025)
    found = coordinate_check(build, WIDTHS[:3], [data()], steps=5, seeds=3, progress=False)
    verdict = coordinate_verdict(found)
    assert verdict.word == "fails"
    assert any(why.startswith("outputs: feature_change_slope") for why in verdict.reasons)


def test_mup_with_a_plain_optimizer_is_found_out() -> None:
    def build(width: int, seed: int):
        model, _ = builder("mup", 2, 1.0, optimizer="adam")(width, seed)
        return model, torch.optim.Adam(model.parameters(), lr=0.001)

    found = coordinate_check(build, WIDTHS[:3], [data()], steps=5, seeds=3, progress=False)
    assert coordinate_verdict(found).word == "fails"


def test_changes_are_those_of_the_features_themselves() -> None:
    x, y = data()
    built = {}

    def build(width: int, seed: int):
        built[width, seed] = builder("mup", 1, 0.1)(width, seed)
        return built[width, seed]

    state = torch.get_rng_state()
    found = coordinate_check(build, (4, 8, 16), [(x, y)], steps=3, seeds=2, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    start, _ = builder("mup", 1, 0.1)(8, 1)
    model, _ = built[8, 1]
    change = (model[0](x) - start[0](x)).square().mean().sqrt().item()
    row = found.where(run="width 8", seed=1, layer="0", measure="feature_change")[0]
    assert row.value == pytest.approx(change, rel=1e-12)
    assert (row.step, row.n, row.d) == (3, 16, 8)
    size = found.where(run="width 8", seed=1, layer="outputs", measure="feature_size")[0]
    assert size.value == pytest.approx(start(x).square().mean().sqrt().item(), rel=1e-12)
    assert size.step == 0 and model.training
    each = [r.value for r in found.where(seed=1, layer="0", measure="feature_change")]
    alone = slope([4, 8, 16], each[:3])
    assert alone.value in slope([4, 8, 16], [each[:3], each[:3]]).each
    again = coordinate_check(build, (4, 8, 16), [(x, y)], steps=3, seeds=2, progress=False)
    assert again.values() == found.values()


def test_dropout_is_seeded_and_classes_are_learned_by_cross_entropy() -> None:
    x, _ = data()
    labels = torch.arange(16) % 3

    def build(width: int, seed: int):
        model = nn.Sequential(nn.Linear(D, width), nn.Dropout(0.5), nn.Linear(width, 3))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    runs = [
        coordinate_check(build, (4, 8, 16), [(x.float(), labels)], seeds=2, progress=False)
        for _ in range(2)
    ]
    assert runs[0].values() == runs[1].values()

    def loss(outputs: Tensor, labels: Tensor | None) -> Tensor:
        return nn.functional.cross_entropy(outputs, labels)

    own = coordinate_check(
        build, (4, 8, 16), [(x.float(), labels)], seeds=2, loss=loss, progress=False
    )
    assert own.values() == runs[0].values()
    two = [(x.float(), labels), (-x.float(), labels)]
    other = coordinate_check(build, (4, 8, 16), two, seeds=2, progress=False)
    assert other.values() != runs[0].values()


def test_a_capture_says_how_to_read() -> None:
    def build(width: int, seed: int):
        model, optimizer = builder("ntk", 1, 0.1)(width, seed)
        return Capture(model, ["0"], unpack=lambda item: (item["x"], item["y"])), optimizer

    x, y = data()
    found = coordinate_check(
        build, (4, 8, 16), [{"x": x, "y": y}], steps=1, seeds=2, progress=False
    )
    assert found.unique("layer") == ["0"]


def test_divergence_and_layers_at_rest() -> None:
    def frozen(width: int, seed: int):
        model, optimizer = builder("mup", 1, 0.1)(width, seed)
        model[0].requires_grad_(False)
        return model, optimizer

    found = coordinate_check(frozen, (4, 8, 16), [data()], seeds=2, progress=False)
    rest = found.where(layer="0", measure="feature_change_slope")[0]
    assert rest.status == "undefined" and isnan(rest.value) and "no logarithm" in rest.note

    def still(width: int, seed: int):
        model, _ = builder("mup", 1, 0.1)(width, seed)
        return model, torch.optim.SGD(model.parameters(), lr=0.0)

    found = coordinate_check(still, (4, 8, 16), [data()], seeds=2, progress=False)
    assert coordinate_verdict(found) == ("fails", ("training moved no layer",))

    found = coordinate_check(
        builder("mup", 1, 1e200), (4, 8, 16), [data()], seeds=2, progress=False
    )
    verdict = coordinate_verdict(found)
    assert verdict.word == "fails" and "training diverges" in verdict.reasons[0]
    assert found.where(layer="0", measure="feature_change")[0].status == "failed"


def test_a_verdict_by_hand() -> None:
    build = builder("mup", 1, 0.1)
    records = coordinate_check(build, (4, 8, 16), [data()], seeds=2, progress=False)
    row = records.where(measure="feature_change_slope", layer="0")[0]
    size = records.where(measure="feature_size_slope", layer="0")[0]

    def word(change: tuple[float, float], start: tuple[float, float] = (-0.6, -0.4)) -> str:
        rows = [replace(row, low=change[0], high=change[1])]
        rows.append(replace(size, low=start[0], high=start[1]))
        return coordinate_verdict(Records(rows)).word

    assert word((-0.1, 0.1)) == "passes"
    assert word((-0.6, -0.4)) == word((0.2, 0.4)) == "fails"
    assert word((-0.4, 0.1)) == word((-0.1, 0.4)) == "unclear"
    assert word((-0.1, 0.1), (0.3, 0.4)) == "fails"  # larger the wider, at the start
    assert word((-0.1, 0.1), (-0.1, 0.4)) == "passes"
    with pytest.raises(MissingInput, match="pass those of coordinate_check"):
        coordinate_verdict(Records())


def test_what_cannot_be_checked_is_told() -> None:
    build = builder("mup", 1, 0.1)
    with pytest.raises(LazyrichError, match=r"widths=\[4, 8\]: three"):
        coordinate_check(build, (4, 8), [data()])
    with pytest.raises(LazyrichError, match="steps=5, seeds=1: one step and two seeds"):
        coordinate_check(build, (4, 8, 16), [data()], seeds=1)
    with pytest.raises(EmptyData):
        coordinate_check(build, (4, 8, 16), [])
    with pytest.raises(MissingInput, match="no labels to train on"):
        coordinate_check(build, (4, 8, 16), [data()[0]], progress=False)

    def deeper(width: int, seed: int):
        return builder("mup", 1 + (width > 8), 0.1)(width, seed)

    with pytest.raises(LazyrichError, match="is not there at each width"):
        coordinate_check(deeper, (4, 8, 16), [data()], seeds=2, progress=False)
