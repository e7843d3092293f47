"""Richness and classes never seen: the authors' own tables read again, and digits held out."""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

import torch
from torch.nn import functional

import lazyrich as lz
from experiments.data import mnist, path
from experiments.dial import Dial, descend
from experiments.harness import Cell, Size, told
from experiments.reading import rank_correlation
from experiments.training import accuracy, mlp, trained
from lazyrich import Records
from lazyrich.measures.manifold_geometry import Conventions
from lazyrich.trajectories import attribute

ALPHAS = ("1", "1.5", "2", "3", "5", "7.5", "10", "15", "30", "50", "75", "100")
RICHEST, MEDIUM, LAZIEST = "alpha 1", "alpha 7.5", "alpha 100"
_PUBLISHED = {
    "capacity": "alpha_cor_mf",
    "manifold_radius": "R_M_cor",
    "manifold_dimension": "D_M_cor",
    "center_axis_alignment": "cor_center_axes",
}
ARCHITECTURES = ("DenseNet121", "EfficientNetB0", "MobileNet", "ResNet18", "VGG")
_MARKERS = ("dimension_id", "utility_id", "capacity_id", "acc_test")
INVERSE_SCALES = (0.01, 1.0, 10.0, 30.0, 100.0)
_SEEN = 5  # digits below are trained on, the others held out
_CONVENTIONS = Conventions(points=20, draws=400)
_PLANE = [
    lz.CATALOGUE[name].using(conventions=_CONVENTIONS)
    for name in ("capacity", "manifold_radius", "manifold_dimension", "utility")
]


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, samples, units, most = {
        "quick": (1, 100, 64, 100),
        "laptop": (4, 500, 256, 2500),
        "full": (10, 5000, 1024, 20000),
    }[size]
    found: dict[str, Cell] = {
        f"published VGG-11, seed {seed}": partial(_published, seed) for seed in range(5)
    }
    found |= {f"published markers, {a}": partial(_markers, a) for a in ARCHITECTURES}
    return found | {
        f"{_name(inverse)}, seed {seed}": partial(_cell, inverse, seed, samples, units, most)
        for seed in range(seeds)
        for inverse in INVERSE_SCALES
    }


def _name(inverse: float) -> str:
    return f"digits, inverse scale {inverse:g}"


def _rows(name: str) -> list[dict[str, str]]:
    with path(name).open(newline="") as file:
        return list(csv.DictReader(file))


def _published(place: int) -> Records:
    """Means over subsamples of one training seed, for each scale of the network."""
    run = f"published VGG-11, seed {place}"
    rows = _rows("glue_official_cifar100_vgg11.csv")
    seed = sorted({row["seed"] for row in rows})[place]
    found = []
    for alpha in ALPHAS:
        here = [r for r in rows if r["seed"] == seed and float(r["alpha"]) == float(alpha)]
        for measure, column in _PUBLISHED.items():
            value = fmean(float(row[column]) for row in here)
            found.append(told(run, measure, value, layer=f"alpha {alpha}", n=len(here), seed=place))
    return Records(found)


def _markers(architecture: str) -> Records:
    """Rank correlations over the networks of one architecture with accuracy on other classes."""
    run = f"published markers, {architecture}"
    rows = [r for r in _rows("glue_official_ood_fig3.csv") if r["arch_name"] == architecture]
    other = [float(r["acc_lp_ood"]) for r in rows]
    return Records(
        told(run, m, rank_correlation([float(r[m]) for r in rows], other), n=len(rows))
        for m in _MARKERS
    )


def _cell(inverse: float, seed: int, samples: int, units: int, most: int) -> Records:
    run = f"{_name(inverse)}, seed {seed}"
    x, y = mnist()
    x = functional.avg_pool2d(x[:, None], 2).flatten(1)
    order = torch.randperm(60000, generator=torch.Generator().manual_seed(seed))
    test = torch.arange(60000, 64000)
    train = order[y[order] < _SEEN][:samples]
    dial = Dial(mlp(x.shape[1], units, _SEEN, seed=seed), 1 / inverse)
    targets = functional.one_hot(y[train], _SEEN).float()
    loss = float("nan")
    for _, loss in descend(dial, x[train], targets, most=most, speed=min(0.3, 3 / inverse)):
        if loss <= 0.01:
            break
    kinds = {
        "seen": (train, test[y[test] < _SEEN]),
        "held out": (order[y[order] >= _SEEN][:samples], test[y[test] >= _SEEN]),
    }
    found, scores = Records(), [told(run, "training loss", loss, n=samples, seed=seed)]
    for kind, (fit, judge) in kinds.items():
        with torch.no_grad():
            known, new = dial.features(x[fit]), dial.features(x[judge])
        right = _probe(known, y[fit], new, y[judge], seed)
        scores.append(told(run, "probe accuracy", right, layer=kind, n=len(judge), seed=seed))
        found += lz.measure_arrays({kind: new}, _PLANE, labels=y[judge], run=run, seed=seed)
    return Records(scores) + found


def _probe(
    x: torch.Tensor, y: torch.Tensor, new: torch.Tensor, labels: torch.Tensor, seed: int
) -> float:
    """Accuracy of a linear readout of standardized features."""
    mean, spread = x.mean(0), x.std(0) + 1e-6 * x.std()
    probe = mlp(x.shape[1], 10, seed=seed)
    adam = torch.optim.Adam(probe.parameters(), lr=0.01, weight_decay=1e-3)
    trained(probe, (x - mean) / spread, y, epochs=300, optimizer=adam)
    return accuracy(probe, (new - mean) / spread, labels)


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        if run.startswith("published VGG"):
            values = _of_table(here)
        elif run.startswith("published markers"):
            values = {r.measure: r.value for r in here}
            values["beats_accuracy"] = values["dimension_id"] - values.pop("acc_test")
        else:
            continue
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    for seed in sorted({int(r.run[-1]) for r in records if r.run.startswith("digits")}):
        for name, value in _of_digits(records, seed).items():
            found.setdefault(name, []).append(value)
    return found


def _of_table(here: Records) -> dict[str, float]:
    capacity, radius, alignment = (
        {r.layer: r.value for r in here.where(measure=m)}
        for m in ("capacity", "manifold_radius", "center_axis_alignment")
    )
    parts = attribute(here, before=MEDIUM, after=RICHEST, along="layer")
    return {
        "vgg_medium_over_rich": capacity[MEDIUM] / capacity[RICHEST] - 1,
        "vgg_medium_over_lazy": capacity[MEDIUM] / capacity[LAZIEST] - 1,
        "vgg_radius": radius[RICHEST] - radius[MEDIUM],
        "vgg_center_axis": alignment[RICHEST] - alignment[MEDIUM],
    } | {
        f"vgg_part_{part}": parts.where(measure=f"capacity_change_from_{part}")[0].value
        for part in ("radius", "dimension", "utility")
    }


def _of_digits(records: Records, seed: int) -> dict[str, float]:
    best = 10.0
    runs = {s: f"{_name(s)}, seed {seed}" for s in INVERSE_SCALES}
    right = {
        scale: records.where(run=run, measure="probe accuracy", layer="held out")[0].value
        for scale, run in runs.items()
    }
    geometry = records.where(layer="held out", run=list(runs.values()), measure=_NAMES)
    parts = attribute(geometry, before=runs[best], after=runs[100.0], along="run")
    return {
        "digits_medium_over_rich": right[best] - right[100.0],
        "digits_medium_over_lazy": right[best] - right[0.01],
        "digits_capacity": parts.where(measure="capacity_change")[0].value,
    } | {
        f"digits_part_{part}": parts.where(measure=f"capacity_change_from_{part}")[0].value
        for part in ("radius", "dimension")
    }


_NAMES = [measure.name for measure in _PLANE]
