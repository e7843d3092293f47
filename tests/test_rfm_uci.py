"""Accuracies on tasks of the UCI collection under the published grid, M learned anew in each fold.

The archive is that of Fernández-Delgado et al., JMLR 2014, with its index files. Wanted values are
those of an independent prototype, and of xrfm 0.4.5 where it was run on the same grid.
"""

from itertools import product

import numpy as np
import pytest

from experiments.data import MissingData, path, uci
from lazyrich.rfm import RFMClassifier

try:
    path("tabular/uci118.tar.gz")
    MISSING = ""
except MissingData as error:
    MISSING = str(error)

pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


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
    name: str,
) -> None:
    task = uci(name)
    plain, y, (learn, choose) = task.x, task.y, task.tuning
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
        chosen.fit(x[train], y[train]).score(x[test], y[test]) for train, test in task.folds
    ]
    assert np.mean(accuracies) == pytest.approx(WANTED[name], abs=6e-6)
