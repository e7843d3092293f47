"""Recurrent networks that start from weights of low or high rank: as good, but not the same."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed, trend
from lazyrich import Records

RANKS = (1, 2, 8, 32, 128)
_TIME, _LEAK, _NOISE = 20, 0.2, 1.0
_LOSS = 0.05  # cross-entropy at which training stops, averaged over steps; 0.69 at the start
_MEASURES = [
    "capacity",
    "manifold_radius",
    "manifold_dimension",
    "center_alignment",
    "axis_alignment",
    "center_axis_alignment",
]


class Recurrent(nn.Module):
    """A leaky network of tanh units, read at the last of its steps.

    Shapes: inputs [samples, time, inputs], outputs [samples, 2].
    """

    def __init__(self, units: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        recurrent = normal(units, rank) @ normal(rank, units)
        self.recurrent = nn.Parameter(recurrent * sqrt(units) / recurrent.norm())
        self.inputs = nn.Parameter(normal(4, units) / 2)
        self.readout = nn.Linear(units, 2, bias=False)
        with torch.no_grad():
            self.readout.weight.copy_(normal(2, units) / units)

    def forward(self, x: Tensor) -> Tensor:
        return self.readout(self.states(x))

    def states(self, x: Tensor) -> Tensor:
        """At the last step."""
        h = x.new_zeros(len(x), len(self.recurrent))
        for now in x.unbind(1):
            h = (1 - _LEAK) * h + _LEAK * torch.tanh(h @ self.recurrent.T + now @ self.inputs)
        return h


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, units, most = {
        "quick": (1, 128, 30),
        "laptop": (8, 128, 1500),
        "full": (20, 512, 5000),
    }[size]
    return {
        f"rank {rank}, seed {seed}": partial(_cell, rank, seed, units, most)
        for seed in range(seeds)
        for rank in RANKS
    }


def _trials(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Two noisy signals and a context that says whose sign counts: inputs, choices, contexts."""
    signs = torch.randint(0, 2, (count, 2), generator=generator) * 2.0 - 1
    strength = 0.5 + 0.5 * torch.rand(count, 2, generator=generator)
    context = torch.randint(0, 2, (count,), generator=generator)
    noise = _NOISE * torch.randn(count, _TIME, 2, generator=generator)
    seen = (signs * strength)[:, None] + noise
    told_which = functional.one_hot(context, 2).float()[:, None].expand(-1, _TIME, -1)
    choices = (signs[torch.arange(count), context] > 0).long()
    return torch.cat([seen, told_which], dim=2), choices, context


def _cell(rank: int, seed: int, units: int, most: int) -> Records:
    run = f"rank {rank}, seed {seed}"
    generator = torch.Generator().manual_seed(seed)
    model = Recurrent(units, rank, generator)
    start = deepcopy(model)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    average, step = 0.7, 0
    for step in range(1, most + 1):  # noqa: B007, told at the end
        x, choices, _ = _trials(128, generator)
        loss = functional.cross_entropy(model(x), choices)
        sgd.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        sgd.step()
        average = 0.95 * average + 0.05 * loss.item()
        if average <= _LOSS:
            break
    x, choices, _ = _trials(2000, torch.Generator().manual_seed(10_000 + seed))
    with torch.no_grad():
        right = float((model(x).argmax(1) == choices).double().mean())
        states = {"before training": start.states(x), "hidden": model.states(x)}
        moved = (model.recurrent - start.recurrent).norm() / start.recurrent.norm()
    scores = {
        "training loss": average,
        "accuracy": right,
        "weight change": float(moved),
        "representation change": 1 - _similarity(*states.values()),
    }
    rows = [told(run, name, v, step=step, n=len(x), seed=seed) for name, v in scores.items()]
    found = lz.measure_arrays(states, _MEASURES, labels=choices, run=run, seed=seed)
    return Records(rows) + found.tag(step=step)


def _similarity(x: Tensor, z: Tensor) -> float:
    """Cosine of the centered kernels of two representations (CKA)."""
    x, z = x - x.mean(0), z - z.mean(0)
    return float((x.T @ z).square().sum() / ((x.T @ x).norm() * (z.T @ z).norm()))


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    order = [f"rank {rank}" for rank in RANKS]
    tables = {
        "weights_move_less": by_seed(records, "weight change"),
        "representation_moves_less": by_seed(records, "representation change"),
        "radius_by_rank": by_seed(records, "manifold_radius", "hidden"),
        "dimension_by_rank": by_seed(records, "manifold_dimension", "hidden"),
        "start_by_rank": by_seed(records, "capacity", "before training"),
    }
    capacities = by_seed(records, "capacity", "hidden")
    starts = tables["start_by_rank"]
    for seed in capacities:
        values = {name: trend(table[seed], order) for name, table in tables.items()}
        before, after = (_spread(table[seed]) for table in (starts, capacities))
        values["capacities_converge"] = after / before
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _spread(values: Mapping[str, float]) -> float:
    """Largest over smallest, less one."""
    return max(values.values()) / min(values.values()) - 1
