"""Average gradient outer products and neural feature matrices of the layers of a model."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import add
from typing import Any, Literal, get_args

from torch import nn

from ._capture import Capture, Start, at_start
from ._engine import Model, as_capture
from ._evaluation import Cell, Heading, Table, failed, records
from ._feature_matrix import FeatureMatrix
from ._gradients import Backward
from ._linear_maps import Part, linear_maps, why_none
from ._ranks import several
from ._records import Records
from ._source import Source
from ._wanted import Chosen
from .errors import LazyrichError, TooFewSamples, UnknownName
from .measures import CATALOGUE, Measure
from .measures.neural_feature_ansatz import initial_nfm_correlation, nfa_correlation, nfa_power_scan
from .statistics import GradientMoments, LinearMap, leave_one_out, total

Positions = Literal["free", "summed"]


def agop(
    model: Model,
    data: Iterable[Any],
    layer: str,
    *,
    center: bool = False,
    probes: int | None = None,
    positions: Positions = "free",
    seed: int = 0,
    progress: bool = True,
) -> FeatureMatrix:
    r"""Average gradient outer product of the outputs with respect to the inputs of a layer.

    $\frac1n \sum_x \sum_{p, c} \nabla_{h_p} f_c(x) \nabla_{h_p} f_c(x)^\top$ over samples x,
    positions p and raw outputs c. It is W'BW, B being the same at the outputs of the layer: one
    backward pass for each output serves all layers, and no matrix over the inputs is made.

    Reference: Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639.

    Args:
        model: any module, or a `Capture` that says how to read it; measured in evaluation mode.
        data: as in `measure`.
        layer: name of a Linear, of a convolution (its inputs are patches), or of a part of an
            attention layer such as `attn:q.head0`; see `nfa`.
        center: take off the mean gradient of each output.
        probes: random mixtures of outputs that stand for all, an even number; 0 for none. None for
            none up to 100 outputs, and 16 beyond.
        positions: `free` where tokens, patches and calls are inputs of their own, `summed` where
            they are one input that is used many times.
        seed: of the mixtures, and of all that the model or the data draw.
        progress: a bar on stderr, where that is a terminal.

    Raises:
        LazyrichError: no such layer, or one without a matrix; the message says why.
        Undefined: no output depends on the layer.
    """
    capture = as_capture(model, None, None)
    part = _part(capture, layer)
    found = _read(capture, data, [part], probes, positions, (1, seed, progress))
    if part.name not in found.maps:
        raise LazyrichError(f"layer {layer!r} never ran in the forward pass.")
    at = found.whole(part.name)
    estimate = f"{found.n} samples, {_stated(found.probes, positions)}"
    return FeatureMatrix("agop", layer, at.factor(1, center), estimate + ", centered" * center)


def nfm(model: Model, layer: str, *, initial: Start | None = None) -> FeatureMatrix:
    r"""Neural feature matrix of a layer: $W^\top W$, or $(W - W_0)^\top (W - W_0)$.

    Args:
        layer: as in `agop`.
        initial: the model at the start of training, or its state dict, to be taken off.

    Raises:
        LazyrichError: no such layer, or one without a matrix; the message says why.
    """
    capture = as_capture(model, None, None)
    part = _part(capture, layer)
    weight = part.weight(capture.model)
    if initial is not None:
        weight = weight - part.weight(at_start(capture.model, initial)).to(weight.device)
    return FeatureMatrix("nfm", layer, weight, "change" if initial is not None else "")


def nfa(
    model: Model,
    data: Iterable[Any],
    measures: Chosen = None,
    *,
    initial: Start | None = None,
    layers: str | Sequence[str] | None = None,
    probes: int | None = None,
    positions: Positions = "free",
    interval: int = 0,
    seed: int = 0,
    run: str = "run",
    step: int = 0,
    progress: bool = True,
) -> Records:
    """Whether weights say what the network attends to, layer by layer: NFM beside AGOP.

    One backward pass for each output serves all layers. Projections of attention come head by
    head: `attn:q.head0` of nn.MultiheadAttention and of fused projections, `q_proj:head0` where
    queries, keys and values are modules whose parent knows the number of heads.

    Args:
        model, data, probes, positions, seed, progress: as in `agop`.
        measures: names, globs or measures of a layer's weights and gradients; None for the
            agreement with and without the root, by Pearson and cosine, off the diagonal, centered,
            for all powers 1/k, and with `initial` of the change of the weights as well.
        initial: the model at the start of training, or its state dict.
        layers: patterns of names, see `Capture`; None for all.
        interval: blocks for a 95 % jackknife interval over samples; 0 for none, 10 is usual.
        run, step: names for the records, to follow a training run.

    Returns:
        A record for each layer and measure. Layers with weights and without a matrix have a row
        that says why.

    Raises:
        LazyrichError: the input cannot be measured; the message says what to do.
    """
    capture = as_capture(model, layers, None)
    parts, problems = _parts(capture)
    if not parts:
        raise LazyrichError("no layer to measure: none multiplies its inputs by a matrix.")
    if interval < 0 or interval == 1:
        raise LazyrichError(
            f"interval={interval}: the number of jackknife blocks is 0 for no interval, "
            "or 2 and more (10 is usual)."
        )
    start = None if initial is None else at_start(capture.model, initial)
    blocks = max(interval, 1)
    found = _read(capture, data, parts, probes, positions, (blocks, seed, progress), start)
    shown = _usual(initial is not None, bool(found.probes)) if measures is None else _ask(measures)
    view = _stated(found.probes, positions) + _as_images(found.shape)
    heading = Heading(run, view, seed, step)
    table: Table = {name: {m: found.cell(name, m) for m in shown} for name in found.maps}
    silent = {p.name: "never ran in the forward pass" for p in parts if p.name not in found.maps}
    rows = [failed(n, shown[0], why, heading) for n, why in (problems | silent).items()]
    return records(table, shown, heading, {}) + Records(rows)


@dataclass
class _Maps:
    """The linear maps of a model by name, block by block of samples."""

    maps: dict[str, list[LinearMap]]
    probes: int
    n: int
    dtype: str
    shape: tuple[int, ...]

    def whole(self, name: str) -> LinearMap:
        blocks = self.maps[name]
        return replace(blocks[0], gradients=total([b.gradients for b in blocks]))

    def cell(self, name: str, measure: Measure) -> Cell:
        blocks = self.maps[name]
        cell = Cell(measure.evaluate(self.whole(name)), [], self.n, blocks[0].weight.shape[1])
        cell.dtype = self.dtype
        if len(blocks) > 1:
            for rest in leave_one_out([b.gradients for b in blocks]):
                cell.replicates.append(measure.evaluate(replace(blocks[0], gradients=rest)).found)
        return cell


def _read(
    capture: Capture,
    data: Iterable[Any],
    parts: Sequence[Part],
    probes: int | None,
    positions: Positions,
    options: tuple[int, int, bool],
    start: nn.Module | None = None,
) -> _Maps:
    """All batches through the model and back."""
    _check(probes, positions)
    blocks, seed, progress = options
    sums: dict[str, list[GradientMoments]] = {}
    n = 0
    shape: tuple[int, ...] = ()
    backward = Backward(
        capture.model, parts, probes=probes, summed=positions == "summed", blocks=blocks, seed=seed
    )
    with backward, closing(Source(data, seed, progress).items()) as items:
        for item in items:
            inputs = capture.inputs(item)
            n += inputs.samples(capture.samples_axis)
            shape = tuple(inputs.tensors()[0].shape[1:])
            for name, moments in backward.read(inputs, capture.samples_axis).items():
                so_far = sums.get(name)
                sums[name] = moments if so_far is None else list(map(add, so_far, moments))
        by_name = {p.name: p for p in parts}
        weights = {name: by_name[name].weight(capture.model) for name in sums}
    if n < 2 * blocks * (blocks > 1):
        raise TooFewSamples(f"interval={blocks} needs {2 * blocks} samples or more, and saw {n}.")
    before = {name: by_name[name].weight(start) for name in sums} if start is not None else {}

    def linear_map(name: str, moments: GradientMoments) -> LinearMap:
        initial = before[name].to(weights[name].device) if before else None
        trivial = name in backward.trivial
        return LinearMap(weights[name], moments, initial, trivial, backward.probes or 0)

    maps = {name: [linear_map(name, m) for m in moments] for name, moments in sums.items()}
    return _Maps(maps, backward.probes or 0, n, backward.dtype, shape)


def _parts(capture: Capture) -> tuple[list[Part], dict[str, str]]:
    """The linear maps among the layers asked for, and why other layers with weights have none."""
    found: list[Part] = []
    problems: dict[str, str] = {}
    for name, module, parent in capture.chosen():
        if isinstance(parent, nn.MultiheadAttention):
            continue  # read as a part of it
        if made := linear_maps(name, module, parent, split=True):
            found += made
        elif any(True for _ in module.parameters(recurse=False)):
            problems[name] = why_none(module)
    return found, problems


def _part(capture: Capture, layer: str) -> Part:
    """The linear map of that name.

    Raises:
        LazyrichError: there is none.
    """
    module_name = layer.partition(":")[0]
    every = dict(capture.model.named_modules())
    if module_name not in every:
        raise UnknownName("layer", layer, every)
    module, parent = every[module_name], every.get(module_name.rpartition(".")[0])
    made = [
        part
        for split in (False, True)
        for part in linear_maps(module_name, module, parent, split=split)
    ]
    if not made:
        raise LazyrichError(f"layer {layer!r}: {why_none(module)}.")
    by_name = {part.name: part for part in made}
    if layer not in by_name:
        raise UnknownName("layer", layer, by_name)
    return by_name[layer]


def _usual(from_start: bool, mixed: bool) -> list[Measure]:
    """The agreement under every convention in use."""
    m = nfa_correlation
    chosen = [m, m.using(power=1.0), m.using(similarity="cosine")]
    chosen += [m.using(power=1.0, similarity="cosine"), m.using(off_diagonal=True)]
    chosen += [] if mixed else [m.using(center=True)]
    if from_start:
        changes = [m.using(weights="change"), m.using(weights="change", power=1.0)]
        chosen += [*changes, initial_nfm_correlation]
    return [*chosen, nfa_power_scan]


def _ask(measures: Chosen) -> list[Measure]:
    """The measures asked for.

    Raises:
        LazyrichError: one is none of a linear map.
    """
    chosen: list[Measure] = []
    known = {name: m for name, m in CATALOGUE.items() if m.needs is LinearMap}
    for asked in [measures] if isinstance(measures, (str, Measure)) else measures or ():
        hits = (
            [asked]
            if isinstance(asked, Measure)
            else [m for name, m in known.items() if fnmatchcase(name, asked)]
        )
        if not hits:
            raise UnknownName("measure", str(asked), known)
        for m in hits:
            if m.needs is not LinearMap:
                raise LazyrichError(f"{m.name}: lz.nfa() takes {', '.join(known)}.")
        chosen += hits
    return chosen


def _check(probes: int | None, positions: str) -> None:
    if several():
        raise LazyrichError("gradients are read in one process: call this in one, on all data.")
    if probes is not None and (not isinstance(probes, int) or probes < 0 or probes % 2):
        raise LazyrichError(f"probes={probes}: an even number of mixtures, 0 or None is needed.")
    if positions not in get_args(Positions):
        raise UnknownName("positions", positions, get_args(Positions))


def _as_images(shape: tuple[int, ...]) -> str:
    """What pages need to draw coordinates where they are in the image."""
    is_image = len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))
    return f", inputs {' x '.join(map(str, shape))}" if is_image else ""


def _stated(probes: int, positions: str) -> str:
    return f"{positions} positions" + f", {probes} mixtures of outputs" * bool(probes)
