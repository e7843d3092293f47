"""Which records share a chart: one panel a measure, more where several values claim one place."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from .._records import Record, Records

COLUMNS = ("chart", "run", "step", "layer", "index", "value", "low", "high", "null")
PAIR = " ~ "  # between the names of two layers that were compared
_VARIANTS = ("view", "estimator", "dtype", "seed")
_MAIN_LAYERS = ("penultimate", "features")
_POINTS = 80  # more points than that on one logarithmic curve cannot be told apart on a page
_ROUND_OFF = 1e-12  # eigenvalues below this share of the largest are zeros of the exact matrix


@dataclass(frozen=True, slots=True)
class Panel:
    """The rows of one chart.

    Attributes:
        number: place on the page, the value of the column `chart` in the page's data.
        measure: name of what is drawn.
        variant: what tells this panel from its neighbors of the same measure; mostly empty.
        rows: at most one a run, step, layer and index.
        layers: names in execution order.
    """

    number: int
    measure: str
    variant: str
    rows: tuple[Record, ...]
    layers: tuple[str, ...]

    @property
    def is_curve(self) -> bool:
        return self.rows[0].index is not None

    @property
    def is_trajectory(self) -> bool:
        return not self.is_curve and len({(r.run, r.step) for r in self.rows}) > len(self.runs)

    @property
    def is_matrix(self) -> bool:
        """Whether it shows pairs of layers, at one step."""
        pairs = any(PAIR in layer for layer in self.layers)
        return pairs and not (self.is_curve or self.is_trajectory)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The layers that were compared."""
        parts = (layer.partition(PAIR) for layer in self.layers if PAIR in layer)
        return [(first, second) for first, _, second in parts]

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        """Names of rows and of columns of a heat map, in order of appearance."""
        first, second = zip(*self.pairs, strict=True)
        if self.is_half:  # both sides are the same, and the last row has no column of its own
            first = second = (*first, *second)
        return list(dict.fromkeys(first)), list(dict.fromkeys(second))

    @property
    def is_half(self) -> bool:
        """Whether each pair came once, the layers of one model with each other."""
        pairs = set(self.pairs)
        names = {name for pair in pairs for name in pair}
        once = all(a == b or (b, a) not in pairs for a, b in pairs)
        return once and all((name, name) in pairs for name in names)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.run for r in self.rows))

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({r.step for r in self.rows}))

    @property
    def main_layer(self) -> str:
        """What the last linear map reads, where the records name it; else the last layer."""
        return next((name for name in _MAIN_LAYERS if name in self.layers), self.layers[-1])

    @property
    def has_gaps(self) -> bool:
        return not all(math.isfinite(r.value) for r in self.rows)

    def numbers(self, column: str) -> list[float]:
        """The finite numbers in a column."""
        values = (getattr(r, column) for r in self.rows)
        return [v for v in values if v is not None and math.isfinite(v)]

    def has(self, column: str) -> bool:
        """Whether any row has a number there."""
        return bool(self.numbers(column))


def panels(records: Records) -> list[Panel]:
    """The panels of a page in order of appearance: first the single numbers, then the curves.

    What has no finite value has no panel.
    """
    order = {layer: place for place, layer in enumerate(records.unique("layer"))}
    scalars = _grouped((r for r in records if r.index is None), "measure")
    curves = _grouped((r for r in records if r.index is not None), "measure")
    found: list[Panel] = []
    for (measure,), rows in chain(scalars.items(), curves.items()):
        for variant, chosen in _variants(rows).items():
            drawn = _thinned(chosen) if rows[0].index is not None else chosen
            if not any(math.isfinite(r.value) for r in drawn):
                continue
            layers = sorted({r.layer for r in drawn}, key=order.__getitem__)
            found.append(Panel(len(found), measure, variant, tuple(drawn), tuple(layers)))
    return found


def data(found: Sequence[Panel]) -> dict[str, Any]:
    """All rows that any chart draws, each once; long names stand once and are pointed to."""
    runs = list(dict.fromkeys(chain.from_iterable(p.runs for p in found)))
    layers = list(dict.fromkeys(chain.from_iterable(p.layers for p in found)))
    run_place = {run: place for place, run in enumerate(runs)}
    layer_place = {layer: place for place, layer in enumerate(layers)}
    rows = [
        (p.number, run_place[r.run], r.step, layer_place[r.layer], r.index, *_numbers(r))
        for p in found
        for r in p.rows
    ]
    return {"columns": COLUMNS, "names": {"run": runs, "layer": layers}, "rows": rows}


def _numbers(record: Record) -> tuple[float | None, ...]:
    """Seven digits are finer than a pixel; what is not finite has no place on an axis."""
    numbers = (record.value, record.low, record.high, record.null)
    return tuple(float(f"{v:.7g}") if v is not None and math.isfinite(v) else None for v in numbers)


def _grouped(rows: Iterable[Record], *columns: str) -> dict[tuple[Any, ...], list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for r in rows:
        groups.setdefault(tuple(getattr(r, c) for c in columns), []).append(r)
    return groups


def _place(record: Record) -> tuple[str, int, str, int | None]:
    return record.run, record.step, record.layer, record.index


def _variants(rows: list[Record]) -> dict[str, list[Record]]:
    """Rows split where one place has several values, so that two estimators never share a line.

    A value that was measured twice in the same way is drawn once: the later one.
    """
    good = [r for r in rows if r.status == "ok"] or rows
    columns = [c for c in _VARIANTS if _is_ambiguous(good, c)]
    named = set(_grouped(good, *columns))
    split = {
        ", ".join(f"{c} {v}" for c, v in zip(columns, values, strict=True)): group
        for values, group in _grouped(rows, *columns).items()
        if values in named
    }
    return {
        variant: list({_place(r): r for r in group}.values()) for variant, group in split.items()
    }


def _is_ambiguous(rows: list[Record], column: str) -> bool:
    return len({(*_place(r), getattr(r, column)) for r in rows}) > len({_place(r) for r in rows})


def at_last_step(rows: Iterable[Record]) -> list[Record]:
    """The rows at the last step of each run."""
    rows = list(rows)
    last: dict[str, int] = {}
    for r in rows:
        last[r.run] = max(r.step, last.get(r.run, r.step))
    return [r for r in rows if r.step == last[r.run]]


def _thinned(rows: list[Record]) -> list[Record]:
    """Curves at the last step, at logarithmically spaced ranks, without their round-off."""
    kept: list[Record] = []
    for curve in _grouped(at_last_step(rows), "run", "layer").values():
        curve.sort(key=lambda r: r.index or 0)
        top = max((abs(r.value) for r in curve if math.isfinite(r.value)), default=0.0)
        solid = [r for r in curve if abs(r.value) > _ROUND_OFF * top]
        ranks = {round(len(solid) ** (i / (_POINTS - 1))) - 1 for i in range(_POINTS)}
        kept += [r for i, r in enumerate(solid) if i in ranks or len(solid) <= _POINTS]
    return kept
