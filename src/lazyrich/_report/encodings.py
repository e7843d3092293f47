"""Axes, colors and shapes: how one column of the records becomes position or ink."""

import math
from collections.abc import Sequence
from typing import Any

from .panels import Panel

Encoding = dict[str, Any]

# Okabe & Ito's palette without its yellow, which is lost on white paper; shapes say it once more.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
_RAMP = {"scheme": {"name": "viridis", "extent": [0, 0.9]}}  # ends before the light yellow
_ARROWS = {"low": " (↓ richer)", "high": " (↑ richer)"}
_SHORT = "format(datum.value, '~s')"  # 10k; the option `format` gives all ticks one prefix
_DECADES = 100  # largest over smallest above which positive numbers get a logarithmic axis
_NAMES = 30  # names that stand side by side without touching


def fits_palette(names: Sequence[str]) -> bool:
    """Whether every name gets a color and a shape of its own."""
    return len(names) <= len(PALETTE)


def color(field: str, names: Sequence[str], legend: bool) -> Encoding:
    """Distinct colors for a few names, a ramp from dark to light for many."""
    if fits_palette(names):
        scale: Encoding = {"domain": names, "range": PALETTE[: len(names)]}
    elif field == "layer":
        return _depth()
    else:
        scale = {"domain": names} | _RAMP
    return _named(field, names, scale, legend)


def shape(field: str, names: Sequence[str], legend: bool) -> Encoding:
    """The same distinction without color; its legend merges with that of the colors."""
    return _named(field, names, {"domain": names, "range": SHAPES[: len(names)]}, legend)


def _named(field: str, names: Sequence[str], scale: Encoding, legend: bool) -> Encoding:
    pixels = 44 + 6 * min(32, max(map(len, names)))
    box = {
        "title": None,
        # a number, for the narrowest chart: one that follows the width is laid out too late for
        # the chart to grow by the rows it makes
        "columns": max(1, 380 // pixels),
        "labelExpr": _shortened(32),
    }
    return {"field": field, "type": "nominal", "scale": scale, "legend": box if legend else None}


def _depth() -> Encoding:
    """Color by execution order: a legend of a hundred names could not be read."""
    box = {"title": "layer number in execution order", "format": "d", "tickMinStep": 1}
    return {"field": "position", "type": "quantitative", "scale": _RAMP, "legend": box}


def value_axis(panel: Panel, richer: str) -> Encoding:
    """The measured value; logarithmic where positive numbers span more than two decades."""
    values = panel.numbers("value")
    smallest, largest = min(values), max(values)
    y: Encoding = {"field": "value", "type": "quantitative"}
    y["title"] = panel.measure + _ARROWS.get(richer, "")
    axis: Encoding = {"format": ".7~g", "tickCount": 5}
    if smallest <= 0 or not (panel.is_curve or largest > _DECADES * smallest):
        return y | {"scale": {"zero": False}, "axis": axis}
    scale: Encoding = {"type": "log", "nice": False}
    if min(panel.numbers("low"), default=smallest) < smallest / 10:
        # An interval that reaches zero has no lower end on this axis: it is cut at the floor.
        scale |= {"clamp": True, "domainMin": smallest / 10}
    axis["gridOpacity"] = {"condition": {"test": "!datum.label", "value": 0}, "value": 1}
    return y | {"scale": scale, "axis": axis}


def low_end(y: Encoding) -> Encoding:
    """From the low to the high end of the interval."""
    return {"y": y | {"field": "low"}, "y2": {"field": "high"}}


def step_axis(panel: Panel) -> Encoding:
    """The training step; symlog, which has a place for step 0, where steps are spaced that way."""
    x: Encoding = {"field": "step", "type": "quantitative", "title": "training step"}
    axis: Encoding = {"labelExpr": _SHORT, "grid": False}
    if not _are_log_spaced(panel.steps):
        return x | {"scale": {"nice": False}, "axis": axis | {"tickCount": 6}}
    powers = [10**p for p in range(math.ceil(math.log10(panel.steps[-1])) + 1)]
    axis["values"] = [s for s in (0, *powers) if s <= panel.steps[-1]]
    return x | {"scale": {"type": "symlog", "nice": False}, "axis": axis}


def _are_log_spaced(steps: Sequence[int]) -> bool:
    """Over two decades, and their middle one nearer to the geometric than the arithmetic middle."""
    positive = [s for s in steps if s > 0]
    if not positive or positive[-1] <= _DECADES * positive[0]:
        return False
    geometric = math.sqrt(positive[0] * positive[-1])
    arithmetic = (positive[0] + positive[-1]) / 2
    return positive[len(positive) // 2] < math.sqrt(geometric * arithmetic)


def rank_axis(panel: Panel) -> Encoding:
    """The rank on a curve; logarithmic unless a curve begins below 1."""
    axis = {"labelExpr": f"datum.label && {_SHORT}", "grid": False, "tickCount": 5}
    scale = {"type": "log" if min(panel.numbers("index")) > 0 else "linear", "nice": False}
    return {"field": "index", "type": "quantitative", "title": "rank", "scale": scale, "axis": axis}


def name_axis(field: str, names: Sequence[str]) -> Encoding:
    """Names in their order; where they are many every second, third, ... is written."""
    axis = {
        "values": names[:: -math.ceil(len(names) / _NAMES)],  # from the end: the last is read first
        "labelAngle": 0 if sum(map(len, names)) < 40 else -50,
        "labelExpr": _shortened(22),
        "labelLimit": 160,
        "labelOverlap": False,
    }
    title = "layer, in execution order" if field == "layer" else field
    scale = {"domain": names}
    return {"field": field, "type": "nominal", "title": title, "scale": scale, "axis": axis}


def matrix_axis(field: str, names: Sequence[str]) -> Encoding:
    """Rows or columns of a heat map, in order of appearance; the second side's run along x."""
    angle = {"labelAngle": -50} if field == "second" else {}
    axis = {"labelExpr": _shortened(22), "labelLimit": 160, "grid": False, "ticks": False} | angle
    return {
        "field": field,
        "type": "nominal",
        "title": f"{field}, in execution order",
        "scale": {"domain": names},
        "axis": axis,
    }


def share_color() -> Encoding:
    """One scale from 0 to 1 for all heat maps, readable without color vision and in gray."""
    scale = {"scheme": "viridis", "domain": [0, 1], "clamp": True}
    legend = {"title": "value", "orient": "right", "format": ".1f"}
    return {"field": "value", "type": "quantitative", "scale": scale, "legend": legend}


def _shortened(length: int) -> str:
    """Long names lose their beginning: layers of a model differ in their last part."""
    return f"length(datum.label) > {length} ? '…' + slice(datum.label, {1 - length}) : datum.label"
