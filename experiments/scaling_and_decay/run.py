"""Smaller targets make training lazy, weight decay moves weights: which measures tell?"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn import functional

import lazyrich as lz
from experiments.data import mnist
from experiments.dial import Dial, descend
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed, trend
from experiments.training import accuracy, mlp
from lazyrich import Records

SCALES = (1.0, 3.0, 10.0, 30.0)  # what targets are divided by
DECAYS = (0.0, 0.001, 0.003)
_LOSS = 0.015
MEASURES = ["low_rank_richness", "initial_similarity", "parameter_norm", "nc1"]


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, samples, units, most = {
        "quick": (1, 100, 64, 100),
        "laptop": (4, 500, 256, 3000),
        "full": (10, 5000, 1024, 30000),
    }[size]
    settings = [(scale, 0.0) for scale in SCALES]
    settings += [(SCALES[0], decay) for decay in DECAYS[1:]]
    return {
        f"{_name(*setting)}, seed {seed}": partial(_cell, *setting, seed, samples, units, most)
        for seed in range(seeds)
        for setting in settings
    }


def _name(scale: float, decay: float = 0.0) -> str:
    return f"targets over {scale:g}, decay {decay:g}"


def _cell(scale: float, decay: float, seed: int, samples: int, units: int, most: int) -> Records:
    run = f"{_name(scale, decay)}, seed {seed}"
    x, y = mnist()
    x = functional.avg_pool2d(x[:, None], 2).flatten(1)
    drawn = torch.randperm(60000, generator=torch.Generator().manual_seed(seed))[:samples]
    seen, labels = x[drawn], y[drawn]
    network = mlp(x.shape[1], units, units, 10, seed=seed)
    dial = Dial(network, scale, centered=False)
    targets = functional.one_hot(labels, 10).float()
    step, loss = 0, float("nan")
    with TemporaryDirectory() as folder:
        recorder = lz.Recorder(
            network,
            [(seen, labels)],
            Path(folder) / "run.jsonl",
            MEASURES,
            when=lz.every(1),
            layers="penultimate",
            run=run,
            seed=seed,
        )
        with recorder:
            recorder.step(0)
            for step, loss in descend(  # noqa: B007, both are told at the end
                dial, seen, targets, most=most, decay=decay
            ):
                if loss <= _LOSS:
                    break
            recorder.step(step + 1)
            found = recorder.records
    scores = {
        "training loss": loss,
        "accuracy": accuracy(network, x[60000:62000], y[60000:62000]),
    }
    return found + Records(
        told(run, name, value, step=step + 1, seed=seed) for name, value in scores.items()
    )


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    lazier = [_name(scale) for scale in SCALES]
    decayed = [_name(SCALES[0], decay) for decay in DECAYS]
    for measure in MEASURES:
        layer = "model" if measure == "parameter_norm" else None
        for values in by_seed(records, measure, layer).values():
            found.setdefault(f"{measure}_by_scale", []).append(trend(values, lazier))
            found.setdefault(f"{measure}_by_decay", []).append(trend(values, decayed))
    return found
