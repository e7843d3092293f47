"""The Neural Feature Ansatz on tables, where initialization decides what one sees."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from statistics import median

import torch

import lazyrich as lz
from experiments.data import uci
from experiments.harness import Cell, Size, told
from experiments.training import accuracy, mlp, squared_error, trained
from lazyrich import Records

TASKS = (
    "cardiotocography-3clases",
    "contrac",
    "image-segmentation",
    "ringnorm",
    "semeion",
    "spambase",
    "statlog-german-credit",
    "steel-plates",
)
STARTS = {"default": 1.0, "small": 1e-3}
_ANSATZ = lz.CATALOGUE["nfa_correlation"]


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, width, epochs = {"quick": (1, 32, 5), "laptop": (3, 256, 300), "full": (5, 1024, 500)}[
        size
    ]
    tasks = TASKS[:1] if size == "quick" else TASKS
    return {
        f"{task}, {start} start, seed {seed}": partial(_cell, task, start, seed, width, epochs)
        for seed in range(seeds)
        for start in STARTS
        for task in tasks
    }


def _cell(task: str, start: str, seed: int, width: int, epochs: int) -> Records:
    run = f"{task}, {start} start, seed {seed}"
    data = uci(task)
    x, y = torch.from_numpy(data.x).float(), torch.from_numpy(data.y).long()
    train, test = (torch.from_numpy(rows) for rows in data.tuning)
    train = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))][:1000]
    sizes = (x.shape[1], *[width] * 5, len(y.unique()))
    model = mlp(*sizes, seed=seed, first=STARTS[start], bias=False)
    initial = deepcopy(model)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained(model, x[train], y[train], epochs=epochs, optimizer=adam, loss=squared_error)
    scores = [
        told(run, "accuracy", accuracy(model, x[at], y[at]), layer=which, n=len(at), seed=seed)
        for which, at in (("training samples", train), ("test samples", test))
    ]
    measures = [_ANSATZ, _ANSATZ.using(power=1.0), _ANSATZ.using(weights="change")]
    found = lz.nfa(
        model,
        [(x[train], y[train])],
        [*measures, "initial_nfm_correlation"],
        initial=initial,
        layers=["0", "2", "4"],
        run=run,
        seed=seed,
        progress=False,
    )
    return Records(scores) + found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for seed in range(max((r.seed for r in records), default=-1) + 1):
        small, default = (
            {layer: _median(records, seed, start, layer) for layer in ("0", "2")}
            for start in ("small", "default")
        )
        values = {
            "first_layer_small_start": small["0"],
            "first_layer_default_start": default["0"],
            "small_start_agrees_more": small["0"] - default["0"],
            "second_layer_default_start": default["2"],
            "more_than_with_the_start": default["0"]
            - _median(records, seed, "default", "0", "initial_nfm_correlation"),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _median(
    records: Records, seed: int, start: str, layer: str, measure: str = "nfa_correlation"
) -> float:
    """Over tasks."""
    estimator = _ANSATZ.conventions if measure == "nfa_correlation" else None
    return median(
        r.value
        for r in records
        if r.measure == measure
        and r.layer == layer
        and r.seed == seed
        and f"{start} start" in r.run
        and estimator in (None, r.estimator)
    )
