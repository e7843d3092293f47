"""Recursive Feature Machines on the UCI tasks, beside other learners and under two protocols."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.svm import SVC

from experiments.data import Task, uci, uci_names
from experiments.harness import Cell, Size, told
from lazyrich import Record, Records
from lazyrich.rfm import RFMClassifier

REGS = 10.0, 1.0, 0.1, 0.01, 0.001
UPDATES = 4
RFM, LEAK, KRR, XRFM = "RFM, clean", "RFM, paper's protocol", "Laplace KRR", "xrfm 0.4.5"
RFM_MAX = "RFM, clean, M by its largest entry"
OTHERS = "SVC", "random forest", "gradient boosting"
_ROWS = {"quick": 120, "laptop": 2000, "full": 10**9}  # of a task
_XRFM_ROWS = 1000  # beyond that xrfm takes longer than all others together
Split = tuple[np.ndarray, np.ndarray]


def cells(size: Size) -> Mapping[str, Cell]:
    tasks = sorted(map(uci, uci_names()), key=lambda t: len(t.x) * len(t.x))
    chosen = [t for t in tasks if len(t.x) <= _ROWS[size]]
    made: dict[str, Cell] = {
        t.name: partial(_task, t) for t in chosen[: 3 if size == "quick" else None]
    }
    seeds = 1 if size == "quick" else 10
    return made | {f"labels by chance, seed {s}": partial(_chance, s) for s in range(seeds)}


def _task(task: Task) -> Records:
    """Mean accuracy over the four test folds, for each method."""
    machines = Machines(task)
    scores: dict[str, list[float]] = {LEAK: [], KRR: []}
    normalizations: dict[str, Any] = {RFM: None, RFM_MAX: "max"}
    kept: dict[str, int] = {}
    for name, normalize in normalizations.items():
        best = machines.tuned(normalize)
        kept[name] = best.iteration
        scores[name] = [machines.again(best, normalize, fold) for fold in task.folds]
        if name == RFM:
            scores[LEAK] = [machines.with_its_metric(best, fold) for fold in task.folds]
            plain = machines.tuned(normalize, updates=0)
            scores[KRR] = [machines.again(plain, normalize, fold) for fold in task.folds]
    rest: dict[str, Callable[[], list[float]]] = {
        "SVC": partial(_svc, task),
        "random forest": partial(_untuned, task, _forest),
        "gradient boosting": partial(_untuned, task, _boosting),
    }
    if len(task.x) <= _XRFM_ROWS:
        rest[XRFM] = partial(_xrfm, machines)
    rows = [_row(task, name, each) for name, each in scores.items()]
    rows += [told(task.name, "updates kept", k, layer=name) for name, k in kept.items()]
    for name, run in rest.items():
        try:
            rows.append(_row(task, name, run()))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            rows.append(
                Record(
                    task.name,
                    0,
                    name,
                    "",
                    "accuracy",
                    None,
                    "",
                    float("nan"),
                    status="failed",
                    note=reason,
                )
            )
    return Records(rows)


def _row(task: Task, method: str, scores: Sequence[float]) -> Record:
    return told(task.name, "accuracy", float(np.mean(scores)), layer=method, n=len(task.x))


@dataclass
class Tuned:
    """What did best on the validation half of the tuning split."""

    score: float
    reg: float
    by_norm: bool
    iteration: int
    machine: RFMClassifier


class Machines:
    """The published grid: ridge, rows divided by their norms or not, and the iteration."""

    def __init__(self, task: Task) -> None:
        self.task = task
        norms = np.linalg.norm(task.x, axis=1, keepdims=True)
        self._x = {True: task.x / np.where(norms > 0, norms, 1), False: task.x}
        self._fitted: dict[Any, RFMClassifier] = {}

    def grid(self) -> Iterator[tuple[float, bool]]:
        return product(REGS, (True, False))

    def x(self, by_norm: bool) -> np.ndarray:
        return self._x[by_norm]

    def tuned(self, normalize: Any, updates: int = UPDATES) -> Tuned:
        """The first of the best, as the published code has it."""
        best: Tuned | None = None
        learn, choose = self.task.tuning
        for reg, by_norm in self.grid():
            machine = self._machine(normalize, reg, by_norm, learn, choose)
            scores = machine.validation_scores_[: updates + 1]
            if best is None or scores.max() > best.score:
                best = Tuned(scores.max(), reg, by_norm, int(scores.argmax()), machine)
        assert best is not None
        return best

    def _machine(
        self, normalize: Any, reg: float, by_norm: bool, learn: np.ndarray, choose: np.ndarray
    ) -> RFMClassifier:
        key = normalize, reg, by_norm
        if key not in self._fitted:
            x, y = self.x(by_norm), self.task.y
            machine = RFMClassifier(
                normalize=normalize, reg=reg, iterations=UPDATES, progress=False
            )
            learn, choose = _seen_classes(y, learn, choose)
            self._fitted[key] = machine.fit(x[learn], y[learn], X_val=x[choose], y_val=y[choose])
        return self._fitted[key]

    def again(self, best: Tuned, normalize: Any, fold: Split) -> float:
        """M is learned anew from the rows of the fold."""
        machine = RFMClassifier(
            normalize=normalize,
            reg=best.reg,
            iterations=best.iteration,
            selection=None,
            progress=False,
        )
        return self._accuracy(machine, self.x(best.by_norm), fold)

    def with_its_metric(self, best: Tuned, fold: Split) -> float:
        """M is the one of the tuning split: rows of the test fold may have made it."""
        coordinates = best.machine.transform(self.x(best.by_norm))
        machine = RFMClassifier(reg=best.reg, iterations=0, selection=None, progress=False)
        return self._accuracy(machine, coordinates, fold)

    def _accuracy(self, machine: RFMClassifier, x: np.ndarray, fold: Split) -> float:
        train, test = fold
        return float(machine.fit(x[train], self.task.y[train]).score(x[test], self.task.y[test]))


def _seen_classes(y: np.ndarray, learn: np.ndarray, choose: np.ndarray) -> Split:
    """Rows to choose by whose class can be learned at all."""
    return learn, choose[np.isin(y[choose], y[learn])]


def _svc(task: Task) -> list[float]:
    d = task.x.shape[1]
    learn, choose = task.tuning
    grid = list(product((0.1, 1, 10, 100, 1000), (0.1 / d, 1 / d, 10 / d)))
    tuned = [SVC(C=c, gamma=g).fit(task.x[learn], task.y[learn]) for c, g in grid]
    scores = [m.score(task.x[choose], task.y[choose]) for m in tuned]
    c, g = grid[int(np.argmax(scores))]
    return _untuned(task, lambda: SVC(C=c, gamma=g))


def _forest() -> Any:
    return RandomForestClassifier(500, random_state=0)


def _boosting() -> Any:
    return HistGradientBoostingClassifier(random_state=0)


def _untuned(task: Task, make: Callable[[], Any]) -> list[float]:
    return [
        make().fit(task.x[train], task.y[train]).score(task.x[test], task.y[test])
        for train, test in task.folds
    ]


def _xrfm(machines: Machines) -> list[float]:
    """The same grid; the package's own selection of the iteration by accuracy."""
    from xrfm import RFM as Peer

    task = machines.task
    targets = np.eye(task.y.max() + 1, dtype=np.float32)[task.y]

    def fit(
        reg: float, by_norm: bool, train: np.ndarray, test: np.ndarray, iters: int, best: bool
    ) -> Any:
        x = torch.from_numpy(machines.x(by_norm)).float()
        y = torch.from_numpy(targets)
        peer = Peer(
            kernel="l2",
            device="cpu",
            bandwidth=10.0,
            iters=iters,
            verbose=False,
            tuning_metric="accuracy",
        )
        peer.fit(
            (x[train], y[train]),
            (x[test], y[test]),
            iters=iters,
            reg=reg,
            early_stop_rfm=False,
            return_best_params=best,
        )
        right = peer.predict(x[test]).numpy().argmax(1) == task.y[test]
        return float(right.mean()), peer.best_iter

    best = (-1.0, 0.0, False, 0)
    for reg, by_norm in machines.grid():
        score, kept = fit(reg, by_norm, *task.tuning, UPDATES, True)
        if score > best[0]:
            best = (score, reg, by_norm, int(kept))
    _, reg, by_norm, kept = best
    return [fit(reg, by_norm, *fold, kept, False)[0] for fold in task.folds]


def _chance(seed: int) -> Records:
    """Labels that no feature knows anything about, divided as the UCI tasks are."""
    rng = np.random.default_rng(seed)
    n, d = 400, 50
    x, y = rng.normal(size=(n, d)), rng.integers(2, size=n)
    half = rng.permutation(n)
    folds = tuple(
        (p[: 3 * n // 4], p[3 * n // 4 :]) for p in (rng.permutation(n) for _ in range(4))
    )
    task = Task("labels by chance", x, y, (half[: n // 2], half[n // 2 :]), folds)
    machines = Machines(task)
    best = machines.tuned(None)
    if best.iteration == 0:  # where no metric was learned the two protocols are one
        by_scores = max(
            (m for m in machines._fitted.values()),
            key=lambda m: float(m.validation_scores_[1:].max()),
        )
        kept = int(by_scores.validation_scores_[1:].argmax()) + 1
        best = Tuned(0.0, by_scores.reg, False, kept, by_scores)
    run = f"labels by chance, seed {seed}"
    leak = np.mean([machines.with_its_metric(best, fold) for fold in folds])
    clean = np.mean([machines.again(best, None, fold) for fold in folds])
    rows = [
        told(run, "accuracy by chance", v, layer=k, n=n, seed=seed)
        for k, v in ((LEAK, leak), (RFM, clean))
    ]
    return Records(rows)


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    """One number a task; one a seed for labels by chance."""
    methods = (RFM, LEAK, KRR, RFM_MAX, *OTHERS)
    table = {
        run: {r.layer: r.value for r in records.where(run=run, measure="accuracy")}
        for run in records.where(measure="accuracy").unique("run")
    }
    rows = [
        scores
        for scores in table.values()
        if all(np.isfinite(scores.get(m, np.nan)) for m in methods)
    ]
    pool = [m for m in methods if m not in (RFM_MAX, LEAK)]
    best = [max(scores[m] for m in pool) for scores in rows]
    both = [s for s in rows if np.isfinite(s.get(XRFM, np.nan))]
    ranks = [dict(zip(pool, rankdata([-s[m] for m in pool]), strict=True)) for s in rows]
    found: dict[str, list[float]] = {
        "clean_accuracy": [s[RFM] for s in rows],
        "paper_accuracy": [s[LEAK] for s in rows],
        "krr_accuracy": [s[KRR] for s in rows],
        "clean_over_krr": [s[RFM] - s[KRR] for s in rows],
        "paper_over_krr": [s[LEAK] - s[KRR] for s in rows],
        "paper_over_clean": [s[LEAK] - s[RFM] for s in rows],
        "same_as_xrfm": [s[RFM_MAX] - s[XRFM] for s in both],
        "clean_over_forest": [s[RFM] - s["random forest"] for s in rows],
        "pma": [s[RFM] / b for s, b in zip(rows, best, strict=True)],
        "p90": [float(s[RFM] >= 0.9 * b) for s, b in zip(rows, best, strict=True)],
        "p95": [float(s[RFM] >= 0.95 * b) for s, b in zip(rows, best, strict=True)],
        "friedman_rank": [r[RFM] for r in ranks],
        "friedman_rank_krr": [r[KRR] for r in ranks],
    }
    for name, layer in (("chance_paper", LEAK), ("chance_clean", RFM)):
        by_chance = records.where(measure="accuracy by chance", layer=layer)
        found[name] = [r.value for r in by_chance]
    return found
