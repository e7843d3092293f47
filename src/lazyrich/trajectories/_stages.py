"""Stages of training: where the path of the geometry turns, and how certain each turn is."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, log, log1p, nan
from typing import Any

from .._records import Definition, Record, Records
from ..errors import LazyrichError, TooFewSamples
from ._places import Measures, Place, check_measures, places
from ._segments import Path, cuts, misfits, slopes

GEOMETRY = (
    "manifold_radius",
    "manifold_dimension",
    "center_alignment",
    "axis_alignment",
    "center_axis_alignment",
)
_FEWEST = 6  # steps: two pieces of three
_DEFINITION = Definition(
    "stage_boundary",
    "How certain it is that a new stage of training begins at this step.",
    r"\Pr[\text{a cut within one recorded step}] over resamples within the standard errors; cuts "
    r"are those of straight pieces over \ln(1 + t / t_1) with the smallest "
    r"\sum_m n \ln \sigma_m^2 + \text{parameters} \ln(n q)",
    "own rule: exact segmentation as in Bai & Perron 2003, doi:10.1002/jae.659; penalty of Schwarz "
    "1978, doi:10.1214/aos/1176344136; geometry as in Chou et al. 2025, arXiv:2503.18114",
    "neither",
    (0.0, 1.0),
)


def stages(
    records: Records,
    *,
    measures: Sequence[str] = GEOMETRY,
    resamples: int = 200,
    seed: int = 0,
) -> Records:
    r"""Steps at which the path of the geometry turns, for each run and layer.

    The rule: every measure is brought to mean 0 and variance 1 over the run. Over
    $\ln(1 + t / t_1)$, with $t_1$ the first step after 0, the path is cut into pieces of three
    steps or more, straight in every measure. Of all such cuts the one with the smallest
    $\sum_m n \ln \sigma_m^2 + \text{parameters} \ln(n q)$ is taken, for n steps of q measures;
    $\sigma_m^2$ is the mean squared distance of measure m from its lines, and never less than its
    mean squared standard error.

    Certainty: normal noise of the records' standard errors is added and the path is cut again,
    number of pieces included. The certainty of a boundary is the share of resamples with a
    boundary at most one recorded step away. It is about draws: another training run may differ
    more.

    Args:
        records: of one or more runs and layers at six steps or more.
        measures: the coordinates of the path; all are needed at every step.
        resamples: for the certainty.
        seed: of the resamples.

    Returns:
        A row for each boundary: its `step` is the first of the new stage, its value the certainty,
        and its note names the measures that turn, with their change a decade of steps before and
        after. No rows where one stage explains the path.

    Raises:
        MissingInput: a measure is missing at a step.
        TooFewSamples: fewer than six steps.
        LazyrichError: fewer than one resample.

    Reference:
        Bai & Perron 2003 for the exact search, Schwarz 1978 for the penalty.
    """
    if resamples < 1:
        raise LazyrichError(f"resamples={resamples}: 1 or more are needed.")
    check_measures(records.unique("measure"), measures, "the records")
    paths: dict[Place, dict[int, Measures]] = {}
    for place, found in places(records, measures).items():
        check_measures(found, measures, str(place))
        paths.setdefault(place._replace(step=-1), {})[place.step] = found
    rows = [
        row
        for place, path in paths.items()
        for row in _boundaries(place, dict(sorted(path.items())), measures, (resamples, seed))
    ]
    return Records(rows, [_DEFINITION])


def _boundaries(
    place: Place, path: dict[int, Measures], measures: Sequence[str], options: tuple[int, int]
) -> list[Record]:
    steps = [s for s, m in path.items() if all(isfinite(r.value) for r in m.values())]
    if len(steps) < _FEWEST:
        raise TooFewSamples(
            f"run {place.run}, layer {place.layer} has finite values at {len(steps)} steps; "
            f"stages need {_FEWEST} or more. Record at more steps, or leave it out with where()."
        )
    table = [[path[s][name] for name in measures] for s in steps]
    standard, errors, scale = _standardized(table)
    time = _times(steps)
    whole = Path(time, standard, (errors**2).mean(axis=0))
    found = cuts(whole)
    shares = _certainties(whole, errors, found, *options)
    turned = _turned(whole, found, measures, scale)
    rows = []
    for start, share, note in zip(found, shares, turned, strict=True):
        row = _row(table[start][0], share, note, options[1])
        told = f", measures={' '.join(measures)}, {options[0]} resamples"
        rows.append(replace(row, estimator="straight pieces, BIC" + told + _stated(place)))
    return rows


def _stated(place: Place) -> str:
    return f", conventions={place.conventions}" if place.conventions else ""


def _row(record: Record, share: float, note: str, seed: int) -> Record:
    known = isfinite(share)
    return replace(  # place, samples and precision are those of the step where the stage begins
        record,
        measure="stage_boundary",
        value=share,
        standard_error=None,
        low=None,
        high=None,
        null=None,
        seed=seed,
        status="ok" if known else "undefined",
        note=note if known else f"certainty unknown, no standard errors were recorded; {note}",
    )


def _times(steps: Sequence[int]) -> Any:
    import numpy

    first = next(s for s in steps if s > 0)
    return numpy.array([log1p(s / first) for s in steps])


def _standardized(table: Sequence[Sequence[Record]]) -> tuple[Any, Any, Any]:
    """Values and errors in units of each measure's spread over the run, and those units."""
    import numpy

    values = numpy.array([[r.value for r in row] for row in table])
    errors = numpy.array([[r.standard_error or 0.0 for r in row] for row in table])
    scale = values.std(axis=0)
    scale[scale <= 1e-12 * numpy.abs(values).max(axis=0)] = 1.0  # constant but for rounding
    return (values - values.mean(axis=0)) / scale, errors / scale, scale


def _certainties(
    path: Path, errors: Any, found: Sequence[int], resamples: int, seed: int
) -> list[float]:
    """The share of resamples that cut within one recorded step; unknown without errors."""
    import numpy

    if not errors.any():
        return [nan] * len(found)
    draw = numpy.random.default_rng(seed)
    hits = [0] * len(found)
    for _ in range(resamples if found else 0):
        moved = path.values + errors * draw.standard_normal(errors.shape)
        again = cuts(Path(path.time, moved, path.noise))
        hits = [h + any(abs(a - f) <= 1 for a in again) for h, f in zip(hits, found, strict=True)]
    return [h / resamples for h in hits]


def _turned(path: Path, found: Sequence[int], measures: Sequence[str], scale: Any) -> list[str]:
    """Of each boundary, the measures for which two lines pay by the rule, or the nearest to it."""
    import numpy

    edges = [0, *found, len(path.time)]
    cost, told = misfits(path), []
    for left, at, right in zip(edges, edges[1:], edges[2:], strict=False):
        n = right - left
        apart = path.variances((cost[left, at] + cost[at, right]) * (len(path.time) / n))
        together = path.variances(cost[left, right] * (len(path.time) / n))
        gain = n * numpy.log(together / apart) - 3 * log(n)
        rates = (slopes(path, *ends) * scale * log(10) for ends in ((left, at), (at, right)))
        pairs = list(zip(measures, gain, *rates, strict=True))
        kept = [p for p in pairs if p[1] > 0] or [max(pairs, key=lambda p: float(p[1]))]
        turns = (f"{name} {before:+.2g} to {after:+.2g}" for name, _, before, after in kept)
        told.append("change a decade of steps: " + ", ".join(turns))
    return told
