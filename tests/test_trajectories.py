"""Changes in capacity split into parts that add up, and stages found where they were put."""

import math
import pathlib
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import lazyrich as lz
from lazyrich._records import Record, Records
from lazyrich.errors import LazyrichError, MissingInput, TooFewSamples, UnknownName
from lazyrich.trajectories import attribute, stages
from lazyrich.trajectories._segments import Path, cuts
from lazyrich.trajectories._stages import GEOMETRY

CONVENTIONS = "jackknife, conventions=balanced labels, 50 points"
PARTS = ["capacity_change"]
PARTS += [f"capacity_change_from_{part}" for part in ("radius", "dimension", "utility")]


def one(measure: str, value: float, error: float | None = 0.01, **columns: Any) -> Record:
    """A record with an interval of two standard errors to each side."""
    plain = {"run": "a", "step": 0, "layer": "features", "view": "flatten", "index": None}
    plain |= {"estimator": CONVENTIONS, "n": 500, "d": 64, "dtype": "float32"}
    if error is not None:
        plain |= {"standard_error": error, "low": value - 2 * error, "high": value + 2 * error}
    return Record(**(plain | {"measure": measure, "value": value} | columns))


def geometry(
    capacity: float, radius: float, dimension: float, error: float | None = 0.01, **columns: Any
) -> list[Record]:
    names = ("capacity", "manifold_radius", "manifold_dimension")
    values = zip(names, (capacity, radius, dimension), strict=True)
    return [one(name, value, error, **columns) for name, value in values]


def run(error: float | None = 0.05, turns: tuple[int, ...] = (8, 16), n: int = 24) -> Records:
    """Straight pieces over the logarithm of the step, with noise of that error."""
    draw, rates = np.random.default_rng(0), (0.0, -1.0, 0.3, 1.5)
    rows, level = [], dict.fromkeys(GEOMETRY, 5.0)
    for i in range(n):
        piece = sum(i >= t for t in turns)
        for place, name in enumerate(GEOMETRY):
            level[name] += rates[piece] * (1 + 0.2 * place)
            value = level[name] + (error or 0.0) * draw.standard_normal()
            rows.append(one(name, value, error, step=round(10 * 1.5**i)))
    return Records(rows)


def noise(seed: int, n: int = 20) -> Records:
    draw = np.random.default_rng(seed)
    return Records(
        one(name, 1 + 0.1 * draw.standard_normal(), 0.1, step=2**i)
        for i in range(n)
        for name in GEOMETRY
    )


# Attribution


def test_parts_add_up_exactly_and_each_is_its_formula() -> None:
    table = Records(geometry(0.05, 1.2, 24.0) + geometry(0.10, 0.9, 7.0, step=9))
    found = attribute(table, before=0, after=9)
    assert found.unique("measure") == PARTS
    whole, radius, dimension, utility = found.values()
    assert whole == pytest.approx(math.log(2), abs=1e-15)
    assert radius == pytest.approx(math.log((1 + 0.9**-2) / (1 + 1.2**-2)), abs=1e-15)
    assert dimension == pytest.approx(math.log(24 / 7), abs=1e-15)
    assert radius + dimension + utility == pytest.approx(whole, abs=1e-15)
    assert set(found.definitions) == set(PARTS)
    assert "2503.18114" in found.definitions[PARTS[1]].source
    assert {(r.step, r.layer) for r in found} == {(9, "features")}
    assert "step 0 to 9" in found[0].estimator and "50 points" in found[0].estimator


def test_the_part_of_utility_is_the_change_of_the_measured_utility() -> None:
    labels = torch.arange(4).repeat_interleave(10)
    names = ["capacity", "manifold_radius", "manifold_dimension", "utility"]
    rows = Records()
    for step, spread in enumerate((1.0, 0.5)):
        x = torch.randn(4, 60)[labels] + spread * torch.randn(40, 60)
        rows += lz.measure_arrays(x, names, labels=labels).tag(step=step)
    before, after = (r.value for r in rows.where(measure="utility"))
    found = attribute(rows, before=0, after=1)
    assert found[3].value == pytest.approx(math.log(after / before), abs=1e-12)
    assert sum(found.values()[1:]) == pytest.approx(found[0].value, abs=1e-14)


def test_errors_are_those_of_independent_draws() -> None:
    ends = {0: (0.05, 1.2, 24.0), 9: (0.10, 0.9, 7.0)}
    relative = 0.01
    rows = [
        replace(r, standard_error=relative * r.value, low=None, high=None)
        for step, values in ends.items()
        for r in geometry(*values, step=step)
    ]
    found = attribute(Records(rows), before=0, after=9)
    draw = np.random.default_rng(0)
    parts = []
    for values in ends.values():
        c, r, d = (v * (1 + relative * draw.standard_normal(200_000)) for v in values)
        parts.append(np.stack([np.log(c), np.log1p(r**-2), -np.log(d)]))
    change = parts[1] - parts[0]
    sampled = [*change.std(axis=1), (change[0] - change[1] - change[2]).std()]
    assert [r.standard_error for r in found] == pytest.approx(sampled, rel=0.01)
    assert found[0].high - found[0].value == pytest.approx(1.96 * found[0].standard_error)


def test_a_recorded_utility_brings_its_own_error() -> None:
    rows = geometry(0.05, 1.2, 24.0) + geometry(0.10, 0.9, 7.0, step=9)
    rows += [one("utility", 0.5, 0.003), one("utility", 0.5, 0.004, step=9)]
    assert attribute(Records(rows), before=0, after=9)[3].standard_error == pytest.approx(0.01)


def test_intervals_are_as_wide_as_those_of_the_records() -> None:
    found = attribute(
        Records(geometry(0.5, 1.2, 24.0) + geometry(0.7, 0.9, 7.0, step=9)), before=0, after=9
    )
    for r in found:
        assert r.high - r.value == pytest.approx(2 * r.standard_error)
        assert r.value - r.low == pytest.approx(2 * r.standard_error)


def test_without_errors_there_is_no_interval() -> None:
    rows = geometry(0.5, 1.2, 24.0, None) + geometry(0.7, 0.9, 7.0, None, step=9)
    assert {(r.standard_error, r.low) for r in attribute(Records(rows), before=0, after=9)} == {
        (None, None)
    }


def test_runs_and_layers_are_ends_as_well() -> None:
    rows = [
        r
        for i, run in enumerate(("lazy", "rich"))
        for j, layer in enumerate(("conv", "fc"))
        for r in geometry(0.1 + i + j, 1.0, 5.0, run=run, layer=layer)
    ]
    across = attribute(Records(rows), before="lazy", after="rich", along="run")
    assert [(r.run, r.layer) for r in across.where(measure=PARTS[0])] == [
        ("rich", "conv"),
        ("rich", "fc"),
    ]
    along = attribute(Records(rows), before="conv", after="fc", along="layer")
    assert [(r.run, r.layer) for r in along.where(measure=PARTS[0])] == [
        ("lazy", "conv -> fc"),
        ("rich", "conv -> fc"),
    ]


def test_what_stands_behind_a_change_is_told() -> None:
    first, last = geometry(0.5, 1.2, 24.0), geometry(0.7, 0.9, 7.0, step=9, n=100)
    (told,) = {r.note for r in attribute(Records(first + last), before=0, after=9)}
    assert told == "made of 500 samples before and 100 after; capacity 0.5 to 0.7"
    wary = [replace(r, status="caution") for r in geometry(0.7, 0.9, 7.0, step=9)]
    assert attribute(Records(first + wary), before=0, after=9)[0].status == "caution"
    gone = [replace(r, value=math.nan) for r in geometry(0.7, 0.9, 7.0, step=9)][:1] + last[1:]
    found = attribute(Records(first + gone), before=0, after=9)
    assert all(math.isnan(r.value) and r.status == "undefined" for r in found)
    assert "capacity without a finite value" in found[0].note


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"after": 10}, UnknownName, "no step matches '10'"),
        ({"along": "epoch"}, UnknownName, "no way to go along matches 'epoch'"),
        ({"before": "b", "after": "a", "along": "run"}, UnknownName, "no run matches 'b'"),
    ],
)
def test_ends_that_do_not_exist_are_named(change: Any, kind: Any, message: str) -> None:
    table = Records(geometry(0.5, 1.2, 24.0) + geometry(0.7, 0.9, 7.0, step=9))
    with pytest.raises(kind, match=message):
        attribute(table, **({"before": 0, "after": 9} | change))


def test_missing_measures_are_named_with_what_to_record() -> None:
    rows = geometry(0.5, 1.2, 24.0) + geometry(0.7, 0.9, 7.0, step=9)
    without = Records(rows).where(measure=["capacity", "manifold_dimension"])
    with pytest.raises(MissingInput, match=r"manifold_radius missing in the records. Record capa"):
        attribute(without, before=0, after=9)
    with pytest.raises(MissingInput, match=r"manifold_dimension missing in run a, step 9, layer"):
        attribute(Records(rows[:-1]), before=0, after=9)


def test_values_under_different_conventions_are_never_compared() -> None:
    rows = geometry(0.5, 1.2, 24.0) + geometry(0.7, 0.9, 7.0, step=9, estimator="conventions=x")
    with pytest.raises(LazyrichError, match="nothing was measured alike at step 0 and step 9"):
        attribute(Records(rows), before=0, after=9)
    twice = geometry(0.5, 1.2, 24.0) + geometry(0.5, 1.2, 24.0, seed=1)
    with pytest.raises(LazyrichError, match=r"seed 0 in float32 and with seed 1.*where\(seed"):
        attribute(Records(twice), before=0, after=0)


# Stages


def test_known_turns_are_found_and_certain() -> None:
    table = run()
    steps = table.unique("step")
    found = stages(table)
    assert [steps.index(r.step) for r in found] == pytest.approx([8, 16], abs=1)
    assert min(found.values()) > 0.95
    assert all("manifold_radius" in r.note for r in found)
    assert found.unique("measure") == ["stage_boundary"] and found.definitions


def test_the_turning_measures_alone_are_named() -> None:
    table = run(turns=(12,))
    flat = np.random.default_rng(1).standard_normal(len(table))
    rows = [
        replace(r, value=float(e), standard_error=1.0) if r.measure == "axis_alignment" else r
        for r, e in zip(table, flat, strict=True)
    ]
    (found,) = stages(Records(rows))
    assert "manifold_radius" in found.note and "axis_alignment" not in found.note.split()


def test_a_straight_path_is_one_stage() -> None:
    assert len(stages(run(turns=()))) == 0 and len(stages(run(error=None, turns=()))) == 0


def test_noise_has_no_stages_or_uncertain_ones() -> None:
    certain = [max(stages(noise(s), resamples=50).values(), default=0.0) for s in range(20)]
    assert sum(c > 0.5 for c in certain) <= 1


def test_certainty_falls_with_the_noise() -> None:
    sharp = run(turns=(12,))
    faint = Records(replace(r, standard_error=2.0) for r in sharp)
    (kept,) = stages(sharp).values()
    assert kept > max(stages(faint).values(), default=0.0)


def test_stages_are_the_same_for_the_same_seed_and_differ_for_another() -> None:
    table = Records(replace(r, standard_error=0.8) for r in run())
    assert stages(table) == stages(table)
    assert stages(table).values() != stages(table, seed=1).values()
    assert stages(table).values() != stages(table, resamples=30).values()


def test_without_errors_the_certainty_is_unknown() -> None:
    found = stages(run(error=None))
    assert len(found) == 2 and all(math.isnan(r.value) for r in found)
    assert {r.status for r in found} == {"undefined"} and "no standard errors" in found[0].note


def test_each_run_and_layer_has_stages_of_its_own() -> None:
    both = run(turns=(8,)).tag(run="early") + run(turns=(16,)).tag(run="late")
    early, late = stages(both)
    assert (early.run, late.run) == ("early", "late") and early.step < late.step


def test_a_path_of_chosen_measures() -> None:
    assert len(stages(run().where(measure="manifold_radius"), measures=["manifold_radius"])) == 2


def test_the_best_cut_is_found_among_all() -> None:
    """Against the score of every cut into one, two and three."""
    draw = np.random.default_rng(2)
    time, values = np.sort(draw.random(11)), draw.standard_normal((11, 2)) * (0.3, 1.0)
    values[4:] += 3
    values[8:] -= 5 * (time[8:] - time[8])[:, None]

    def misfit(i: int, j: int) -> Any:
        lines = np.stack([np.ones(j - i), time[i:j]], axis=1)
        return ((lines @ np.linalg.pinv(lines) @ values[i:j] - values[i:j]) ** 2).sum(axis=0)

    options = [[], *([a] for a in range(3, 9))]
    options += [[a, b] for a in range(3, 6) for b in range(a + 3, 9)]
    scores = []
    for option in options:
        total = sum(misfit(i, j) for i, j in pairwise([0, *option, 11]))
        pieces = len(option) + 1
        variance = np.maximum(total / 11, 0.01)
        scores.append(11 * np.log(variance).sum() + (5 * pieces - 1) * math.log(22))
    found = cuts(Path(time, values, np.array([0.01, 0.01])))
    assert found == options[int(np.argmin(scores))] == [4, 8]


def test_stages_refuse_what_they_cannot_cut() -> None:
    with pytest.raises(TooFewSamples, match="finite values at 5 steps; stages need 6"):
        stages(run(n=5))
    with pytest.raises(MissingInput, match="axis_alignment missing in the records"):
        stages(Records(r for r in run() if r.measure != "axis_alignment"))
    with pytest.raises(MissingInput, match="center_axis_alignment missing in run a, step"):
        stages(run()[:-1])
    with pytest.raises(LazyrichError, match="resamples=0: 1 or more"):
        stages(run(), resamples=0)


def test_reading_trajectories_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, lazyrich.trajectories; sys.exit(str({'torch', 'numpy'} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert result.stderr.strip() == "set()"


def test_a_training_run_turns_where_its_dimension_falls_and_its_alignments_rise(
    tmp_path: pathlib.Path,
) -> None:
    pixels, digit = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(digit)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    probe, when = [(x[1000:1200], y[1000:1200])], lz.log_spaced(181, 14)
    options: Any = {"measures": GEOMETRY, "layers": "1", "when": when}
    with lz.Recorder(model, probe, tmp_path / "run.jsonl", **options) as r:
        for step in range(182):
            r.step(step)
            batch = torch.randint(0, 1000, (64,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    turns = stages(lz.Records.load(tmp_path / "run.jsonl"))
    assert 2 <= len(turns) <= 3
    assert all(turn.value > 0.5 for turn in turns)
    dimension = r"manifold_dimension \S+ to -\d"
    assert re.search(dimension + r".*center_alignment \S+ to \+0\.[1-9]", str(turns[0].note))
