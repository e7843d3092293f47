"""One gradient step of a two-layer network: do capacity and accuracy rise with its size?"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import sqrt

import torch
from torch import Tensor

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed, rank_correlation, trend
from lazyrich import Records
from lazyrich.measures.manifold_geometry import Conventions

STEPS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
UP_TO = 32.0  # sizes at which the spike is still in line with the teacher
_CONVENTIONS = Conventions(points=100, draws=400)
_RIDGE = 1e-2


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, d, units, n = {
        "quick": (1, 50, 100, 500),
        "laptop": (10, 200, 400, 2000),
        "full": (20, 2000, 4000, 20000),
    }[size]
    return {
        f"step {eta:g}, seed {seed}": partial(_cell, eta, seed, d, units, n)
        for seed in range(seeds)
        for eta in STEPS
    }


def _cell(eta: float, seed: int, d: int, units: int, n: int) -> Records:
    run = f"step {eta:g}, seed {seed}"
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    teacher = normal(d) / sqrt(d)
    x, fresh, test = normal(3, n, d)
    labels = [(part @ teacher > 0).long() for part in (x, fresh, test)]
    weights, readout = normal(d, units) / sqrt(d), normal(units) / sqrt(units)
    moved = weights + eta * sqrt(units) * _descent(x, 2.0 * labels[0] - 1, weights, readout)
    features, seen = torch.tanh(fresh @ moved), torch.tanh(test @ moved)
    fit = _ridge(features, 2.0 * labels[1] - 1)
    right = float(((seen @ fit > 0) == labels[2].bool()).double().mean())
    spike = (moved - weights).norm() / weights.norm()
    capacity = lz.CATALOGUE["capacity"].using(conventions=_CONVENTIONS)
    radius, dimension = (
        lz.CATALOGUE[f"manifold_{name}"].using(conventions=_CONVENTIONS)
        for name in ("radius", "dimension")
    )
    found = lz.measure_arrays(
        {"hidden": seen},
        [capacity, radius, dimension, "kernel_target_alignment", "low_rank_richness"],
        labels=labels[2],
        outputs=(seen @ fit)[:, None],
        run=run,
        seed=seed,
    )
    scores = [
        told(run, "accuracy", right, n=n, seed=seed),
        told(run, "weight change", float(spike), layer="hidden", n=n, seed=seed),
    ]
    return Records(scores) + found


def _descent(x: Tensor, y: Tensor, weights: Tensor, readout: Tensor) -> Tensor:
    """Minus the gradient of half the mean squared error, [inputs, units]."""
    hidden = torch.tanh(x @ weights)
    error = y - hidden @ readout / sqrt(len(readout))
    return x.T @ (error[:, None] * readout * (1 - hidden**2)) / len(x) / sqrt(len(readout))


def _ridge(features: Tensor, y: Tensor) -> Tensor:
    gram = features.T @ features / len(features)
    return torch.linalg.solve(gram + _RIDGE * torch.eye(len(gram)), features.T @ y / len(features))


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    accuracies = by_seed(records, "accuracy")
    rising, all_sizes = (
        [f"step {eta:g}" for eta in STEPS if eta <= highest] for highest in (UP_TO, STEPS[-1])
    )
    for seed, capacity in by_seed(records, "capacity").items():
        accuracy = accuracies[seed]
        values = {
            "capacity_rises": trend(capacity, rising),
            "accuracy_rises": trend(accuracy, rising),
            "accuracy_follows_capacity": rank_correlation(
                [capacity[s] for s in rising], [accuracy[s] for s in rising]
            ),
            "capacity_rises_always": trend(capacity, all_sizes),
            "accuracy_rises_always": trend(accuracy, all_sizes),
            "gain_of_capacity": capacity[rising[-1]] / capacity[rising[0]] - 1,
            "gain_of_accuracy": accuracy[rising[-1]] - accuracy[rising[0]],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found
