"""Rich is not better: a code of the label beside each digit, learned by all layers or the last."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import lazyrich as lz
from experiments.data import mnist
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed
from experiments.training import accuracy, mlp, squared_error, train
from lazyrich import Records

STRENGTHS = (0.0, 1.0, 3.0)
TRAINED = "all layers", "last layer"
_LOSS = 0.025  # at which both stop, a quarter of what constant outputs would have
_MEASURES = [
    "low_rank_richness",
    "effective_dimension",
    "nc1",
    "kernel_target_alignment",
]


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, samples, units, epochs = {
        "quick": (1, 200, 64, 5),
        "laptop": (4, 1000, 512, 300),
        "full": (10, 10000, 1024, 1000),
    }[size]
    return {
        f"{_name(*setting)}, seed {seed}": partial(_cell, *setting, seed, samples, units, epochs)
        for seed in range(seeds)
        for setting in [(which, strength) for which in TRAINED for strength in STRENGTHS]
    }


def _name(which: str, strength: float) -> str:
    return f"{which}, code {strength:g}"


def _coded(x: Tensor, y: Tensor, strength: float) -> Tensor:
    """Ten more inputs, of which that of the label is on."""
    return torch.cat([x, strength * functional.one_hot(y, 10).float()], dim=1)


def _cell(which: str, strength: float, seed: int, samples: int, units: int, epochs: int) -> Records:
    run = f"{_name(which, strength)}, seed {seed}"
    x, y = mnist()
    x = functional.avg_pool2d(x[:, None], 2).flatten(1)
    drawn = torch.randperm(60000, generator=torch.Generator().manual_seed(seed))[:samples]
    digits, labels, seen = x[drawn], y[drawn], _coded(x[drawn], y[drawn], strength)
    test, truth = x[60000:62000], y[60000:62000]
    model = mlp(seen.shape[1], units, units, 10, seed=seed)
    learning = model if which == "all layers" else model[-1]
    adam = torch.optim.Adam(learning.parameters(), lr=1e-3)
    loss = float("nan")
    for _ in train(
        model, seen, labels, epochs=epochs, optimizer=adam, loss=squared_error, batch=100, seed=seed
    ):
        with torch.no_grad():
            loss = float(squared_error(model(seen), labels))
        if loss <= _LOSS:
            break
    without, other = torch.zeros(len(test), 10), (truth + 1) % 10
    scores = {
        "no code": accuracy(model, torch.cat([test, without], dim=1), truth),
        "true code": accuracy(model, _coded(test, truth, strength), truth),
        "code of the next class": accuracy(model, _coded(test, other, strength), truth),
    }
    rows = [
        told(run, "accuracy", value, layer=layer, n=len(test), seed=seed)
        for layer, value in scores.items()
    ]
    rows.append(told(run, "training loss", loss, n=len(digits), seed=seed))
    measured = lz.measure(
        model,
        [(seen, labels)],
        _MEASURES,
        layers="penultimate",
        run=run,
        seed=seed,
        progress=False,
    )
    return Records(rows) + measured


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    without = by_seed(records, "accuracy", "no code")
    wrong = by_seed(records, "accuracy", "code of the next class")
    for seed, distance in by_seed(records, "low_rank_richness").items():
        for strength in STRENGTHS:
            rich, lazy = (_name(which, strength) for which in TRAINED)
            values = {
                f"distance_all_{strength:g}": distance[rich],
                f"distance_apart_{strength:g}": distance[lazy] - distance[rich],
                f"last_layer_better_{strength:g}": without[seed][lazy] - without[seed][rich],
            }
            if strength:
                values[f"fooled_more_{strength:g}"] = wrong[seed][lazy] - wrong[seed][rich]
            for name, value in values.items():
                found.setdefault(name, []).append(value)
    return found
