"""Addition modulo a prime: test accuracy jumps long after training accuracy, and D_LR does what?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log2, sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.reading import over_steps
from experiments.training import Loss, accuracy, mlp, squared_error, train
from lazyrich import Records


class Square(nn.Module):
    """x to x squared."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square()


@dataclass(frozen=True)
class Recipe:
    """A network and how it is trained; AdamW on all training pairs at once."""

    activation: Callable[[], nn.Module]
    loss: Loss
    rate: float
    decay: float
    reading: str
    share_of_steps: float


RECIPES = {
    "quadratic": Recipe(Square, squared_error, 0.005, 5.0, "literal", 0.4),
    "relu": Recipe(nn.ReLU, functional.cross_entropy, 0.01, 1.0, "gauge", 1.0),
}
_SOLVED = 0.99


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, p, units, steps = {
        "quick": (1, 13, 32, 50),
        "laptop": (5, 59, 256, 1500),
        "full": (10, 97, 500, 1500),
    }[size]
    return {
        f"{name}, seed {seed}": partial(_cell, name, seed, p, units, steps)
        for seed in range(seeds)
        for name in RECIPES
    }


def _cell(name: str, seed: int, p: int, units: int, steps: int) -> Records:
    run, recipe = f"{name}, seed {seed}", RECIPES[name]
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    x = functional.one_hot(pairs, p).flatten(1).float()
    y = pairs.sum(1) % p
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    seen, unseen = order[: len(x) // 2], order[len(x) // 2 :]
    model = mlp(2 * p, units, p, seed=seed, activation=recipe.activation)
    adam = torch.optim.AdamW(
        model.parameters(), lr=recipe.rate, weight_decay=recipe.decay, betas=(0.9, 0.98)
    )
    measures = [
        lz.CATALOGUE[m].using(kind=recipe.reading) for m in ("low_rank_richness", "output_rank")
    ]
    most = round(steps * recipe.share_of_steps)
    recorded = {round(2 ** (k / 4)) for k in range(4 * 11)} | {most}
    measured = {round(2 ** (k / 2)) for k in range(2 * 11)} | {most}
    found = Records()
    for step in train(
        model, x[seen], y[seen], epochs=most, optimizer=adam, loss=recipe.loss, seed=seed
    ):
        if step not in recorded:
            continue
        scores = {
            "training pairs": accuracy(model, x[seen], y[seen]),
            "test pairs": accuracy(model, x[unseen], y[unseen]),
        }
        found += Records(
            told(run, "accuracy", value, layer=layer, step=step, n=len(x) // 2, seed=seed)
            for layer, value in scores.items()
        )
        if step not in measured:
            continue
        found += lz.measure(
            model,
            [(x, y)],
            [*measures, "effective_dimension"],
            layers="penultimate",
            run=run,
            seed=seed,
            progress=False,
        ).tag(step=step)
    return found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here, name = records.where(run=run), run.partition(",")[0]
        test = over_steps(here, "accuracy", "test pairs")
        memorized = _first(over_steps(here, "accuracy", "training pairs"))
        if memorized == inf:
            continue
        distance, dimension, rank = (
            over_steps(here, m) for m in ("low_rank_richness", "effective_dimension", "output_rank")
        )
        last, then = max(test), min(step for step in distance if step >= memorized)
        explained = {s: (1 - distance[s]) / sqrt(dimension[s] / rank[s]) for s in (then, last)}
        values = {
            f"test_accuracy_{name}": test[last],
            f"test_when_memorized_{name}": test[int(memorized)],
            f"delay_{name}": log2(_first(test) / memorized),
            f"distance_falls_{name}": distance[last] - distance[then],
            f"dimension_over_rank_{name}": dimension[last] / rank[last],
            f"explained_{name}": explained[last] - explained[then],
        }
        for claim, value in values.items():
            found.setdefault(claim, []).append(value)
    return found


def _first(values: Mapping[int, float]) -> float:
    """The first step at which the pairs are solved."""
    return min((step for step, value in values.items() if value >= _SOLVED), default=inf)
