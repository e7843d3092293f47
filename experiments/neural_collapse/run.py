"""Trained on and on after the last error: does D_LR go to 0 where classes collapse?"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log10

import torch
from torch import Tensor
from torch.nn import functional

import lazyrich as lz
from experiments.data import mnist
from experiments.harness import Cell, Size, told
from experiments.reading import over_steps, rank_correlation
from experiments.training import Loss, accuracy, mlp, squared_error, train
from lazyrich import Records

LOSSES: Mapping[str, tuple[Loss, float, str]] = {
    "squared error": (squared_error, 0.3, "literal"),
    "cross-entropy": (functional.cross_entropy, 0.1, "gauge"),
}
_COLLAPSE = ["nc1", "nc2_equinorm", "nc2_equiangular", "nc2_maximal_angle"]
_MOMENTUM, _DECAY = 0.9, 5e-4
_LEARNED = 0.999  # of the training digits


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, each, units, epochs = {
        "quick": (1, 20, 64, 20),
        "laptop": (4, 100, 256, 300),
        "full": (10, 5000, 512, 350),
    }[size]
    return {
        f"{loss}, seed {seed}": partial(_cell, loss, seed, each, units, epochs)
        for seed in range(seeds)
        for loss in LOSSES
    }


def _digits(each: int, seed: int) -> tuple[Tensor, Tensor]:
    """As many of each class, at half the resolution."""
    x, y = mnist()
    order = torch.randperm(60000, generator=torch.Generator().manual_seed(seed))
    at = torch.cat([order[y[order] == digit][:each] for digit in range(10)])
    return functional.avg_pool2d(x[at, None], 2).flatten(1), y[at]


def _cell(name: str, seed: int, each: int, units: int, epochs: int) -> Records:
    run = f"{name}, seed {seed}"
    loss, rate, kind = LOSSES[name]
    x, y = _digits(each, seed)
    model = mlp(x.shape[1], units, units, units, 10, seed=seed)
    sgd = torch.optim.SGD(model.parameters(), lr=rate, momentum=_MOMENTUM, weight_decay=_DECAY)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, epochs)
    distance = lz.CATALOGUE["low_rank_richness"].using(kind=kind)
    recorded = {round(2 ** (k / 2)) for k in range(2 * epochs)} | {epochs}
    found = Records()
    for epoch in train(model, x, y, epochs=epochs, optimizer=sgd, loss=loss, batch=50, seed=seed):
        slower.step()
        if epoch not in recorded:
            continue
        found += lz.measure(
            model,
            [(x, y)],
            [distance, *_COLLAPSE],
            layers="penultimate",
            run=run,
            seed=seed,
            progress=False,
        ).tag(step=epoch)
        right = accuracy(model, x, y)
        found += Records([told(run, "training accuracy", right, step=epoch, n=len(x), seed=seed)])
    return found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        loss = "squared" if run.startswith("squared") else "entropy"
        right = over_steps(here, "training accuracy")
        learned = min((step for step, a in right.items() if a >= _LEARNED), default=None)
        if learned is None:
            continue
        last = max(right)
        distance, nc1, equinorm, angle = (
            over_steps(here, name)
            for name in ("low_rank_richness", "nc1", "nc2_equinorm", "nc2_maximal_angle")
        )
        values = {
            f"distance_in_the_end_{loss}": distance[last],
            f"distance_falls_{loss}": distance[last] - distance[learned],
            f"spread_falls_{loss}": log10(nc1[last] / nc1[learned]),
            f"angles_fall_{loss}": angle[last] - angle[learned],
            f"norms_fall_{loss}": equinorm[last] - equinorm[learned],
            f"together_{loss}": rank_correlation(list(distance.values()), list(nc1.values())),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found
