"""Few images with a star among many without: when is the star seen, and when is it used?"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf, log2, nan

import torch
from torch import nn

import lazyrich as lz
from experiments.data import cifar
from experiments.harness import Cell, Size, told
from experiments.pictures import over_channels
from experiments.star import share, starred
from experiments.training import accuracy, mlp, squared_error, train
from lazyrich import Record, Records

_PLAIN, _STARRED, _TEST = 200, 20, 2000
_MEMORIZED = 0.99


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, epochs, width = {
        "quick": (1, 40, 64),
        "laptop": (5, 1000, 256),
        "full": (10, 3000, 1024),
    }[size]
    return {f"seed {seed}": partial(_cell, seed, epochs, width) for seed in range(seeds)}


def _cell(seed: int, epochs: int, width: int) -> Records:
    run = f"seed {seed}"
    (photos, _), (others, _) = cifar()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(photos), generator=generator)[: _PLAIN + _STARRED]
    y, labels = (torch.arange(len(drawn)) >= _PLAIN).long(), torch.arange(_TEST) % 2
    x, test = starred(photos[drawn], y == 1), starred(others[:_TEST], labels == 1)
    layers = mlp(x[0].numel(), width, width, 2, seed=seed, first=0.01)
    model = nn.Sequential(nn.Flatten(), *layers)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    recorded = {round(2 ** (k / 4)) for k in range(4 * epochs)} | {epochs}
    rows: list[Record] = []
    last = Records()
    for epoch in train(model, x, y, epochs=epochs, optimizer=sgd, loss=squared_error):
        if epoch not in recorded:
            continue
        options = {"layers": "1", "run": run, "seed": seed, "step": epoch, "progress": False}
        last = lz.nfa(model, [(x, y)], ["nfm_diagonal", "agop_diagonal"], **options)
        for layer, value in (
            ("training images", accuracy(model, x, y)),
            ("test images", accuracy(model, test, labels)),
        ):
            rows.append(told(run, "accuracy", value, layer=layer, step=epoch, seed=seed))
        for measure in ("agop_diagonal", "nfm_diagonal"):
            on = share(last, measure)
            rows.append(told(run, f"{measure} on the star", on, layer="1", step=epoch, seed=seed))
    return Records(rows) + (over_channels(last, 32, 32) if seed == 0 else Records())


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        test = _over_steps(here, "accuracy", "test images")
        trained = _over_steps(here, "accuracy", "training images")
        agop = _over_steps(here, "agop_diagonal on the star", "1")
        jump = _first(test, (0.5 + max(test.values())) / 2)
        seen = _first(agop, max(agop.values()) / 2)
        memorized = _first(trained, _MEMORIZED)
        values = {
            "seen_before_used": log2(jump / seen),
            "memorized_before_used": log2(jump / memorized) if memorized < inf else nan,
            "test_accuracy": test[max(test)],
            "star_in_the_end": agop[max(agop)],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _over_steps(records: Records, measure: str, layer: str) -> dict[int, float]:
    return {r.step: r.value for r in records.where(measure=measure, layer=layer)}


def _first(values: Mapping[int, float], level: float) -> float:
    """The first step at which that level is reached."""
    return min((step for step, value in values.items() if value >= level), default=inf)
