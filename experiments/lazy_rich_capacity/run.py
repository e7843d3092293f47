"""From lazy to rich by one number: which measures see it, and how capacity is gained."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import nan

import torch
from torch import Tensor, nn
from torch.nn import functional

import lazyrich as lz
from experiments.data import mnist
from experiments.dial import Dial, descend
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed, trend
from experiments.training import accuracy, mlp
from lazyrich import Records
from lazyrich.measures.manifold_geometry import Conventions
from lazyrich.trajectories import attribute

INVERSE_SCALES = (0.01, 0.1, 1.0, 10.0, 30.0, 100.0)
MEDIUM, ULTRA = 10.0, 100.0
WEALTH = "poor", "wealthy"
_LEVELS = (0.06, 0.04, 0.02, 0.01)  # of the training loss, 0.1 at the start
_CONVENTIONS = Conventions(points=20, draws=400)
_PLANE = [
    lz.CATALOGUE[name].using(conventions=_CONVENTIONS)
    for name in ("capacity", "manifold_radius", "manifold_dimension")
]
_REST = [
    lz.CATALOGUE[name].using(conventions=_CONVENTIONS)
    for name in ("utility", "center_alignment", "axis_alignment", "center_axis_alignment")
]


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, samples, units, most = {
        "quick": (1, 100, 64, 200),
        "laptop": (5, 500, 256, 3000),
        "full": (10, 5000, 1024, 20000),
    }[size]
    settings = [(scale, "poor") for scale in INVERSE_SCALES] + [(MEDIUM, "wealthy")]
    return {
        f"{_name(*setting)}, seed {seed}": partial(_cell, *setting, seed, samples, units, most)
        for seed in range(seeds)
        for setting in settings
    }


def _name(inverse: float, wealth: str = "poor") -> str:
    return f"inverse scale {inverse:g}" + (", wealthy start" if wealth == "wealthy" else "")


def _digits() -> tuple[Tensor, Tensor]:
    """At half the resolution."""
    x, y = mnist()
    return functional.avg_pool2d(x[:, None], 2).flatten(1), y


def _cell(inverse: float, wealth: str, seed: int, samples: int, units: int, most: int) -> Records:
    run = f"{_name(inverse, wealth)}, seed {seed}"
    x, y = _digits()
    drawn = torch.randperm(60000, generator=torch.Generator().manual_seed(seed))
    train, others = drawn[:samples], drawn[samples : samples + 2 * units]
    test = torch.arange(60000, 61000)
    network = mlp(x.shape[1], units, 10, seed=seed)
    if wealth == "wealthy":
        _enrich(network, x[others], y[others])
    dial = Dial(network, 1 / inverse)
    targets = functional.one_hot(y[train], 10).float()
    found, levels = Records(), list(_LEVELS)
    descent = descend(dial, x[train], targets, most=most, speed=min(0.3, 3 / inverse))
    for step, loss in _crossings(descent, levels):  # noqa: B007, both are told at the end
        found += _plane(dial, x[test], y[test], run, seed).tag(step=step)
    features, outputs = _seen(dial, x[test])
    found += lz.measure_arrays(
        {"hidden": features},
        [*_REST, "kernel_target_alignment", "low_rank_richness"],
        labels=y[test],
        outputs=outputs,
        run=run,
        seed=seed,
    ).tag(step=step)
    start, now = dial.start[0].weight, dial.network[0].weight
    scores = {
        "training loss": loss,
        "accuracy": accuracy(dial, x[test], y[test]),
        "weight change": float(((now - start).norm() / start.norm()).detach()),
    }
    return found + Records(
        told(run, name, value, step=step, n=len(test), seed=seed) for name, value in scores.items()
    )


def _crossings(
    descent: Iterator[tuple[int, float]], levels: list[float]
) -> Iterator[tuple[int, float]]:
    """The first step, those at which the loss falls below a level, and the last one."""
    step, loss, told_at = 0, nan, -1
    for step, loss in descent:
        passed = [level for level in levels if loss <= level]
        if step == 0 or passed:
            yield step, loss
            told_at = step
        for level in passed:
            levels.remove(level)
        if not levels:
            break
    if told_at != step:
        yield step, loss


@torch.no_grad()
def _enrich(network: nn.Sequential, x: Tensor, y: Tensor) -> None:
    """First weights that are differences of two other images, of different classes if it may be."""
    weights = network[0].weight
    one, other = x[: len(weights)], x[len(weights) :]
    apart = torch.where((y[: len(weights)] != y[len(weights) :])[:, None], one - other, one)
    weights.copy_(apart / apart.norm(dim=1, keepdim=True) * weights.norm(dim=1, keepdim=True))


@torch.no_grad()
def _seen(dial: Dial, x: Tensor) -> tuple[Tensor, Tensor]:
    return dial.features(x), dial(x)


def _plane(dial: Dial, x: Tensor, y: Tensor, run: str, seed: int) -> Records:
    features, _ = _seen(dial, x)
    return lz.measure_arrays({"hidden": features}, _PLANE, labels=y, run=run, seed=seed)


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    order = [_name(scale) for scale in INVERSE_SCALES]
    tables = {
        name: by_seed(records, name)
        for name in (
            "capacity",
            "manifold_radius",
            "manifold_dimension",
            "weight change",
            "kernel_target_alignment",
            "low_rank_richness",
        )
    }
    start = by_seed(records, "capacity", step=0)
    medium, ultra = _name(MEDIUM), _name(ULTRA)
    for seed, capacity in tables["capacity"].items():
        radius, dimension = tables["manifold_radius"][seed], tables["manifold_dimension"][seed]
        poor, wealthy = (
            _parts(records, f"{_name(MEDIUM, wealth)}, seed {seed}") for wealth in WEALTH
        )
        values = {
            "capacity_orders": trend(capacity, order),
            "weights_order": trend(tables["weight change"][seed], order),
            "alignment_orders": trend(tables["kernel_target_alignment"][seed], order),
            "distance_orders": trend(tables["low_rank_richness"][seed], order),
            "radius_shrinks": radius[order[0]] - radius[medium],
            "dimension_shrinks": dimension[order[0]] - dimension[medium],
            "radius_given_up": radius[ultra] - radius[medium],
            "dimension_shrinks_on": dimension[medium] - dimension[ultra],
            "wealth_at_the_start": start[seed][_name(MEDIUM, "wealthy")] - start[seed][medium],
            "poor_by_radius": poor["radius"],
            "poor_by_dimension": poor["dimension"],
            "wealthy_by_radius": wealthy["radius"] - wealthy["dimension"],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _parts(records: Records, run: str) -> dict[str, float]:
    """What radius and dimension have done to the logarithm of capacity in training."""
    here = records.where(run=run, measure=[m.name for m in _PLANE])
    parts = attribute(here, before=0, after=max(here.unique("step")))
    return {
        part: parts.where(measure=f"capacity_change_from_{part}")[0].value
        for part in ("radius", "dimension")
    }
