"""Surveys of many models: every kind of pool, workers that are killed, models that fail."""

import json
import math
import os
import signal
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError, UnreadableFile
from lazyrich.survey import Checkpoint, survey

MEASURES = ["effective_dimension", "accuracy"]


def network(width: int, log: Path | None = None, deadly: Path | None = None) -> nn.Module:
    """Leaves a line in a log; kills its process once, if there is a file that says so."""
    if log is not None:
        with log.open("a") as file:
            file.write(f"{width}\n")
    if deadly is not None and deadly.exists():
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    torch.manual_seed(width)
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3))


def data() -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    return [(x, torch.arange(60) % 3)]


def zoo(count: int, **options: Any) -> dict[str, partial[nn.Module]]:
    return {f"width {w}": partial(network, w, **options) for w in range(2, count + 2)}


def processes(workers: int = 2) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


class Eager:
    """A pool as joblib or a cluster has it: results that are no futures of concurrent.futures."""

    class Job:
        def __init__(self, value: Any) -> None:
            self._value = value

        def result(self) -> Any:
            return self._value

    def submit(self, function: Any, task: Any) -> "Eager.Job":
        return self.Job(function(task))


def test_a_survey_is_what_measure_says_of_each(tmp_path: Path) -> None:
    found = survey(zoo(3), data, MEASURES, journal=tmp_path / "s.jsonl", interval=5)
    for width in (2, 3, 4):
        run = f"width {width}"
        alone = lz.measure(network(width), data(), MEASURES, interval=5, run=run)
        assert list(found.where(run=run))[1:] == list(alone)
        assert found.where(run=run, measure="parameters").values() == [6 * width + width * 4 + 3]
    assert found.unique("run") == list(zoo(3))
    assert list(lz.Records.load(tmp_path / "s.jsonl")) == list(found)


@pytest.mark.slow
def test_every_pool_gives_the_same(tmp_path: Path) -> None:
    wanted = survey(zoo(4), data, MEASURES, journal=tmp_path / "0.jsonl")
    threads = torch.get_num_threads()
    pools: list[Any] = [processes(), ThreadPoolExecutor(3), Eager()]
    for number, pool in enumerate(pools, start=1):
        state = torch.get_rng_state()
        found = survey(
            zoo(4), data, MEASURES, journal=tmp_path / f"{number}.jsonl", executor=pool, threads=1
        )
        assert found == wanted
        if not isinstance(pool, Executor):
            continue
        pool.shutdown()
        if isinstance(pool, ProcessPoolExecutor):
            assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing_but_what_it_was_at(tmp_path: Path) -> None:
    """kill -9 in the middle of 20 models: after a second call, 20 rows, and none measured twice."""
    log, deadly, journal = (tmp_path / name for name in ("log", "deadly", "s.jsonl"))
    deadly.touch()
    models = zoo(20, log=log)
    models["width 12"] = partial(network, 12, log=log, deadly=deadly)
    options: dict[str, Any] = {"measures": ["accuracy"], "layers": "outputs", "journal": journal}
    with processes(1) as pool:
        first = survey(models, data, executor=pool, **options)
    failed = [r.run for r in first if r.status == "failed"]
    assert "width 12" in failed and len(first.unique("run")) == 20
    assert all("BrokenProcessPool" in r.note for r in first if r.status == "failed")
    assert 0 < len(lz.Records.load(journal).unique("run")) == 20 - len(failed)
    with processes(1) as pool:
        second = survey(models, data, executor=pool, **options)
    assert len(second.where(measure="accuracy")) == 20
    assert not [r for r in second if r.status == "failed"]
    made = [int(line) for line in log.read_text().split()]
    repeated = {width for width in made if made.count(width) > 1}
    assert set(made) == set(range(2, 22))
    assert 12 in repeated and len(repeated) <= 2  # the killed one, and one it had done unheard


def test_a_journal_that_was_torn_is_mended(tmp_path: Path) -> None:
    log, journal = tmp_path / "log", tmp_path / "s.jsonl"
    wanted = survey(zoo(3, log=log), data, MEASURES, journal=journal)
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-30])  # the last mark, and no newline
    log.unlink()
    assert survey(zoo(3, log=log), data, MEASURES, journal=journal) == wanted
    assert log.read_text().split() == ["4"]
    log.unlink()
    assert survey(zoo(4, log=log), data, MEASURES, journal=journal)[: len(wanted)] == wanted
    assert log.read_text().split() == ["5"]
    marks = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum("finished" in mark for mark in marks) == 4


def broken() -> nn.Module:
    raise OSError("weights are gone")


def test_models_that_fail_are_rows_and_tried_again(tmp_path: Path) -> None:
    journal = tmp_path / "s.jsonl"
    models: dict[str, Any] = {"bad": broken, **zoo(2), "odd": partial(nn.Linear, 5, 2)}
    found = survey(models, data, MEASURES, journal=journal)
    assert found.unique("run") == ["bad", "width 2", "width 3", "odd"]
    bad, odd = found.where(status="failed")
    assert bad.note == "OSError: weights are gone" and math.isnan(bad.value)
    assert odd.run == "odd" and odd.note.startswith("RuntimeError: mat1 and mat2")
    models["bad"] = partial(network, 9)
    again = survey(models, data, MEASURES, journal=journal)
    assert again.where(status="failed").unique("run") == ["odd"]


@pytest.mark.slow
def test_what_cannot_be_sent_to_a_worker_is_told(tmp_path: Path) -> None:
    with processes(1) as pool:
        (row,) = survey(
            {"here": lambda: network(3)}, data, MEASURES, journal=tmp_path / "j", executor=pool
        )
    assert row.status == "failed" and "pickle" in row.note.lower()


def test_checkpoints_and_captures(tmp_path: Path) -> None:
    trained = network(5)
    with torch.no_grad():
        trained[0].weight.mul_(3)
    torch.save(trained.state_dict(), tmp_path / "w.pt")
    models: dict[str, Any] = {
        "saved": Checkpoint(partial(network, 5), tmp_path / "w.pt"),
        "read": lambda: lz.Capture(network(5), ["1"]),
        "gone": Checkpoint(partial(network, 5), tmp_path / "none.pt"),
    }
    found = survey(models, data(), ["effective_dimension"], journal=tmp_path / "j.jsonl")
    alone = lz.measure(trained, data(), ["effective_dimension"], run="saved")
    assert list(found.where(run="saved"))[1:] == list(alone)
    assert found.where(run="read").unique("layer") == ["model", "1"]
    assert "cannot read" in found.where(run="gone")[0].note


def test_bad_input_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "s.jsonl"
    with pytest.raises(LazyrichError, match="no model was given"):
        survey({}, data, journal=journal)
    with pytest.raises(LazyrichError, match="by name"):
        survey(zoo(1), data, [lz.CATALOGUE["rankme"]], journal=journal)  # type: ignore[list-item]
    journal.write_text("mine")
    with pytest.raises(UnreadableFile):
        survey(zoo(1), data, MEASURES, journal=journal)
    assert journal.read_text() == "mine"
