"""Does the effective dimension go with accuracy among networks that were trained here?"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from math import log

import torch
from torch import Tensor
from torch.nn import functional

import lazyrich as lz
from experiments.data import cifar
from experiments.harness import Cell, Size, told
from experiments.training import accuracy, train
from experiments.zoo.networks import FAMILIES, SIDE
from lazyrich import Records
from lazyrich.correlations import Models, correlate, predict_early

PROBE = 2000  # images whose features are measured
MEASURES = ["effective_dimension", "effective_dimension_debiased", "total_compression"]
COLUMNS = {
    "dimension": {"measure": "effective_dimension", "layer": "penultimate"},
    "compression": {"measure": "total_compression"},
    "accuracy": {"measure": "accuracy"},
    "log_parameters": {"measure": "log_parameters"},
}


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, epochs, images = {
        "quick": (1, 1, 500),
        "laptop": (3, 15, 10_000),
        "full": (10, 60, 10_000),
    }[size]
    return {
        f"{family}, width {width}, seed {seed}": partial(_cell, family, width, seed, epochs, images)
        for seed in range(seeds)
        for family, (_, widths) in FAMILIES.items()
        for width in (widths[:1] if size == "quick" else widths)
    }


def _cell(family: str, width: int, seed: int, epochs: int, images: int) -> Records:
    run = f"{family}, width {width}, seed {seed}"
    (x, y), (test_x, test_y) = _images()
    torch.manual_seed(seed)
    model = FAMILIES[family][0](width)
    probe = [(test_x[:PROBE], test_y[:PROBE])]
    first = next(name for name, module in model.named_children() if list(module.parameters()))
    capture = lz.Capture(model, [first, "penultimate"])
    records = Records([told(run, "log_parameters", log(_count(model)), seed=seed)])
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:images]
    for epoch in train(
        model, x[order], y[order], epochs=epochs, optimizer=adam, batch=100, seed=seed
    ):
        model.eval()
        with torch.no_grad():
            right = sum(
                accuracy(model, a, b) * len(a)
                for a, b in zip(test_x.split(2000), test_y.split(2000), strict=True)
            )
        n = len(test_x)
        records += Records([told(run, "accuracy", right / n, step=epoch, n=n, seed=seed)])
        if epoch == epochs:
            whole = lz.measure(capture, probe, MEASURES, interval=10, run=run, seed=seed)
            records += whole.tag(step=epoch)
        else:
            layer = capture.only(["penultimate"])
            records += lz.measure(layer, probe, MEASURES[:1], run=run, seed=seed).tag(step=epoch)
        model.train()
    return records


@cache
def _images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Half as wide and high, about zero."""
    (x, y), (test_x, test_y) = cifar()
    small, test_small = (functional.adaptive_avg_pool2d(t, SIDE) for t in (x, test_x))
    mean, deviation = small.mean((0, 2, 3), keepdim=True), small.std((0, 2, 3), keepdim=True)
    return ((small - mean) / deviation, y), ((test_small - mean) / deviation, test_y)


def _count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    seeds = records.where(measure="accuracy").unique("seed")
    for seed in seeds:
        rows = records.where(seed=seed)
        models = Models.of(rows, family, COLUMNS)
        if len(models.families) < 2 * len(FAMILIES):
            continue  # the smoke test has one network a family
        held = ["log_parameters"]
        dimension = _values(correlate(models, "dimension", "accuracy", controls=held, resamples=0))
        expansion = _values(
            correlate(models, "compression", "accuracy", controls=held, resamples=0)
        )
        early = predict_early(rows, family, COLUMNS["dimension"], COLUMNS["accuracy"], resamples=0)
        fifth = _values(early.where(step=rows.unique("step")[-1] // 5))
        values = {
            "dimension_partial": dimension["partial_correlation"],
            "dimension_among_siblings": dimension["within_family_correlation"],
            "compression_partial": expansion["partial_correlation"],
            "compression_among_siblings": expansion["within_family_correlation"],
            "early": fifth["early_correlation"],
            "early_more_than_accuracy": fifth["early_correlation"] - fifth["early_baseline"],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def family(run: str) -> str:
    """The architecture that a run is of."""
    return run.split(",")[0]


def _values(records: Records) -> dict[str, float]:
    return {r.measure: r.value for r in records}
