"""The seven verbs, and one clear message with exit code 2 for what the user can mend."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lazyrich import Record, Records
from lazyrich.cli import main

MODULE = """
import torch
from torch import nn

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

class Idle(nn.Sequential):
    def forward(self, x):
        return self[0](x)

def idle():
    return Idle(nn.Linear(4, 6), nn.Linear(6, 3))

ready = model()
loader = [(torch.randn(30, 4), torch.arange(30) % 3) for _ in range(2)]
def needs(width):
    return nn.Linear(width, 3)
def empty():
    return []
def poisoned():
    return [(torch.full((30, 4), torch.nan), torch.arange(30) % 3)]
def unlabeled():
    return [torch.randn(30, 4)]
def single():
    return [(torch.randn(1, 4), torch.tensor([0]))]
def missing_data():
    raise FileNotFoundError("no data folder: set LAZYRICH_DATA")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    return tmp_path


MEASURE = ["measure", "nets:model", "--data", "nets:loader", "--quiet"]


def test_measure_show_and_report(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([*MEASURE, "--interval", "5", "--run", "first", "-o", "r.jsonl"]) == 0
    assert main([*MEASURE, "--run", "second", "-o", "r.jsonl", "--layers", "penultimate"]) == 0
    printed = capsys.readouterr()
    assert "effective_dimension" in printed.out
    assert "-> r.jsonl" in printed.err
    records = Records.load("r.jsonl")
    assert records.unique("run") == ["first", "second"]
    assert main(["show", "r.jsonl", "--measures", "nc1", "--layers", "pen*"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3 and all("nc1" in line for line in shown[1:])
    assert main(["report", "r.jsonl", "-o", "page.html", "--title", "Two runs"]) == 0
    assert "Two runs" in (here / "page.html").read_text()


def test_a_model_and_a_loader_that_are_no_functions(
    here: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["measure", "nets:ready", "--data", "nets:loader", "--quiet"]) == 0
    assert "total_compression" in capsys.readouterr().out


def test_layers_and_measures(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["layers", "nets:model", "--data", "nets:loader"]) == 0
    listed = capsys.readouterr().out
    assert "= penultimate" in listed and "MiB" not in listed
    assert main(["layers", "nets:model", "--data", "nets:loader", "--estimate"]) == 0
    estimate = capsys.readouterr().out
    # of 0, 1, 2:input, 2 and outputs: 6, 6, 6, 3 and 3 units
    assert "all of them: 0.0 MiB" in estimate and "0.0 MFLOP a sample" in estimate
    assert "units" in estimate.splitlines()[0]
    assert main(["measures"]) == 0
    assert "arXiv:2410.04264" in capsys.readouterr().out
    assert main(["measures", "--bibtex"]) == 0
    assert "eprint = {2410.04264}" in capsys.readouterr().out


def test_arrays(here: Path, capsys: pytest.CaptureFixture) -> None:
    x = np.random.default_rng(0).normal(size=(40, 5))
    np.savez("acts.npz", V1=x, IT=x[:, :3])
    np.save("y.npy", np.arange(40) % 4)
    np.save("f.npy", x[:, :2])
    save_file({"V1": torch.tensor(x)}, "acts.safetensors")
    command = ["arrays", "acts.npz", "--labels", "y.npy", "--outputs", "f.npy", "-o", "out.jsonl"]
    assert main(command) == 0
    records = Records.load("out.jsonl")
    assert records.unique("layer") == ["V1", "IT", "V1 -> IT"]
    assert "low_rank_richness" in records.unique("measure")
    assert main(["arrays", "acts.safetensors", "--measures", "effective_dimension"]) == 0
    assert main(["arrays", "f.npy", "--measures", "effective_dimension"]) == 0


def test_weights_in_every_usual_wrapping(here: Path, capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(5)
    weights = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).state_dict()
    torch.save(weights, "plain.pt")
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in weights.items()}, "epoch": 3}, "deep.th"
    )
    save_file(weights, "plain.safetensors")
    values = []
    for file in ("plain.pt", "deep.th", "plain.safetensors"):
        assert main([*MEASURE, "--weights", file, "--run", file, "-o", "r.jsonl"]) == 0
        values.append(Records.load("r.jsonl").where(run=file).values())
    assert values[0] == values[1] == values[2]
    assert main([*MEASURE, "--run", "untrained", "-o", "r.jsonl"]) == 0
    assert Records.load("r.jsonl").where(run="untrained").values() != values[0]


class Evil:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path("evil"),))


def prepare(folder: Path) -> None:
    (folder / "code.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"weight": torch.ones(2)}, folder / "other.pt")
    torch.save([1, 2], folder / "list.pt")
    (folder / "noise.pt").write_bytes(b"no weights at all")
    (folder / "noise.safetensors").write_bytes(b"no weights at all")
    np.save(folder / "objects.npy", np.array([{}]), allow_pickle=True)
    np.savez(folder / "acts.npz", V1=np.ones((5, 2)), IT=np.ones((5, 2)))
    (folder / "noise.npz").write_bytes(b"no arrays at all")
    np.save(folder / "short.npy", np.ones(3))
    (folder / "notes.txt").write_text("not a record\n\n")
    (folder / "weights.pt").write_bytes(b"PK binary\ntail without a newline")
    Records([Record("a", 0, "fc", "mean", "nc1", None, "plug-in", 1.0)]).save(folder / "r.jsonl")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*MEASURE, "--layers", "2:inptu"], "no layer matches '2:inptu'. Nearest: 2:input"),
        ([*MEASURE, "--measures", "nc9*"], "no measure matches 'nc9*'"),
        (["measure", "nets:model", "--data", "nets:empty"], "the loader is empty or used up"),
        (["measure", "nets:idle", "--data", "nets:loader", "--layers", "1"], "layer '1' never ran"),
        (
            ["measure", "nets:model", "--data", "nets:unlabeled", "--measures", "nc1"],
            "need a label",
        ),
        (["measure", "nets:model", "--data", "nets:poisoned"], "layer '0', batch 0"),
        (["measure", "nets:model", "--data", "nets:single"], "two or more are needed"),
        (["measure", "nets:model", "--data", "nets:missing_data"], "set LAZYRICH_DATA"),
        ([*MEASURE, "--weights", "code.pt"], "code.pt is a pickle that holds more than tensors"),
        ([*MEASURE, "--weights", "other.pt"], "other.pt does not fit the model: 4 of its 4"),
        ([*MEASURE, "--weights", "list.pt"], "list.pt holds no state dict"),
        ([*MEASURE, "--weights", "noise.pt"], "noise.pt"),
        ([*MEASURE, "--weights", "noise.safetensors"], "damaged or no safetensors file"),
        ([*MEASURE, "--weights", "nowhere.pt"], "cannot read nowhere.pt"),
        ([*MEASURE, "--interval", "40"], "interval=40 needs 80 samples or more"),
        ([*MEASURE, "--view", "avg"], "no view matches 'avg'"),
        ([*MEASURE, "--memory-limit", "0"], "raise memory_limit"),
        ([*MEASURE, "-o", "no/such/r.jsonl"], "cannot write records to no/such/r.jsonl"),
        ([*MEASURE, "-o", "notes.txt"], "notes.txt holds something else than records"),
        (["report", "r.jsonl", "-o", "r.jsonl"], "would replace the records in r.jsonl"),
        ([*MEASURE, "--device", "no-such"], "cannot move the model to 'no-such'"),
        ([*MEASURE, "--seed", "-1"], "seed=-1"),
        (["measure", "nets:loader", "--data", "nets:loader"], "is no torch.nn.Module but a list"),
        (["measure", "nets:needs", "--data", "nets:loader"], "must need no arguments"),
        ([*MEASURE, "-o", "weights.pt"], "holds something else than records"),
        (["measure", "nets", "--data", "nets:loader"], "needs pkg.module:name, got 'nets'"),
        (["measure", "nots:model", "--data", "nets:loader"], "no module 'nots'"),
        (["measure", "nets:modle", "--data", "nets:loader"], "no name in nets matches 'modle'"),
        (["arrays", "objects.npy"], "objects.npy is damaged or holds pickled objects"),
        (["arrays", "noise.npz"], "noise.npz is damaged"),
        (["arrays", "nowhere.npz"], "cannot read nowhere.npz"),
        (["arrays", "notes.txt"], "read from .npy, .npz and .safetensors"),
        (["arrays", "acts.npz", "--labels", "short.npy"], "V1: 5 samples came with 3 labels"),
        (["arrays", "acts.npz", "--labels", "acts.npz"], "holds 2 arrays (V1, IT): one is needed"),
        (["show", "nowhere.jsonl"], "cannot read records from nowhere.jsonl"),
        (["report", "notes.txt"], "notes.txt, line 1 is not a record"),
    ],
)
def test_what_the_user_can_mend(
    here: Path, capsys: pytest.CaptureFixture, command: list[str], message: str
) -> None:
    prepare(here)
    before = {p: p.read_bytes() for p in here.iterdir() if p.is_file()}
    assert main(command) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.startswith("lazyrich: ") and told.err.count("\n") == 1
    after = {p: p.read_bytes() for p in here.iterdir() if p.is_file()}
    assert after == before, "nothing lost or half-written, and no code in a pickle was run"


def test_the_same_run_is_not_written_twice(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main([*MEASURE, "-o", "r.jsonl"]) == 0
    before = (here / "r.jsonl").read_bytes()
    assert main([*MEASURE, "-o", "r.jsonl"]) == 2
    assert "already holds a run named 'run'" in capsys.readouterr().err
    assert (here / "r.jsonl").read_bytes() == before


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "lazyrich", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_as_a_program(here: Path) -> None:
    done = run(*MEASURE[:-1], "-o", "r.jsonl", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "measuring" not in done.stderr, "no progress bar where there is no terminal"
    assert run("measure", "nets:model", cwd=here).returncode == 2
    assert run("--version", cwd=here).stdout.startswith("lazyrich ")
    code = (
        "import sys; from lazyrich.cli import main; main(['show', 'r.jsonl']); "
        "main(['report', 'r.jsonl']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=here, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch, in torch.func
def test_the_demo_finds_the_rich_network_richer(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["demo", "-o", "out", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    verdicts = {line.split()[0]: line.split()[-1] for line in lines if line and "[" in line}
    assert verdicts["low_rank_richness"] == verdicts["nc1"] == "rich"
    assert (here / "out" / "report.html").stat().st_size > 500_000
    records = Records.load(here / "out" / "records.jsonl")
    assert records.unique("run") == ["rich", "lazy"]
    assert len(records.unique("step")) > 10
