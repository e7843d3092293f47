"""A star that goes with one class: the network looks at it, and little else."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.data import cifar
from experiments.harness import Cell, Size, told
from experiments.pictures import over_channels
from experiments.star import PIXELS, share, starred
from experiments.training import accuracy, mlp, trained
from lazyrich import Records
from lazyrich.interventions import mask_inputs

CLASSES = 1, 9  # cars and trucks
STARTS = {"default": 1.0, "small": 0.01}
_AREA = float(PIXELS.float().mean())


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, epochs, width = {"quick": (1, 3, 64), "laptop": (5, 30, 256), "full": (10, 60, 1024)}[
        size
    ]
    return {
        f"{start} start, seed {seed}": partial(_cell, start, seed, epochs, width)
        for seed in range(seeds)
        for start in STARTS
    }


def _two_classes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    at = (y == CLASSES[0]) | (y == CLASSES[1])
    return x[at], (y[at] == CLASSES[1]).long()


def _cell(start: str, seed: int, epochs: int, width: int) -> Records:
    run = f"{start} start, seed {seed}"
    train, test = (_two_classes(*part) for part in cifar())
    (x, y), (z, labels) = train, test
    x = starred(x, y == 1)
    layers = mlp(x[0].numel(), width, width, 2, seed=seed, first=STARTS[start])
    model = nn.Sequential(nn.Flatten(), *layers)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained(model, x, y, epochs=epochs, optimizer=adam, batch=128, seed=seed)
    seen = {
        "star with its class": starred(z, labels == 1),
        "no star": z,
        "star with the other class": starred(z, labels == 0),
    }
    scores = [
        told(run, "accuracy", accuracy(model, images, labels), layer=name, n=len(z), seed=seed)
        for name, images in seen.items()
    ]
    measures = ["nfm_diagonal", "agop_diagonal"]
    options = {"layers": "1", "run": run, "seed": seed, "progress": False}
    diagonals = lz.nfa(model, [(x, y)], measures, **options)
    agop = lz.agop(model, [(x, y)], "1", progress=False)
    data = [(seen["star with its class"], labels)]
    masked = mask_inputs(
        model, data, agop, remove=[_AREA], fill=x.mean(0), run=run, seed=seed, progress=False
    )
    scores += [
        told(run, f"{measure} on the star", share(diagonals, measure), layer="1", seed=seed)
        for measure in measures
    ]
    return Records(scores) + masked + (over_channels(diagonals, 32, 32) if seed == 0 else Records())


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        score = {r.layer: r.value for r in here if r.measure == "accuracy" and r.index is None}
        masked = [r for r in here if r.measure == "accuracy" and r.index is not None]
        without = min(masked, key=lambda r: r.index or 0)
        start = run.split()[0]
        values = {
            f"agop_on_the_star_{start}": here.where(measure="agop_diagonal on the star")[0].value,
            f"nfm_on_the_star_{start}": here.where(measure="nfm_diagonal on the star")[0].value,
            f"follows_the_star_{start}": 1 - score["star with the other class"],
            f"masking_costs_{start}": (without.null or 0.0) - without.value,
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found
