"""Charts as Vega-Lite specifications: plain dicts over the one table named `records`."""

from collections.abc import Sequence
from typing import Any

from .encodings import (
    color,
    fits_palette,
    low_end,
    name_axis,
    rank_axis,
    shape,
    step_axis,
    value_axis,
)
from .joined import frame
from .matrices import matrix
from .panels import Panel

Spec = dict[str, Any]

_MANY_MARKS = 3000  # beyond that a canvas draws faster than as many nodes of SVG
_CHOSEN: Spec = {"filter": "datum.layer === chosen"}

CONFIG: Spec = {
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": "#333",
        "titleColor": "#333",
        "gridColor": "#e8e8e8",
        "domainColor": "#888",
        "tickColor": "#888",
        "titlePadding": 8,
    },
    "legend": {
        "orient": "bottom",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 240,
        "titleLimit": 300,
        "symbolOpacity": 1,
        "columnPadding": 16,
    },
}


def chart(panel: Panel, richer: str = "neither") -> Spec:
    """The chart that suits the panel: curve, trajectory over steps, profile or matrix of layers."""
    if panel.is_curve:
        return curve(panel)
    if panel.is_matrix:
        base = _base(panel, f"{panel.measure} of every pair of layers")
        return matrix(panel, base, _tooltip(panel))
    return trajectory(panel, richer) if panel.is_trajectory else profile(panel, richer)


def trajectory(panel: Panel, richer: str = "neither") -> Spec:
    """Value against step: a line for each layer, or for each run at a layer that is chosen."""
    y = value_axis(panel, richer)
    return _lines(panel, step_axis(panel), y, f"{panel.measure} against training step")


def curve(panel: Panel) -> Spec:
    """Value against rank, both logarithmic: a line for each layer, or for each run at a layer."""
    y = value_axis(panel, "neither")
    return _lines(panel, rank_axis(panel), y, f"{panel.measure} against rank")


def profile(panel: Panel, richer: str = "neither") -> Spec:
    """Value against layer in execution order, with error bars; one color for each run.

    Where there is one layer only, the runs stand side by side instead.
    """
    along = "layer" if len(panel.layers) > 1 else "run"
    names = panel.layers if along == "layer" else panel.runs
    legend = along == "layer" and len(panel.runs) > 1
    y = value_axis(panel, richer)
    error: Spec = {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": low_end(y)}
    points = _points("run", panel.runs, legend, size=32 if len(names) <= 50 else 14)
    return _base(panel, f"{panel.measure} by {along}") | {
        "encoding": {
            "x": name_axis(along, names),
            "color": color("run", panel.runs, legend),
            "tooltip": _tooltip(panel),
        },
        "layer": [error] * panel.has("low") + _marks(panel, y, points),
    }


def _lines(panel: Panel, x: Spec, y: Spec, description: str) -> Spec:
    """Lines with shaded intervals: the runs at a layer that is chosen, or the layers of one run."""
    several = len(panel.runs) > 1
    field, names = ("run", panel.runs) if several else ("layer", panel.layers)
    spec = _base(panel, description) | {
        "encoding": {
            "x": x,
            "color": color(field, names, len(names) > 1),
            "detail": {"field": field},
            "tooltip": _tooltip(panel),
        }
    }
    if not several and not fits_palette(names):
        return spec | {"params": [_choice(panel, "in black: layer ")], "layer": _crowd(panel, y)}
    if several and len(panel.layers) > 1:
        spec["params"] = [_choice(panel, "layer ")]
        spec["transform"] += [_CHOSEN]
    points = _points(field, names, len(names) > 1, size=14 if panel.is_curve else 32)
    return spec | {"layer": _shade(panel, y) + _marks(panel, y, points)}


def _choice(panel: Panel, label: str) -> Spec:
    bind = {"input": "select", "options": panel.layers, "name": label}
    return {"name": "chosen", "value": panel.main_layer, "bind": bind}


def _crowd(panel: Panel, y: Spec) -> list[Spec]:
    """Many layers as thin lines, and one of them in black with all that is known of it."""
    thin: Spec = {"mark": {"type": "line", "strokeWidth": 1}, "encoding": {"y": y}}
    hover: Spec = {"mark": {"type": "point", "filled": True, "opacity": 0}, "encoding": {"y": y}}
    points = _points("run", panel.runs, False, size=14 if panel.is_curve else 32)
    chosen: Spec = {
        "transform": [_CHOSEN],
        "encoding": {"color": {"value": "black"}},
        "layer": _shade(panel, y) + _marks(panel, y, points),
    }
    return [thin, hover, chosen]


def _shade(panel: Panel, y: Spec) -> list[Spec]:
    encoding = low_end(y) | {"tooltip": {"value": None}}
    return [{"mark": {"type": "area", "opacity": 0.18}, "encoding": encoding}] * panel.has("low")


def _base(panel: Panel, description: str) -> Spec:
    spec = frame(description)
    spec["transform"] = [{"filter": {"field": "chart", "equal": panel.number}}]
    if len(panel.rows) > _MANY_MARKS:
        spec["usermeta"] = {"embedOptions": {"renderer": "canvas"}}
    return spec


def _points(field: str, names: Sequence[str], legend: bool, size: int) -> Spec:
    """A point on each value; its shape tells the series apart where they are few."""
    mark = {"type": "point", "filled": True, "opacity": 1, "size": size}
    few = fits_palette(names)
    return {"mark": mark, "encoding": {"shape": shape(field, names, legend)} if few else {}}


def _marks(panel: Panel, y: Spec, points: Spec) -> list[Spec]:
    """The values with all that explains them: the null level, and a cross where one is missing."""
    line: Spec = {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"y": y}}
    level: Spec = {
        "mark": {"type": "line", "strokeDash": [4, 3], "strokeWidth": 1},
        "encoding": {"y": y | {"field": "null"}},
    }
    cross: Spec = {
        "transform": [{"filter": "datum.value === null"}],
        "mark": {"type": "text", "text": "×", "fontSize": 14, "baseline": "bottom"},
        "encoding": {"y": {"value": {"expr": "height"}}},
    }
    points = points | {"encoding": points["encoding"] | {"y": y}}
    return [level] * panel.has("null") + [line, points] + [cross] * panel.has_gaps


def _tooltip(panel: Panel) -> list[Spec]:
    names = ["run", "layer", "step"] + ["index"] * panel.is_curve
    numbers = ["value"] + [c for c in ("low", "high", "null") if panel.has(c)]
    return [{"field": c} for c in names] + [
        {"field": c, "type": "quantitative", "format": ".5~g"} for c in numbers
    ]
