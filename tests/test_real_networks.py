"""Four trained CIFAR-10 ResNets on the real test images, through the command line."""

from pathlib import Path

import pytest

from experiments.cifar_resnets import ERRORS
from experiments.data import data_folder
from lazyrich import Records
from lazyrich.cli import main

try:
    data_folder()
    MISSING = ""
except FileNotFoundError as error:
    MISSING = str(error)

pytestmark = [pytest.mark.data, pytest.mark.skipif(bool(MISSING), reason=MISSING)]
DIMENSIONS = {20: 9.09346, 32: 9.94025, 44: 9.87250, 56: 10.14884}


@pytest.mark.slow
@pytest.mark.parametrize("depth", ERRORS)
def test_errors_and_dimensions_are_those_published_and_pinned(
    depth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(Path(__file__).parents[1])
    out = tmp_path / "records.jsonl"
    command = f"measure experiments.cifar_resnets:resnet{depth} --quiet --dtype float64"
    command += f" --data experiments.cifar_resnets:images --run resnet{depth} -o {out}"
    command += " --layers layer* --layers penultimate --layers outputs"
    assert main(command.split()) == 0, capsys.readouterr().err
    records = Records.load(out)
    assert records.unique("layer") == [
        "layer1", "layer2", "layer3", "penultimate", "outputs", "layer1 -> penultimate",
    ]  # fmt: skip
    (accuracy,) = records.where(measure="accuracy")
    assert accuracy.note == f"{ERRORS[depth]} errors of 10000"
    (dimension,) = records.where(measure="effective_dimension", layer="penultimate")
    assert dimension.value == pytest.approx(DIMENSIONS[depth], abs=5e-6)
    assert (dimension.n, dimension.d, dimension.dtype) == (10_000, 64, "float64")
    compression = records.where(measure="total_compression")[0].value
    assert compression < 0, "these networks expand from the first stage on"


def test_saved_features_give_the_pinned_values() -> None:
    import numpy as np

    import lazyrich as lz

    pinned = {"res20": 8.994428, "res56": 10.100680, "kres8": 12.059544, "pyh": 8.517143}
    for name, value in pinned.items():
        with np.load(data_folder() / "features" / f"{name}_pen2000.npz") as file:
            x = next(file[k] for k in file.files if file[k].shape == (2000, 64))
        found = lz.measure_arrays(x, "effective_dimension", dtype=None)
        assert found[0].value == pytest.approx(value, abs=2e-6), name
