"""How much training changes the features of a network as it gets wider: slopes and a verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from ._engine import Model, as_capture
from ._inputs import Inputs
from ._records import Definition, Record, Records
from ._session import raw_output
from ._slope import slope
from ._source import Source
from ._untouched import Draws
from .errors import LazyrichError, MissingInput

Build = Callable[[int, int], tuple[Model, torch.optim.Optimizer]]
Loss = Callable[[Any, Tensor | None], Tensor]
Word = Literal["passes", "fails", "unclear"]
SLOPES = "slope over widths"
_STILL = "zero at some width: no logarithm"
_SOURCE = "Yang et al. 2022, arXiv:2203.03466, appendix D.1"
_CHANGE = Definition(
    "feature_change",
    "How far training has moved the features: root mean square over samples and units.",
    r"\sqrt{\langle (h_t - h_0)^2 \rangle}",
    _SOURCE,
    "neither",
    (0, inf),
)
_SIZE = Definition(
    "feature_size",
    "Size of the features before training: root mean square over samples and units.",
    r"\sqrt{\langle h_0^2 \rangle}",
    _SOURCE,
    "neither",
    (0, inf),
)
_MEASURES = (_CHANGE, _SIZE)
_OF_SLOPES = tuple(
    Definition(
        f"{d.measure}_slope",
        f"Slope over the logarithm of the width of the logarithm of {d.measure}, a mean of seeds.",
        rf"d \log {d.formula} / d \log \text{{width}}",
        _SOURCE,
        "neither",
        (-inf, inf),
    )
    for d in _MEASURES
)


class Verdict(NamedTuple):
    """What a coordinate check comes to, and why, layer by layer."""

    word: Word
    reasons: tuple[str, ...]


def coordinate_check(
    build: Build,
    widths: Sequence[int],
    data: Iterable[Any],
    *,
    steps: int = 5,
    seeds: int = 5,
    loss: Loss | None = None,
    layers: str | Sequence[str] | None = None,
    progress: bool = True,
) -> Records:
    """Train a few steps at several widths, and see how the change of features grows with them.

    Where features are learned at any width, each layer changes as much at each: slope 0. Lazy
    layers have -1/2 or below, unstable ones have slopes above 0.

    Args:
        build: makes (model, optimizer) of a width and a seed. Global generators are seeded
            for it, and for training.
        widths: three or more.
        data: batches, taken in turn; the first of them is also where features are read.
        steps: of the optimizer.
        seeds: networks for each width, two or more.
        loss: of raw outputs and labels; None for cross-entropy on classes and the mean squared
            error on targets.
        layers: patterns of addresses, see `Capture`; None for modules without children, and the
            outputs. All coordinates count: maps and tokens are flattened.
        progress: a bar on stderr, where that is a terminal.

    Returns:
        `feature_change` and `feature_size` for each width, seed and layer, and their slopes with
        95 % intervals over seeds. Features that are no longer finite are rows that `failed`.

    Raises:
        EmptyData: no batches.
        LazyrichError: settings, or networks whose layers are not the same at each width.

    Reference: Yang et al. 2022, arXiv:2203.03466, appendix D.1.
    """
    if len(set(widths)) < 3 or min(widths) < 1:
        raise LazyrichError(f"widths={list(widths)}: three different widths or more are needed.")
    if steps < 1 or seeds < 2:
        raise LazyrichError(f"steps={steps}, seeds={seeds}: one step and two seeds at least.")
    items = list(Source(data, 0).items())
    cells = [(width, seed) for width in sorted(set(widths)) for seed in range(seeds)]
    bar = tqdm(cells, desc="coordinate check", disable=None if progress else True)
    rows = [
        row for width, seed in bar for row in _cell(build, width, seed, items, steps, loss, layers)
    ]
    return Records([*rows, *_slopes(rows, sorted(set(widths)))], [*_MEASURES, *_OF_SLOPES])


def coordinate_verdict(records: Records, *, tolerance: float = 0.15) -> Verdict:
    """Whether features are learned alike at each width.

    It `passes` where the interval of each layer's slope lies within the tolerance of 0, and
    `fails` where one lies outside, features are larger at the start the wider the network, or
    training diverged. Otherwise it is `unclear`: more seeds or wider networks are needed. Layers
    that training does not move, such as a first `Flatten`, are passed over. A network that passes
    may still need another learning rate at each width.

    Args:
        records: of `coordinate_check`.
        tolerance: finite widths leave slopes of a few hundredths.

    Raises:
        MissingInput: records of something else.
    """
    rows = records.where(measure=[d.measure for d in _OF_SLOPES])
    if not rows:
        raise MissingInput("these records hold no slopes: pass those of coordinate_check().")
    judged = [(*_judged(r, tolerance), r) for r in rows]
    for word in ("fails", "unclear"):
        reasons = tuple(why for each, why, _ in judged if each == word)
        if reasons:
            return Verdict(word, reasons)
    if all(why == _STILL for _, why, r in judged if r.measure.startswith(_CHANGE.measure)):
        return Verdict("fails", ("training moved no layer",))
    return Verdict("passes", ())


def _judged(r: Record, tolerance: float) -> tuple[Word, str]:
    """What the slope of one layer says, and why."""
    if r.status == "failed":
        return "fails", f"{r.layer}: {r.note}"
    if r.low is None or r.high is None:
        return "passes", _STILL
    why = f"{r.layer}: {r.measure} {r.value:.2f} [{r.low:.2f}, {r.high:.2f}]"
    of_change = r.measure.startswith(_CHANGE.measure)
    if r.low > tolerance or (of_change and r.high < -tolerance):
        return "fails", why
    sure = r.low >= -tolerance and r.high <= tolerance
    return ("passes" if sure or not of_change else "unclear"), why


def _cell(
    build: Build,
    width: int,
    seed: int,
    items: Sequence[Any],
    steps: int,
    loss: Loss | None,
    layers: str | Sequence[str] | None,
) -> list[Record]:
    """One network: its features before training, and how far they are from them after."""
    draws = Draws(seed, [torch.device("cuda", i) for i in range(torch.cuda.device_count())])
    with draws.active():
        built, optimizer = build(width, seed)
    is_module = isinstance(built, torch.nn.Module)
    capture = as_capture(built, layers, "flatten" if is_module else None)
    before = _features(capture, items[0])
    device = next(capture.model.parameters()).device
    with draws.active():
        for step in range(steps):
            inputs = capture.inputs(items[step % len(items)])
            inputs = inputs.of_tensors(lambda tensor: tensor.to(device))
            optimizer.zero_grad()
            outputs = raw_output(capture.model(*inputs.args, **inputs.kwargs))
            torch.autograd.backward(_loss(outputs, inputs, loss))
            optimizer.step()
    after = _features(capture, items[0])
    rows = []
    for layer, start in before.items():
        told: Mapping[str, tuple[int, float]] = {
            _CHANGE.measure: (steps, _size(after[layer] - start)),
            _SIZE.measure: (0, _size(start)),
        }
        for measure, (step, value) in told.items():
            note = "" if isfinite(value) else f"not finite at width {width}: training diverges"
            place = Record(f"width {width}", step, layer, capture.view, measure, None, "", value)
            status = "failed" if note else "ok"
            n, d = start.shape
            rows.append(replace(place, n=n, d=d, seed=seed, status=status, note=note))
    return rows


def _features(capture: Any, item: Any) -> dict[str, Float[Tensor, "n d"]]:
    return {name: batch.x.double().clone() for name, batch in next(capture.batches([item])).items()}


def _size(features: Float[Tensor, "n d"]) -> float:
    return float(features.square().mean().sqrt())


def _loss(outputs: Any, inputs: Inputs, loss: Loss | None) -> Tensor:
    labels = inputs.labels
    if loss is not None:
        return loss(outputs, labels)
    if labels is None:
        raise MissingInput("the data has no labels to train on: pass (inputs, labels), or loss=.")
    if labels.is_floating_point():
        return functional.mse_loss(outputs, labels.reshape(outputs.shape).to(outputs.dtype))
    return functional.cross_entropy(outputs, labels)


def _slopes(rows: Sequence[Record], widths: Sequence[int]) -> list[Record]:
    found = []
    by_place: dict[tuple[str, str], dict[str, list[Record]]] = {}
    for r in rows:
        by_place.setdefault((r.layer, r.measure), {}).setdefault(r.run, []).append(r)
    for (layer, measure), by_width in by_place.items():
        if len(by_width) < len(widths):
            raise LazyrichError(f"{layer} is not there at each width: only the width may change.")
        first = next(iter(by_width.values()))[0]
        each = [r for of_width in by_width.values() for r in of_width]
        values = np.array([[r.value for r in of_width] for of_width in by_width.values()]).T
        failed = next((r for r in each if r.status == "failed"), None)
        heading = (SLOPES, first.step, layer, first.view, f"{measure}_slope", None, "")
        if failed is not None:
            found.append(Record(*heading, nan, status="failed", note=failed.note))
        elif (values == 0).any():
            found.append(Record(*heading, nan, status="undefined", note=_STILL))
        else:
            s = slope(widths, values)
            n, d = values.shape
            interval = s.standard_error, s.low, s.high
            found.append(Record(*heading, s.value, *interval, n=n, d=d, note="n seeds, d widths"))
    return found
