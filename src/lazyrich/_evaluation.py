"""From sums of statistics to records: each measure on the whole, and with each block left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan, sqrt

from scipy.special import stdtrit
from torch import Tensor

from ._reader import OUTPUTS, PENULTIMATE
from ._records import Definition, Record, Records
from ._sums import Kind, LayerSums, read
from .errors import TooFewSamples
from .measures import Curve, Estimate, Evaluated, Measure, Profile
from .statistics import Points, Statistic, Weights, leave_one_out


@dataclass
class Cell:
    """One measure at one layer: on all samples, and with each block of them left out."""

    whole: Evaluated
    replicates: list[Estimate | Curve] = field(default_factory=list)
    n: int = 0
    d: int = 0
    dtype: str = ""


@dataclass(frozen=True)
class Heading:
    """What all the records of one call have in common."""

    run: str
    view: str
    seed: int
    step: int = 0


@dataclass
class Snapshot:
    """A model at one moment: its parameters, and its features on the probe by layer."""

    weights: Weights
    points: dict[str, Points]


Table = dict[str, dict[Measure, Cell]]


def evaluate(
    layers: Mapping[str, LayerSums],
    measures: Sequence[Measure],
    weights: Weights | None,
    initial: Snapshot | None,
    heads: Mapping[str, Tensor],
) -> Table:
    """Every measure at every layer that brings what it needs; profiles last, over the layers."""
    table: Table = {}
    for layer, sums in layers.items():
        start = None if initial is None else initial.points.get(layer)
        table[layer] = _of_statistics(layer, sums, measures, start, heads.get(layer))
    before = {} if initial is None else _by_module(initial.weights)
    after = {} if weights is None else _by_module(weights)
    for module, now in after.items():
        cells = _of_weights(now, measures, before.get(module))
        table.setdefault(module, {}).update(cells)
    for measure in measures:
        if measure.needs is Profile:
            for name, cell in _of_profile(table, measure).items():
                table.setdefault(name, {})[measure] = cell
    return table


def records(
    table: Table, shown: Sequence[Measure], heading: Heading, cautions: Mapping[str, str]
) -> Records:
    """The table as records, the measures in the order asked for; cautions by layer."""
    rows = [
        row
        for layer, cells in table.items()
        for measure in shown
        if measure in cells
        for row in _rows(layer, measure, cells[measure], heading, cautions.get(layer, ""))
    ]
    return Records(rows, map(definition, shown))


def failed(layer: str, measure: Measure, reason: str, heading: Heading) -> Record:
    """The row of a cell that could not be measured."""
    return Record(
        run=heading.run,
        step=heading.step,
        layer=layer,
        view=heading.view,
        measure=measure.name,
        index=None,
        estimator=measure.conventions,
        value=nan,
        seed=heading.seed,
        status="failed",
        note=reason,
    )


def definition(measure: Measure) -> Definition:
    """What records say about a measure, for readers without the code."""
    return Definition(
        measure.name,
        measure.summary,
        measure.formula,
        measure.source,
        measure.richer,
        measure.bounds,
    )


def _by_module(weights: Weights) -> dict[str, Weights]:
    """Of each module with parameters of its own, and of the whole `model`."""
    return weights.by_module() | {"model": weights}


def _of_weights(
    weights: Weights, measures: Sequence[Measure], initial: Weights | None
) -> dict[Measure, Cell]:
    count = sum(t.numel() for t in weights.tensors.values())
    return {
        m: Cell(m.evaluate(weights, initial), d=count, dtype="float64")
        for m in measures
        if m.needs is Weights and not (m.takes_initial and initial is None)
    }


def _of_statistics(
    layer: str,
    sums: LayerSums,
    measures: Sequence[Measure],
    initial: Points | None,
    head: Tensor | None,
) -> dict[Measure, Cell]:
    blocks = sums.blocks()
    whole = sums.whole(blocks)
    n = int(next(iter(whole.values())).n)
    if n < 2:
        raise TooFewSamples(f"layer {layer!r}: {n} sample, and two or more are needed.")
    here = [
        m
        for m in measures
        if reads(m, layer, sums.kinds)
        and not (m.takes_initial and initial is None)
        and not (m.takes_head and head is None)
    ]

    def of(m: Measure, statistics: dict[Kind, Statistic]) -> Evaluated:
        return m.evaluate(read(m.needs, statistics), initial, head)

    cells = {m: Cell(of(m, whole), [], n, sums.d, sums.dtype) for m in here}
    resampled = [m for m in here if not m.own_interval]
    for rest in _each_left_out(blocks, sums.kinds if resampled else []):
        for m in resampled:
            cells[m].replicates.append(of(m, rest).found)
    return cells


def reads(measure: Measure, layer: str, kinds: Sequence[Kind]) -> bool:
    """Whether a measure makes sense at a layer and finds its statistic among the kinds."""
    found = any(measure.needs is k or measure.needs in k.contains for k in kinds)
    return found and measure.layer in (None, layer)


def _each_left_out(
    blocks: Sequence[dict[Kind, Statistic]], kinds: Sequence[Kind]
) -> Iterator[dict[Kind, Statistic]]:
    if len(blocks) > 1 and kinds:
        each = zip(*(leave_one_out([b[k] for b in blocks]) for k in kinds), strict=True)
        yield from (dict(zip(kinds, rest, strict=True)) for rest in each)


def _of_profile(table: Table, measure: Measure) -> dict[str, Cell]:
    """A measure over layers, from the first to the penultimate one or the last."""
    found = {
        layer: cell
        for layer, cells in table.items()
        for m, cell in cells.items()
        if m.name == measure.argument
    }
    names = list(found)
    if PENULTIMATE in found:
        names = names[: names.index(PENULTIMATE) + 1]
    elif len(names) > 1 and names[-1] == OUTPUTS:
        names.pop()
    if len(names) < 2:
        return {}
    cells = [found[name] for name in names]

    def across(values: Iterable[Estimate | Curve]) -> Evaluated:
        single = (_at(None, value) for value in values)
        return measure.evaluate(Profile(zip(names, single, strict=True)))

    each = zip(*(cell.replicates for cell in cells), strict=True)
    replicates = [across(values).found for values in each]
    last = cells[-1]
    label = f"{names[0]} -> {names[-1]}"
    return {
        label: Cell(across(c.whole.found for c in cells), replicates, last.n, last.d, last.dtype)
    }


def _rows(
    layer: str, measure: Measure, cell: Cell, heading: Heading, caution: str
) -> Iterator[Record]:
    found, defined = cell.whole
    points = found.items() if isinstance(found, dict) else [(None, found)]
    for index, point in points:
        estimate = point if isinstance(point, Estimate) else Estimate(point)
        if cell.replicates:
            replicates = [_at(index, r) for r in cell.replicates]
            estimate = _jackknifed(estimate, replicates, measure.bounds)
        if caution:
            estimate = _cautioned(estimate, caution)
        status = "caution" if estimate.caution else "ok"
        yield Record(
            run=heading.run,
            step=heading.step,
            layer=layer,
            view=heading.view,
            measure=measure.name,
            index=index,
            estimator=measure.conventions,
            value=estimate.value,
            standard_error=estimate.standard_error,
            low=estimate.low,
            high=estimate.high,
            null=estimate.null,
            n=cell.n,
            d=cell.d,
            dtype=cell.dtype,
            seed=heading.seed,
            status=status if defined else "undefined",
            note=estimate.note,
        )


def _at(index: int | None, found: Estimate | Curve) -> float:
    """A curve's point, or a single number; NaN where there is none."""
    if isinstance(found, dict):
        return nan if index is None else found.get(index, nan)
    return found.value if index is None else nan


def _jackknifed(
    estimate: Estimate, replicates: Sequence[float], bounds: tuple[float, float]
) -> Estimate:
    """With standard error and 95 % interval from the values with one block left out each.

    The interval ends where the measure's values end.
    """
    if not isfinite(estimate.value):
        return estimate
    if not all(map(isfinite, replicates)):
        return _cautioned(estimate, "no interval: undefined with some block left out")
    k = len(replicates)
    mean = sum(replicates) / k
    error = sqrt((k - 1) / k * sum((r - mean) ** 2 for r in replicates))
    half = float(stdtrit(k - 1, 0.975)) * error
    low, high = max(estimate.value - half, bounds[0]), min(estimate.value + half, bounds[1])
    low, high = min(low, estimate.value), max(high, estimate.value)  # rounding at the very end
    estimate = estimate._replace(standard_error=error, low=low, high=high)
    if 2 * half > abs(estimate.value):
        return _cautioned(estimate, "the interval is wider than the value")
    return estimate


def _cautioned(estimate: Estimate, caution: str) -> Estimate:
    note = "; ".join(filter(None, [estimate.note, caution]))
    return estimate._replace(note=note, caution=True)
