"""Reproductions: verdicts by hand, cells that run once, and folders that are whole."""

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lazyrich as lz
from experiments import harness
from experiments.__main__ import MARK, main
from experiments.data import MissingData, cifar, data_folder
from experiments.gallery import gallery, lines, results
from experiments.harness import Experiment, experiments, reproduce, told
from experiments.verdicts import Claim, expected, judge, verdicts
from lazyrich.cli import main as command

ALL = experiments()
try:
    data_folder()
    MISSING = ""
except MissingData as error:
    MISSING = str(error)
has_data = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def test_verdicts_by_hand() -> None:
    near = Claim("c", "says", low=0.8, high=1.0, above=0.5)
    assert judge(near, [0.9, 0.91, 0.89]).word == "holds"
    assert judge(near, [0.7, 0.71, 0.69]).word == "holds in sign"
    assert judge(near, [0.4, 0.41, 0.39]).word == "does not hold"
    assert judge(near, [0.2, 0.9, 1.6]).word == "does not hold"  # nobody knows on which side it is
    assert judge(near, []).word == "not run"
    assert judge(Claim("c", "says", low=0.8), [0.7]).word == "does not hold"
    assert judge(Claim("c", "says", not_recoverable="no data"), [0.9]).word == "not recoverable"
    one = judge(near, [0.9])
    assert (one.low, one.high) == (0.9, 0.9)
    three = judge(near, [0.8, 0.9, 1.0, float("nan")])
    assert three.mean == pytest.approx(0.9)
    assert three.high - three.low == pytest.approx(2 * 4.30265273 * 0.1 / 3**0.5, rel=1e-6)


class Fake:
    """An experiment of three cells, one of which breaks at first."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken = True

    def cells(self, size: str) -> Mapping[str, Any]:
        return {name: lambda name=name: self._cell(name) for name in ("a", "b", "c")}

    def _cell(self, name: str) -> lz.Records:
        self.ran.append(name)
        if name == "b" and self.broken:
            raise ValueError("broken on purpose")
        return lz.Records([told(name, "accuracy", 10 + len(self.ran) / 100)])

    def outcomes(self, records: lz.Records) -> Mapping[str, list[float]]:
        return {"claim": [r.value for r in records]}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "expected.toml").write_text(
        'title = "T"\nsource = "S"\nscale = "small"\n[claims.claim]\nsays = "up"\nabove = 0.0\n'
    )
    monkeypatch.setattr(harness, "HERE", tmp_path)
    run = Fake()
    monkeypatch.setattr(Experiment, "run", property(lambda self: run))
    return Experiment("fake")


def test_a_cell_runs_once_and_a_broken_one_again(fake: Experiment, tmp_path: Path) -> None:
    run: Any = fake.run
    records, failed = reproduce(fake, "quick", fake.committed)
    assert failed == {"b": "ValueError: broken on purpose"}
    assert records.unique("run") == ["a", "c"]
    run.broken = False
    records, failed = reproduce(fake, "quick", fake.committed)
    assert run.ran == ["a", "b", "c", "b"] and not failed
    assert sorted(records.unique("run")) == ["a", "b", "c"]
    page = gallery([(fake, records)], tmp_path / "pages").read_text()
    assert "holds" in page and (tmp_path / "pages" / "fake.html").exists()
    assert "up" in lines(fake.verdicts(records)) and "| holds |" in results([(fake, records)])


def test_missing_data_stops_at_once(fake: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> lz.Records:
        raise MissingData("set LAZYRICH_DATA")

    monkeypatch.setattr(fake.run, "cells", lambda size: {"a": gone})
    with pytest.raises(MissingData):
        reproduce(fake, "quick", fake.committed)


def test_a_slip_in_a_claim_is_told(tmp_path: Path) -> None:
    path = tmp_path / "expected.toml"
    path.write_text('title = "T"\nsource = "S"\nscale = "s"\n[claims.a]\nsay = "x"\n')
    with pytest.raises(ValueError, match=r"expected.toml.*say"):
        expected(path)
    path.write_text('title = "T"\nsource = "S"\nscale = "s"\n[claims.a]\nsays = "x"\n')
    with pytest.raises(ValueError, match="no claim is named b"):
        verdicts(expected(path), {"b": [1.0]})


@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.key)
def test_what_is_committed_speaks_to_every_claim(experiment: Experiment) -> None:
    assert {p.name for p in experiment.folder.iterdir()} >= {"run.py", "README.md", "records.jsonl"}
    records = lz.Records.load(experiment.committed)
    for v in experiment.verdicts(records):
        assert v.word == "not recoverable" or not isnan(v.mean), v.claim.name
        assert v.word != "not run"
    assert experiment.committed.stat().st_size < 4_000_000


def test_the_results_are_those_of_the_records() -> None:
    shown = (Path(harness.__file__).parent / "README.md").read_text().partition(MARK)[2].strip()
    assert shown == results([(e, lz.Records.load(e.committed)) for e in ALL]).strip()


@has_data
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("experiment", ALL, ids=lambda e: e.key)
def test_the_smoke_test_runs(experiment: Experiment, tmp_path: Path) -> None:
    assert main([experiment.key, "--quick", "-o", str(tmp_path)]) == 0
    assert (tmp_path / f"{experiment.key}.html").exists()


def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--list"]) == 0
    assert ALL[0].key in capsys.readouterr().out
    assert main(["nothing"]) == 2
    assert "no experiment 'nothing'" in capsys.readouterr().err
    assert command(["reproduce", "nothing"]) == 2
    monkeypatch.setenv("LAZYRICH_DATA", str(tmp_path / "nowhere"))
    cifar.cache_clear()
    assert main(["spurious_star", "--quick", "-o", str(tmp_path)]) == 2
    assert "LAZYRICH_DATA" in capsys.readouterr().err


def test_without_a_checkout_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> SimpleNamespace:
        raise ModuleNotFoundError(name, name="experiments")

    monkeypatch.setattr("lazyrich.cli.import_module", missing)
    assert command(["reproduce", "--list"]) == 2
    assert "checkout" in capsys.readouterr().err
