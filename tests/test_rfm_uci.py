"""Accuracies on tasks of the UCI collection under the published grid, M learned anew in each fold.

The archive is that of Fernández-Delgado et al., JMLR 2014, with its index files. Wanted values are
those of an independent prototype, and of xrfm 0.4.5 where it was run on the same grid.
"""

import sys
import tarfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lazyrich.rfm import RFMClassifier

sys.path.insert(0, str(Path(__file__).parents[1]))
from experiments.cifar_resnets import data_folder

try:
    ARCHIVE = data_folder() / "tabular" / "uci118.tar.gz"
    MISSING = "" if ARCHIVE.is_file() else f"no {ARCHIVE}"
except FileNotFoundError as error:
    MISSING = str(error)

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]

Rows = NDArray[np.float64]
Indices = list[NDArray[np.intp]]


@pytest.fixture(scope="module")
def archive() -> dict[str, list[str]]:
    """Lines of the files of the tasks below."""
    found = {}
    with tarfile.open(ARCHIVE) as tar:
        for member in tar:
            if member.isfile() and Path(member.name).parent.name in WANTED:
                file = tar.extractfile(member)
                assert file is not None
                found[member.name] = file.read().decode("latin1").splitlines()
    return found


def load(archive: dict[str, list[str]], name: str) -> tuple[Rows, NDArray[np.intp], Indices]:
    """Features, classes, and rows to learn from and to judge by.

    First two sets of rows for the options, then two for each of four divisions.
    """
    told = {
        words[0].rstrip("="): words[1]
        for line in archive[f"raw/{name}/{name}.txt"]
        if len(words := line.split()) > 1
    }
    table = archive[f"raw/{name}/{told['fich1']}"][1:]
    values = np.array([line.split()[1:] for line in table if line.strip()], dtype=float)
    indices = [
        np.array(line.split(), dtype=int)
        for file in ("conxuntos.dat", "conxuntos_kfold.dat")
        for line in archive[f"raw/{name}/{file}"]
        if line.strip()
    ]
    return values[:, :-1], values[:, -1].astype(int), indices


def machine(**options: float | None) -> RFMClassifier:
    return RFMClassifier(normalize="max", dtype="float64", **options)


WANTED = {
    "wine": 0.98864,
    "iris": 0.97297,
    "balance-scale": 0.98077,
    "car": 0.98438,
    "synthetic-control": 0.99333,
    "semeion": 0.94912,
}


@pytest.mark.parametrize("name", WANTED)
def test_accuracies_are_those_of_two_other_implementations(
    name: str, archive: dict[str, list[str]]
) -> None:
    plain, y, (learn, choose, *folds) = load(archive, name)
    norms = np.linalg.norm(plain, axis=1, keepdims=True)
    by_norm = {True: plain / np.where(norms > 0, norms, 1), False: plain}
    best = (-1.0, 0.0, False, 0)
    for reg, normed in product((10.0, 1.0, 0.1, 0.01, 0.001), (True, False)):
        x = by_norm[normed]
        found = machine(reg=reg).fit(x[learn], y[learn], X_val=x[choose], y_val=y[choose])
        score = float(found.validation_scores_.max())
        if score > best[0]:
            best = (score, reg, normed, int(found.iteration_))
    _, reg, normed, iterations = best
    x = by_norm[normed]
    chosen = machine(reg=reg, iterations=iterations, selection=None)
    accuracies = [
        chosen.fit(x[train], y[train]).score(x[test], y[test])
        for train, test in zip(folds[::2], folds[1::2], strict=True)
    ]
    assert np.mean(accuracies) == pytest.approx(WANTED[name], abs=6e-6)
