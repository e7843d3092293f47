"""Trained ResNets whose penultimate features are projected and perturbed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.cifar_resnets import ERRORS, resnet
from experiments.data import cifar, path
from experiments.harness import Cell, Size
from lazyrich import Records
from lazyrich.interventions import (
    Dropout,
    Gaussian,
    Noise,
    SaltAndPepper,
    Uniform,
    perturb,
    project,
)

COMPONENTS = (1, 2, 4, 6, 7, 8, 9, 10, 12, 16, 32)
VARIANCE = (0.8, 0.85, 0.9, 0.95, 0.99)
NOISES: tuple[Noise, ...] = (
    *(Gaussian(s) for s in (0.1, 0.2, 0.3, 0.4, 0.5)),
    *(Uniform(s) for s in (0.1, 0.2, 0.3, 0.4, 0.5)),
    *(Dropout(s) for s in (0.1, 0.2, 0.3, 0.4, 0.5)),
    *(SaltAndPepper(s) for s in (0.05, 0.1, 0.15, 0.2, 0.25)),
)
UNCOLLAPSED = "MLPerf ResNet8"
_CLOSED = re.compile(r"in closed form ([\d.]+)")
Data = list[tuple[Tensor, Tensor]]


def cells(size: Size) -> Mapping[str, Cell]:
    fit, test = (500, 500) if size == "quick" else (5000, 10_000)
    depths = (20,) if size == "quick" else tuple(ERRORS)
    found: dict[str, Cell] = {f"ResNet-{d}": partial(_trained, d, fit, test) for d in depths}
    return found | {UNCOLLAPSED: _saved}


def _trained(depth: int, fit: int, test: int) -> Records:
    network = resnet(depth)
    train, held_out = cifar()
    capture = lz.Capture(network, "penultimate")
    return _intervened(
        f"ResNet-{depth}",
        network.linear,
        _features(capture, *train, fit),
        _features(capture, *held_out, test),
    )


def _saved() -> Records:
    """A network whose features are at hand: one half for the components, the other to be scored."""
    with np.load(path("features/kres8_pen2000.npz")) as file:
        x, w, b, y = (torch.from_numpy(file[name]) for name in ("pen", "W", "b", "y"))
    head = nn.Linear(*w.T.shape)
    with torch.no_grad():
        head.weight.copy_(w)
        head.bias.copy_(b)
    x, y = x.float(), y.long()
    return _intervened(UNCOLLAPSED, head, [(x[:1000], y[:1000])], [(x[1000:], y[1000:])])


def _intervened(run: str, head: nn.Linear, fit: Data, data: Data) -> Records:
    """The head alone on features at hand does what the whole network does on images."""
    model = nn.Sequential(head)
    found = project(
        model, fit, data, "penultimate", components=COMPONENTS, variance=VARIANCE, run=run
    )
    noisy = perturb(model, data, "penultimate", NOISES, draws=1, run=run)
    return found + Records(
        (r for r in noisy if r.estimator != "as it is"), noisy.definitions.values()
    )


def _features(capture: lz.Capture, x: Tensor, y: Tensor, count: int) -> Data:
    """Of the first images, or of equally many a class where they come by class."""
    chosen = torch.arange(len(x))[:: len(x) // count][:count]
    return [
        (layers["penultimate"].x, labels)
        for layers, (_, labels) in zip(
            capture.batches(_images(x[chosen], y[chosen])),
            _images(x[chosen], y[chosen]),
            strict=True,
        )
    ]


def _images(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    for pixels, labels in zip(x.split(500), y.split(500), strict=True):
        yield (pixels - mean) / deviation, labels


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for depth, errors in ERRORS.items():
        rows = records.where(run=f"ResNet-{depth}")
        if not rows or rows[0].n < 10_000:
            continue
        accuracy = rows.where(measure="accuracy", estimator="as it is")[0].value
        values = {
            "errors": round(10_000 * (1 - accuracy)) - errors,
            "eight_components": _change(rows, 8),
            "nine_components": _change(rows, 9),
            "nine_at_random": rows.where(measure="accuracy_change", index=9)[0].null or 0.0,
            "most_of_the_variance": rows.where(
                measure="accuracy_change", estimator="components for 0.95 of the variance"
            )[0].value,
            "closed_forms": max(_gap(r) for r in rows if _CLOSED.search(r.note)),
            "noise_goes_with_errors": _pooled(rows, NOISES),
            "gaussian_noise": _under(rows, Gaussian(0.5)),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    if other := records.where(run=UNCOLLAPSED):
        found["nine_components_uncollapsed"] = [_change(other, 9)]
    return found


def _change(rows: Records, components: int) -> float:
    wanted = {"measure": "accuracy_change", "estimator": "leading components"}
    return rows.where(index=components, **wanted)[0].value


def _under(rows: Records, noise: Noise) -> float:
    return rows.where(measure="accuracy_change", estimator=str(noise))[0].value


def _gap(record: lz.Record) -> float:
    """Between a sampled effective dimension and that in closed form, as a share."""
    found = _CLOSED.search(record.note)
    assert found is not None
    return abs(record.value / float(found[1]) - 1)


def _pooled(rows: Records, noises: Sequence[Noise]) -> float:
    """Correlation over all noises of what they do to the dimension and to accuracy."""
    pairs = [
        (rows.where(measure="effective_dimension", estimator=str(n))[0].value, _under(rows, n))
        for n in noises
    ]
    return float(np.corrcoef(np.array(pairs).T)[0, 1])
