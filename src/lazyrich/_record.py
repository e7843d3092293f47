"""One measured value, what a measure is, and both as lines of JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """One measured value and all that is needed to judge it.

    Attributes:
        run: name of the run or model.
        step: training step, 0 where there is none.
        layer: name of the layer, `first -> last` for a measure between two.
        view: how maps and tokens became samples (`mean`, `flatten`, `tokens`, `last`).
        measure: name in the catalogue.
        index: rank on a curve (1 is the largest eigenvalue); None for a single number.
        estimator: which estimator, with the options that were chosen.
        value: the number; NaN where it is undefined or failed, then `note` says why.
        standard_error: where it was asked for or is sampled.
        low, high: ends of the 95 % interval.
        null: the level that unrelated data would give, for similarities.
        n, d: samples and units that the value is made of.
        dtype: precision of the products; sums and eigenvalues are float64.
        seed: the seed of all that was drawn.
        status: `ok`; `caution` where the note must be read first; `undefined` or `failed`.
        note: the reason, the caution, or what stands behind the value.
    """

    run: str
    step: int
    layer: str
    view: str
    measure: str
    index: int | None
    estimator: str
    value: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    n: int = 0
    d: int = 0
    dtype: str = ""
    seed: int = 0
    status: str = "ok"
    note: str = ""


COLUMNS = tuple(f.name for f in fields(Record))
_NUMBERS = ("value", "standard_error", "low", "high", "null")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a measure is: travels with the records, so that a page can be drawn without the code."""

    measure: str
    summary: str
    formula: str
    source: str
    richer: str
    bounds: tuple[float, float]


def as_line(told: Record | Definition) -> str:
    """One line of JSON."""
    if isinstance(told, Definition):
        bounds = list(map(str, told.bounds))  # infinity is no JSON
        return json.dumps({"definition": asdict(told) | {"bounds": bounds}})
    return json.dumps(_jsonable(told), allow_nan=False)


def from_line(line: bytes) -> Record | Definition | None:
    """What a line says; None for an empty one and for a Recorder's marks around a step."""
    if not line.strip():
        return None
    content = json.loads(line)
    if "definition" in content:
        definition = content["definition"]
        low, high = map(float, definition.pop("bounds"))
        return Definition(**definition, bounds=(low, high))
    return None if content.keys() & {"started", "finished"} else _record(content)


def _jsonable(record: Record) -> dict[str, Any]:
    """NaN and infinity are no JSON: NaN becomes null, infinity a string that float() reads."""
    row: dict[str, Any] = {name: getattr(record, name) for name in COLUMNS}
    for name in _NUMBERS:
        value = row[name]
        if value is not None and not math.isfinite(value):
            row[name] = None if math.isnan(value) else str(value)
    return row


def _record(row: dict[str, Any]) -> Record:
    for name in _NUMBERS:
        if isinstance(row.get(name), str):
            row[name] = float(row[name])
    if row["value"] is None:
        row["value"] = math.nan
    record = Record(**row)
    for name, kind in (("layer", str), ("measure", str), ("run", str), ("step", int)):
        if not isinstance(getattr(record, name), kind):
            raise TypeError(f"its {name} is no {kind.__name__}")
    if not all(isinstance(row.get(n), (int, float, type(None))) for n in _NUMBERS):
        raise TypeError("one of its numbers is none")
    return record


def richest(rows: Sequence[Record], richer: str) -> Record | None:
    """The record with the extreme value; None where two share it or fewer than two have one."""
    sign = 1 if richer == "low" else -1
    ranked = sorted((r for r in rows if not math.isnan(r.value)), key=lambda r: sign * r.value)
    if len(ranked) < 2 or math.isclose(ranked[0].value, ranked[1].value, rel_tol=1e-6):
        return None  # the same up to rounding
    return ranked[0]


def overlap(one: Record, other: Record) -> bool:
    """Whether both have an interval and these meet."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high
