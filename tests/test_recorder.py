"""A run is recorded whole, once, and whatever happens to the process."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import LazyrichError, Recorder, Records
from lazyrich.errors import MissingInput, UnreadableFile


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def probe() -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(40, 6, generator=g), torch.arange(40) % 3)]


def train(model: nn.Module, recorder: Recorder, steps: range) -> None:
    (x, y), *_ = probe()
    for step in steps:
        recorder.step(step)
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.5 * p.grad


def test_what_is_recorded_is_what_measuring_by_hand_gives(tmp_path: Path) -> None:
    model, start = net(), net()
    with Recorder(model, probe(), tmp_path / "r.jsonl", when=lz.every(5)) as recorder:
        train(model, recorder, range(11))
    found = recorder.records
    assert found.unique("step") == [0, 5, 10]
    assert found.unique("run") == ["r"]
    again = net()
    twice = tmp_path / "again.jsonl"
    with Recorder(again, probe(), twice, when=lambda _: False) as idle:
        train(again, idle, range(10))
    by_hand = lz.measure(again, probe())
    at_ten = found.where(step=10)
    for row in by_hand:
        (same,) = at_ten.where(layer=row.layer, measure=row.measure, index=row.index)
        assert same.value == pytest.approx(row.value, rel=1e-6, nan_ok=True)
    weight = at_ten.where(layer="0", measure="weight_change")[0].value
    now, before = (
        torch.cat([p.detach().flatten() for p in m[0].parameters()]) for m in (again, start)
    )
    assert weight == pytest.approx(float((now - before).norm() / before.norm()), rel=1e-6)
    norm = at_ten.where(layer="model", measure="parameter_norm")[0].value
    squares = sum(float(p.detach().double().square().sum()) for p in again.parameters())
    assert norm == pytest.approx(math.sqrt(squares), rel=1e-9)
    (similarity,) = at_ten.where(layer="penultimate", measure="initial_similarity_plain")
    a, b = (m[:2](probe()[0][0]).detach().double() for m in (again, start))
    k, m = ((x - x.mean(0)) @ (x - x.mean(0)).T for x in (a, b))
    assert similarity.value == pytest.approx(float((k * m).sum() / k.norm() / m.norm()), rel=1e-9)
    assert 0 < similarity.null < similarity.value


def test_at_the_start_nothing_has_changed(tmp_path: Path) -> None:
    with Recorder(net(), probe(), tmp_path / "r.jsonl", interval=4) as recorder:
        found = recorder.step(0)
    assert set(found.where(measure="weight_change").values()) == {0.0}
    for measure in ("initial_similarity", "initial_similarity_plain"):
        assert found.where(measure=measure).values() == pytest.approx([1.0] * 5)


def test_training_is_not_disturbed(tmp_path: Path) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.norm = net(), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(nn.functional.dropout(self.body(x), 0.3, self.training))

    finals = []
    for recorded in (True, False):
        torch.manual_seed(3)
        model = Noisy()
        when = lz.every(1) if recorded else (lambda _: False)
        loader = torch.utils.data.DataLoader(probe()[0][0], batch_size=8, shuffle=True)
        with Recorder(model, loader, tmp_path / f"{recorded}.jsonl", when=when) as recorder:
            train(model, recorder, range(6))
        assert model.training
        finals.append({k: v.clone() for k, v in model.state_dict().items()})
    assert all(torch.equal(v, finals[1][k]) for k, v in finals[0].items())


def test_going_on_appends_under_the_same_run_and_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "r.jsonl"
    model = net()
    with Recorder(model, probe(), path, when=lz.every(1)) as recorder:
        train(model, recorder, range(4))
    with Recorder(model, probe(), path, when=lz.every(1)) as recorder:
        assert len(recorder.step(2)) == 0
        train(model, recorder, range(4, 6))
    found = Records.load(path)
    assert found.unique("step") == list(range(6))
    rows = [(r.step, r.layer, r.measure, r.index, r.estimator) for r in found]
    assert len(rows) == len(set(rows))
    changes = found.where(layer="model", measure="weight_change").values()
    assert changes == sorted(changes), "compared with the first start, not with the second"
    definitions = [line for line in path.read_text().splitlines() if '"definition"' in line]
    assert len(definitions) == len(found.definitions)


def test_two_runs_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for run in ("a", "b"):
        with Recorder(net(), probe(), path, run=run) as recorder:
            recorder.step(0)
    assert Records.load(path).unique("run") == ["a", "b"]


@pytest.mark.parametrize("cut", [1, 40, 700, 2000, 5000])
def test_a_step_that_was_cut_off_is_recorded_anew(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    model = net()
    with Recorder(model, probe(), path, when=lz.every(1)) as recorder:
        train(model, recorder, range(2))
        kept = path.read_bytes()
        recorder.step(2)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(whole) - cut, len(kept))])
    Records.load(path)
    with Recorder(model, probe(), path, when=lz.every(1)) as recorder:
        recorder.step(2)
    assert path.read_bytes() == whole


RUN = """
import sys, torch, lazyrich as lz
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
with lz.Recorder(model, [(x, torch.arange(40) % 3)], sys.argv[1], when=lz.every(1)) as recorder:
    for step in range(100_000):
        recorder.step(step)
        with torch.no_grad():
            model[0].weight *= 0.999
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait", [0.0, 0.05, 0.31])
def test_kill_9_leaves_a_readable_file_that_can_be_continued(tmp_path: Path, wait: float) -> None:
    path = tmp_path / "r.jsonl"
    process = subprocess.Popen([sys.executable, "-c", RUN, str(path)])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b'{"finished"') >= 3:
            break
        time.sleep(0.01)
    time.sleep(wait)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    steps = Records.load(path).unique("step")
    assert steps == list(range(len(steps))) and len(steps) > 1
    whole = {json.loads(line)["finished"]["step"] for line in path.read_text().splitlines()
             if line.startswith('{"finished"') and line.endswith("}}")}  # fmt: skip
    with Recorder(net(), probe(), path, when=lz.every(1)) as recorder:
        for step in range(len(steps) + 1):
            recorder.step(step)
    found = Records.load(path)
    assert found.unique("step") == list(range(len(steps) + 1))
    assert len(steps) - len(whole) <= 1, "at most the step being written was lost"
    rows = [(r.step, r.layer, r.measure, r.index) for r in found]
    assert len(rows) == len(set(rows))


def test_a_run_that_diverges_is_recorded_with_the_reason(tmp_path: Path) -> None:
    model = net()
    with Recorder(model, probe(), tmp_path / "r.jsonl", when=lz.every(1)) as recorder:
        recorder.step(0)
        with torch.no_grad():
            model[0].weight.fill_(math.nan)
        found = recorder.step(1)
    assert {r.status for r in found} == {"failed"}
    assert "layer '0'" in found[0].note and "NaN" in found[0].note
    assert {r.measure for r in found} >= {"nc1", "weight_change", "low_rank_richness"}


def test_a_probe_that_can_be_read_only_once_is_kept(tmp_path: Path) -> None:
    once = (batch for batch in probe())
    with Recorder(net(), once, tmp_path / "r.jsonl", when=lz.every(1)) as recorder:
        assert recorder.step(0).values()[:3] == recorder.step(1).values()[:3]


class Writer:
    def __init__(self) -> None:
        self.seen: dict = {}

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.seen[tag, step] = value


class Run:
    def __init__(self) -> None:
        self.seen: dict = {}

    def log(self, numbers: dict, step: int) -> None:
        self.seen |= {(tag, step): value for tag, value in numbers.items()}


@pytest.mark.parametrize("make", [Writer, Run])
def test_writers_get_every_single_number_at_its_step(tmp_path: Path, make: type) -> None:
    writer = make()
    with Recorder(
        net(), probe(), tmp_path / "r.jsonl", when=lz.every(2), writer=writer
    ) as recorder:
        for step in range(3):
            recorder.step(step)
    single = [r for r in recorder.records if r.index is None and math.isfinite(r.value)]
    assert writer.seen == {(f"{r.measure}/{r.layer}", r.step): r.value for r in single}


def test_tensorboard(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with (
        tensorboard.SummaryWriter(tmp_path / "board") as writer,
        Recorder(net(), probe(), tmp_path / "r.jsonl", writer=writer) as recorder,
    ):
        recorder.step(0)
    assert list((tmp_path / "board").iterdir())


def test_what_cannot_be_a_record_file_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes\nare mine\n")
    with pytest.raises(UnreadableFile, match="notes.txt, line 1 is not a record"):
        Recorder(net(), probe(), tmp_path / "notes.txt").__enter__()
    assert (tmp_path / "notes.txt").read_text() == "my notes\nare mine\n"
    with pytest.raises(UnreadableFile, match="cannot write to"):
        Recorder(net(), probe(), tmp_path).__enter__()


def test_a_run_does_not_go_on_with_another_probe_or_model(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Recorder(net(), probe(), path) as recorder:
        recorder.step(0)
    before = path.read_bytes()
    x, y = probe()[0]
    for other in ([(x + 0.1, y)], [(x[:30], y[:30])]):
        with pytest.raises(LazyrichError, match="started with another probe. Give this"):
            Recorder(net(), other, path).step(1)
    wide = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))
    with pytest.raises(LazyrichError, match="started with another model"):
        Recorder(wide, probe(), path).step(1)
    assert path.read_bytes() == before
    with Recorder(wide, probe(), path, run="wide") as recorder:
        assert len(recorder.step(1)) > 0


@pytest.mark.parametrize("step", [0.5, "1", None, -3, True, math.nan])
def test_steps_are_whole_numbers(tmp_path: Path, step: object) -> None:
    with (
        Recorder(net(), probe(), tmp_path / "r.jsonl", when=lambda _: True) as recorder,
        pytest.raises(LazyrichError, match="no whole number|counted from 0"),
    ):
        recorder.step(step)


def test_steps_of_numpy_and_torch_are_numbers_too(tmp_path: Path) -> None:
    with Recorder(net(), probe(), tmp_path / "r.jsonl", when=lambda _: True) as recorder:
        recorder.step(np.int64(3))
        recorder.step(torch.tensor(4))
    assert recorder.records.unique("step") == [3, 4]


def test_what_is_no_schedule_or_writer_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(LazyrichError, match="when=5: a function of the step"):
        Recorder(net(), probe(), tmp_path / "r.jsonl", when=5)
    with pytest.raises(LazyrichError, match="writer of type object: needs add_scalar"):
        Recorder(net(), probe(), tmp_path / "r.jsonl", writer=object())
    assert not list(tmp_path.iterdir())


def test_measures_that_need_a_start_say_so_elsewhere() -> None:
    for measure in ("weight_change", "initial_similarity"):
        with pytest.raises(MissingInput, match="record the run with lz.Recorder"):
            lz.measure(net(), probe(), measure)
    assert lz.measure(net(), probe(), "parameter_norm")[0].value > 0
    assert "weight_change" not in lz.measure(net(), probe()).unique("measure")


def test_the_default_schedule_thins_out() -> None:
    when = lz.log_spaced(10**9, 55)
    chosen = [step for step in range(1001) if when(step)]
    assert chosen[:5] == [0, 1, 2, 3, 5]
    assert len(chosen) == 19
