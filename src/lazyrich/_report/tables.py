"""The tables of the page: who is richer, every number, every definition, every caveat."""

import math
from collections.abc import Callable, Sequence

from .._record import Definition, Record, overlap, richest
from .._records import Records
from .panels import Panel, at_last_step
from .text import RICHER, bounds, count, escape, interval, number, source, table, titled

_ROWS = 2000  # beyond that a browser scrolls badly, and the file of records is the better table
_VALUE = ("layer", "view", "measure", "estimator", "value", "95 % interval", "null level")
_COLUMNS = ("run", "step", *_VALUE, "n", "d", "dtype", "seed", "status", "note")
_IF_VARIED = ("run", "step", "view", "null level", "seed")  # else the caption says it once
_PLACES = 4  # where a caveat applies: so many places are shown, the others on demand
_CELLS: dict[str, Callable[[Record], str]] = {
    "value": lambda r: number(r.value),
    "95 % interval": interval,
    "null level": lambda r: "" if r.null is None else number(r.null),
}


def comparison(found: Sequence[Panel], definitions: dict[str, Definition]) -> str:
    """Which run is richer by each measure that has a direction; empty for a single run."""
    runs = list(dict.fromkeys(run for p in found for run in p.runs))
    directed = [
        (p, definitions[p.measure].richer)
        for p in found
        if not p.is_curve and p.measure in definitions and len(p.runs) > 1
    ]
    rows = [_compared(p, richer, runs) for p, richer in directed if richer != "neither"]
    if not rows:
        return ""
    head = ["measure", "layer", "richer is", *map(escape, runs), "richer run"]
    caption = "At the last step of each run, with the 95 % interval where there is one."
    return table(head, rows, caption=caption)


def _compared(panel: Panel, richer: str, runs: Sequence[str]) -> list[str]:
    at_layer = {r.run: r for r in at_last_step(panel.rows) if r.layer == panel.main_layer}
    best = richest(list(at_layer.values()), richer)
    cells = [_value_cell(at_layer.get(run), best) for run in runs]
    rivals = [r for r in at_layer.values() if r is not best]
    verdict = escape(best.run) if best else "undecided"
    if best and any(overlap(best, r) for r in rivals):
        verdict += " <small>(intervals overlap)</small>"
    title = titled(panel.measure, panel.variant)
    name = f'<a href="#chart-{panel.number}">{title}</a>'
    return [name, escape(panel.main_layer), RICHER[richer], *cells, verdict]


def _value_cell(record: Record | None, best: Record | None) -> str:
    if record is None:
        return "not measured"
    value = number(record.value)
    marked = f"<strong>{value}</strong>" if record is best else value
    note = ' <a href="#notes-and-failures">see note</a>' if is_caveat(record) else ""
    return f"{marked} <small>{interval(record)}{note}</small>"


def numbers(records: Records) -> str:
    """Every single number with its error bar and all that is needed to judge it."""
    scalars = [r for r in records if r.index is None]
    if not scalars:
        return ""
    shown = (scalars if len(scalars) <= _ROWS else at_last_step(scalars))[:_ROWS]
    points = len(records) - len(scalars)
    varied = {c: len({_cell(r, c) for r in shown}) > 1 for c in _IF_VARIED}
    head = [c for c in _COLUMNS if varied.get(c, True)]
    same = [f"{c} {_cell(shown[0], c)}" for c, v in varied.items() if not v and _cell(shown[0], c)]
    parts = [count(len(shown), "row")]
    if len(shown) < len(scalars):
        parts = [f"{parts[0]} of {len(scalars):,}, from the last steps", "the file has the rest"]
    parts += [f"{count(points, 'point')} of curves not listed"] * (points > 0)
    parts += [f"the same in every row: {', '.join(same)}"] * bool(same)
    rows = ([_cell(r, c) for c in head] for r in shown)
    label = (
        '<label>Filter <input id="filter" type="search" placeholder="layer, measure, ..."></label>'
    )
    return label + table(head, rows, caption="; ".join(parts) + ".")


def _cell(record: Record, column: str) -> str:
    write = _CELLS.get(column)
    return write(record) if write else escape(getattr(record, column))


def sources(records: Records) -> str:
    """What each measure is and where it comes from."""
    rows = []
    for measure in records.unique("measure"):
        d = records.definitions.get(measure)
        told = [d.summary, d.formula] if d else ["No definition came with the records.", ""]
        summary, formula = map(escape, told)
        rest = [source(d), RICHER[d.richer], bounds(d)] if d else [""] * 3
        rows.append([escape(measure), summary, f"<code>{formula}</code>", *rest])
    head = ["measure", "summary", "formula", "source", "richer", "bounds"]
    return table(head, rows, caption="In order of appearance; formulas are LaTeX source.")


def caveats(records: Records) -> str:
    """All rows that failed, are undefined or carry a note, those with one reason in one line."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for r in records:
        if is_caveat(r):
            where = f"{r.layer} ({r.run}, step {r.step})"
            reason = r.note or f"value {number(r.value)}"
            groups.setdefault((r.status, r.measure, reason), []).append(where)
    rows = [[*map(escape, (*told, len(at))), _places(at)] for told, at in groups.items()]
    caption = "Rows with the same measure and reason stand together."
    return table(["status", "measure", "reason", "records", "where"], rows, caption=caption)


def is_caveat(record: Record) -> bool:
    """Whether a record wants its note read before its value is used."""
    return record.status != "ok" or not math.isfinite(record.value)


def _places(places: Sequence[str]) -> str:
    first = ", ".join(map(escape, places[:_PLACES]))
    rest = ", ".join(map(escape, places[_PLACES:]))
    if not rest:
        return first
    more = f"<summary>{len(places) - _PLACES} more</summary>{rest}"
    return f"{first}<details>{more}</details>"
