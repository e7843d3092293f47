"""A convolutional network on CIFAR-10: does the geometry of its classes pass through stages?"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import lazyrich as lz
from experiments.data import cifar
from experiments.harness import Cell, Size, told
from experiments.reading import over_steps
from experiments.training import accuracy, convolutional, updates
from lazyrich import Records
from lazyrich.measures.manifold_geometry import Conventions
from lazyrich.trajectories import stages

_CONVENTIONS = Conventions(points=20, draws=400)
_MEASURES = [
    lz.CATALOGUE[name].using(conventions=_CONVENTIONS)
    for name in (
        "capacity",
        "manifold_radius",
        "manifold_dimension",
        "center_alignment",
        "axis_alignment",
        "center_axis_alignment",
    )
]
_ALIGNMENTS = ("center_alignment", "axis_alignment", "center_axis_alignment")
_CERTAIN = 0.5
_FIRST_PASS = 50  # steps through all images


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, samples, width, steps = {
        "quick": (1, 200, 8, 12),
        "laptop": (4, 5000, 8, 1500),
        "full": (5, 10000, 64, 20000),
    }[size]
    return {f"seed {seed}": partial(_cell, seed, samples, width, steps) for seed in range(seeds)}


def half(x: Tensor) -> Tensor:
    """Images at half the resolution, centered."""
    return 2 * functional.avg_pool2d(x, 2) - 1


def _cell(seed: int, samples: int, width: int, steps: int) -> Records:
    run = f"seed {seed}"
    (x, y), (test, truth) = cifar()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:samples]
    x, y, test, truth = half(x[order]), y[order], half(test[:1000]), truth[:1000]
    model = convolutional(width, 10, seed=seed, running=False)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    found = _seen(model, test, truth, run, seed).tag(step=0)
    recorded = {round(2 ** (k / 2)) for k in range(2 * 15)} | {steps}
    for step in updates(model, x, y, steps=steps, optimizer=sgd, batch=100, seed=seed):
        if step in recorded:
            right = accuracy(model, x[:1000], y[:1000])
            found += Records([told(run, "training accuracy", right, step=step, seed=seed)])
            found += _seen(model, test, truth, run, seed).tag(step=step)
    return found


def _seen(model: torch.nn.Module, x: Tensor, y: Tensor, run: str, seed: int) -> Records:
    right = told(run, "test accuracy", accuracy(model, x, y), n=len(x), seed=seed)
    options = {"layers": "penultimate", "run": run, "seed": seed, "progress": False}
    found = lz.measure(model, [(x, y)], _MEASURES, **options)
    return Records([right]) + found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        turns = [r.step for r in stages(here) if r.value >= _CERTAIN]
        test = over_steps(here, "test accuracy")
        paths = {name: over_steps(here, name) for name in _ALIGNMENTS}
        radius, dimension = (
            over_steps(here, f"manifold_{name}") for name in ("radius", "dimension")
        )
        early = max(step for step in test if step <= _FIRST_PASS)
        saturated = min(s for s, a in test.items() if a >= 0.95 * max(test.values()))
        values = {
            "stages": float(len(turns) + 1),
            "turns_after_saturation": float(any(step > saturated for step in turns)),
            "early_radius": radius[early] - radius[0],
            "early_dimension": dimension[early] - dimension[0],
            "center_peaks": _peak(paths["center_alignment"]),
            "axis_peaks": _peak(paths["axis_alignment"]),
            "center_axis_peaks": _peak(paths["center_axis_alignment"]),
            "center_falls_late": _late(paths["center_alignment"]),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _peak(path: Mapping[int, float]) -> float:
    """How far the path rises above the higher one of its two ends."""
    steps = sorted(path)
    return max(path.values()) - max(path[steps[0]], path[steps[-1]])


def _late(path: Mapping[int, float]) -> float:
    """Change over the last third of the steps."""
    steps = sorted(path)
    return path[steps[-1]] - path[steps[2 * len(steps) // 3]]
