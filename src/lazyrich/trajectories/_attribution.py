"""A change in capacity, split exactly into what radius, dimension and the rest did."""

from dataclasses import replace
from math import hypot, isfinite, log, log1p, nan
from typing import Literal

from .._records import Definition, Record, Records
from ..errors import LazyrichError, UnknownName
from ._places import Measures, Place, check_measures, places

NEEDED = ("capacity", "manifold_radius", "manifold_dimension")
_GAUSSIAN = 1.96  # where the records bring errors without intervals
_INFINITY = float("inf")
_SOURCE = (
    "split of the identity in Chou, Kirsanov, Yang & Chung 2026, arXiv:2603.01879, appendix B.3; "
    "radius and dimension as in Chou et al. 2025, arXiv:2503.18114"
)
_TOLD = {
    "capacity_change": (
        "Change of the logarithm of manifold capacity between two ends.",
        r"\Delta \ln \alpha_M = \Delta \ln(1 + R_M^{-2}) - \Delta \ln D_M + \Delta \ln \Psi",
    ),
    "capacity_change_from_radius": (
        "Its part from the radius: what balls of one dimension would have gained.",
        r"\Delta \ln(1 + R_M^{-2})",
    ),
    "capacity_change_from_dimension": (
        "Its part from the dimension: what balls of one radius would have gained.",
        r"-\Delta \ln D_M",
    ),
    "capacity_change_from_utility": (
        "Its part from the utility: what alignments and correlations of the manifolds do.",
        r"\Delta \ln \Psi = \Delta \ln [\alpha_M D_M / (1 + R_M^{-2})]",
    ),
}
DEFINITIONS = [
    Definition(name, *told, _SOURCE, "neither", (-_INFINITY, _INFINITY))
    for name, told in _TOLD.items()
]
_Part = tuple[float, float | None]  # a logarithm with its standard error


def attribute(
    records: Records,
    *,
    before: int | str,
    after: int | str,
    along: Literal["step", "run", "layer"] = "step",
) -> Records:
    r"""Which part of a change in capacity comes from the radius, the dimension, and the rest.

    $\ln \alpha_M = \ln(1 + R_M^{-2}) - \ln D_M + \ln \Psi$, and the changes of the three terms
    add up to the change of the left side exactly. A part of 0.1 is 10 percent more capacity.

    Standard errors come from those of the records by the delta method, as if all errors were
    independent: of the two ends, and of the values at one end. The part of the utility takes the
    error of recorded utilities where there are any, which knows how the values at one end vary
    together. Intervals are as many errors wide as the widest of the records that they come from.

    Args:
        records: with `capacity`, `manifold_radius` and `manifold_dimension` at both ends.
        before: the step, run or layer where the change begins.
        after: where it ends.
        along: which of the three `before` and `after` are.

    Returns:
        Four rows for each place at which both ends were measured alike. They stand at the later
        end; between layers, at `before -> after`.

    Raises:
        UnknownName: no such step, run or layer.
        MissingInput: a measure is missing at one of the ends.
        LazyrichError: nothing was measured alike at both ends.

    Reference:
        Chou et al. 2025, arXiv:2503.18114; Chou et al. 2026, arXiv:2603.01879, appendix B.3.
    """
    if along not in ("step", "run", "layer"):
        raise UnknownName("way to go along", along, ("step", "run", "layer"))
    check_measures(records.unique("measure"), NEEDED, "the records")
    gathered = places(records, (*NEEDED, "utility"))
    ends = [_end(gathered, along, name) for name in (before, after)]
    common = [place for place in ends[1] if place in ends[0]]
    if not common:
        raise LazyrichError(
            f"nothing was measured alike at {along} {before} and {along} {after}: they need the "
            "same view and conventions, and otherwise the same run, step and layer."
        )
    rows: list[Record] = []
    for place in common:
        pair = ends[0][place], ends[1][place]
        for name, end in zip((before, after), pair, strict=True):
            check_measures(end, NEEDED, str(place.at(**{along: name})))
        rows += _rows(*pair, f"{along} {before} to {after}", along == "layer")
    return Records(rows, DEFINITIONS)


def _end(found: dict[Place, Measures], along: str, name: int | str) -> dict[Place, Measures]:
    """The places of one end, with that end's own name taken out of them."""
    blank: int | str = -1 if along == "step" else ""
    end = {p.at(**{along: blank}): m for p, m in found.items() if getattr(p, along) == name}
    if not end:
        raise UnknownName(along, str(name), (str(getattr(p, along)) for p in found))
    return end


def _rows(before: Measures, after: Measures, between: str, is_layer: bool) -> list[Record]:
    first, last = before["capacity"], after["capacity"]
    used = [end[name] for end in (before, after) for name in NEEDED]
    width = max((_width(r) for r in used), default=_GAUSSIAN)
    conventions = last.estimator.partition("conventions=")[1:]
    row = replace(
        last,
        layer=f"{first.layer} -> {last.layer}" if is_layer else last.layer,
        estimator=", ".join(["delta method, independent errors", between, "".join(conventions)])
        .strip(", "),
        null=None,
        d=last.d if last.d == first.d else 0,
        status="ok",
        note=f"capacity {first.value:.4g} to {last.value:.4g}",
    )  # fmt: skip
    if not all(isfinite(r.value) and r.value > 0 for r in used):
        bad = ", ".join(dict.fromkeys(r.measure for r in used if not 0 < r.value < _INFINITY))
        gone = replace(row, status="undefined", note=f"{bad} without a finite value above zero")
        return [_measured(gone, name, (nan, None), width) for name in _TOLD]
    cautions = [f"made of {first.n} samples before and {last.n} after"] * (first.n != last.n)
    cautions += ["what it comes from has cautions of its own"] * any(r.status != "ok" for r in used)
    if cautions:
        row = replace(row, status="caution", note="; ".join([*cautions, row.note]))
    parts = _parts(before, after)
    return [_measured(row, *named, width) for named in zip(_TOLD, parts, strict=True)]


def _parts(before: Measures, after: Measures) -> list[_Part]:
    """The whole change and its three parts, the last of which is what the others leave."""
    capacity, radius, dimension = (
        _change(term(before), term(after)) for term in (_capacity, _radius, _dimension)
    )
    rest = capacity[0] - radius[0] - dimension[0]
    errors = [_utility_error(before), _utility_error(after)]
    return [capacity, radius, dimension, (rest, _together(*errors))]


def _capacity(end: Measures) -> _Part:
    r = end["capacity"]
    return log(r.value), _scaled(r.standard_error, 1 / r.value)


def _radius(end: Measures) -> _Part:
    r = end["manifold_radius"]
    slope = 2 / (r.value * (1 + r.value * r.value))
    return log1p(r.value**-2), _scaled(r.standard_error, slope)


def _dimension(end: Measures) -> _Part:
    r = end["manifold_dimension"]
    return -log(r.value), _scaled(r.standard_error, 1 / r.value)


def _utility_error(end: Measures) -> float | None:
    r = end.get("utility")
    if r and r.standard_error is not None and 0 < r.value < _INFINITY:
        return r.standard_error / r.value
    return _together(*(term(end)[1] for term in (_capacity, _radius, _dimension)))


def _change(before: _Part, after: _Part) -> _Part:
    return after[0] - before[0], _together(before[1], after[1])


def _together(*errors: float | None) -> float | None:
    """The error of a sum of independent terms; unknown where one is."""
    known = [e for e in errors if e is not None and isfinite(e)]
    return hypot(*known) if len(known) == len(errors) else None


def _scaled(error: float | None, slope: float) -> float | None:
    return None if error is None else error * slope


def _width(record: Record) -> float:
    """How many standard errors wide the record's own interval is, on its wider side."""
    error, low, high = record.standard_error, record.low, record.high
    if not error or low is None or high is None:
        return _GAUSSIAN
    found = max(high - record.value, record.value - low) / error
    return found if isfinite(found) else _GAUSSIAN


def _measured(row: Record, measure: str, part: _Part, width: float) -> Record:
    value, error = part
    low, high = (None, None) if error is None else (value - width * error, value + width * error)
    return replace(row, measure=measure, value=value, standard_error=error, low=low, high=high)
