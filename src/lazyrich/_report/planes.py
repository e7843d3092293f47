"""The plane of radius and dimension: where each layer moves, across lines of equal capacity."""

import math
from collections.abc import Sequence
from typing import Any

from .encodings import color
from .joined import Joined, frame
from .panels import Panel

Spec = dict[str, Any]

_TITLE = "radius and dimension"
_MARGIN = 0.08  # of the data's extent, left free around it
_DECADE = 10  # largest over smallest above which an axis is logarithmic
_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # contours; evenly spaced ones where these are few
_SPACINGS = (1.0, 0.5, 0.2, 0.1, 0.05)
_ENOUGH = 4
_CONTOURS = 7
_BENDS = 60  # points of a contour
_SHORT = 0.12  # of the plane's height or width: shorter contours only crowd a corner
_LABELED = -8  # the point of a contour beside which its number stands
_DEFINITION = {
    "Definition": "Manifolds by their dimension D and radius R; along a contour, balls of these "
    "have the same capacity.",
    "Formula": r"<code>\alpha_\text{approx} = (1 + R_M^{-2}) / D_M</code>",
}


def plane(number: int, radius: Panel, dimension: Panel) -> Joined:
    """Paths over steps, or over layers where there is one step, with their starts and ends.

    Args:
        number: of the chart on the page.
        radius: rows of `manifold_radius`.
        dimension: rows of `manifold_dimension` under the same conventions.
    """
    time = "step" if radius.is_trajectory else "position"
    several = len(radius.runs) > 1
    by_run = several or time == "position"
    field, names = ("run", radius.runs) if by_run else ("layer", radius.layers)
    spec = frame("radius against dimension, with contours of capacity")
    spec |= {"height": 320, "transform": _joined(radius, dimension)}
    if several and time == "step" and len(radius.layers) > 1:
        bind = {"input": "select", "options": radius.layers, "name": "layer "}
        spec["params"] = [{"name": "chosen", "value": radius.main_layer, "bind": bind}]
        spec["transform"].append({"filter": "datum.layer === chosen"})
    group = ["run"] if time == "position" else ["run", "layer"]
    spec["transform"].append(_ends(time, group))
    x, y = _axis("dimension", dimension), _axis("radius", radius)
    place: Spec = {"x": x, "y": y, "color": color(field, names, len(names) > 1)}
    place |= {"tooltip": _TOOLTIP, "detail": [{"field": name} for name in group]}
    crosses = [
        _interval(name, axis, place)
        for name, axis, panel in (("radius", "y", radius), ("dimension", "x", dimension))
        if panel.has("low")
    ]
    spec["layer"] = _contours(x, y) + crosses + _path(place, time)
    way = "step" if time == "step" else "layer"
    told = f"Open circle: first {way}; filled: last. Gray: equal (1 + R⁻²) / D."
    told += " Crosses: 95 % intervals." * bool(crosses)
    return Joined(number, _TITLE, radius.variant, spec, told, _DEFINITION)


_TOOLTIP = [{"field": name} for name in ("run", "layer", "step")] + [
    {"field": name, "type": "quantitative", "format": ".5~g"} for name in ("radius", "dimension")
]


def _joined(radius: Panel, dimension: Panel) -> list[Spec]:
    """One row a place with both values and the ends of their intervals, from two charts' rows."""
    which = f"datum.chart === {radius.number} ? 'radius' : 'dimension'"
    end = "datum.end === 'value' ? '' : '_' + datum.end"
    return [
        {"filter": {"field": "chart", "oneOf": [radius.number, dimension.number]}},
        {"fold": ["value", "low", "high"], "as": ["end", "number"]},
        {"filter": "datum.number !== null"},
        {"calculate": f"({which}) + ({end})", "as": "quantity"},
        {
            "pivot": "quantity",
            "value": "number",
            "groupby": ["run", "step", "layer", "position"],
            "op": "max",
        },
        {"filter": "datum.radius > 0 && datum.dimension > 0"},
    ]


def _ends(time: str, group: Sequence[str]) -> Spec:
    operations = [{"op": op, "field": time, "as": op} for op in ("min", "max")]
    return {"joinaggregate": operations, "groupby": list(group)}


def _path(place: Spec, time: str) -> list[Spec]:
    """The line in order, a dot on each value, and circles at the first and the last."""
    order = {"field": time, "type": "quantitative"}
    line: Spec = {"mark": {"type": "line", "strokeWidth": 1.5, "interpolate": "linear"}}
    dot: Spec = {"mark": {"type": "point", "filled": True, "opacity": 1, "size": 18}}
    start: Spec = {
        "transform": [{"filter": f"datum.{time} === datum.min"}],
        "mark": {"type": "point", "opacity": 1, "size": 90, "fill": "white", "strokeWidth": 2},
    }
    end: Spec = {
        "transform": [{"filter": f"datum.{time} === datum.max"}],
        "mark": {"type": "point", "filled": True, "opacity": 1, "size": 110},
    }
    marks = [dot | {"encoding": place}, end | {"encoding": place}, start | {"encoding": place}]
    return [line | {"encoding": place | {"order": order}}, *marks]


def _interval(field: str, axis: str, place: Spec) -> Spec:
    """A thin bar from the low to the high end, cut at the edge of the plane."""
    low, high = f"{field}_low", f"{field}_high"
    ends = {axis: place[axis] | {"field": low}, f"{axis}2": {"field": high}}
    return {
        "transform": [{"filter": f"datum.{low} > 0 && datum.{high} > 0"}],
        "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.45, "clip": True},
        "encoding": place | ends,
    }


def _axis(field: str, panel: Panel) -> Spec:
    values = [v for v in panel.numbers("value") if v > 0]
    low, high = min(values), max(values)
    is_log = high > _DECADE * low
    if is_log:
        margin = (high / low) ** _MARGIN
        low, high = low / margin, high * margin
    else:
        margin = _MARGIN * ((high - low) or high)
        low, high = max(low - margin, low / 2), high + margin
    scale = {"domain": [low, high], "nice": False, "type": "log" if is_log else "linear"}
    axis = {"format": ".4~g", "tickCount": 5, "grid": False}
    title = f"manifold_{field} (↓ richer)"
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _contours(x: Spec, y: Spec) -> list[Spec]:
    """Lines of equal capacity as data of the chart, with their numbers near the upper end."""
    (left, right), (bottom, top) = x["scale"]["domain"], y["scale"]["domain"]
    lines: list[list[Spec]] = []
    for level in _levels(capacity(top, right), capacity(bottom, left)):
        low, high = max(bottom, _radius(level, right)), min(top, _radius(level, left))
        radii = [low * (high / low) ** (i / (_BENDS - 1)) for i in range(_BENDS)]
        line = [{"level": level, "radius": r, "dimension": (1 + r**-2) / level} for r in radii]
        width = line[0]["dimension"] - line[-1]["dimension"]
        if max((high - low) / (top - bottom), width / (right - left)) > _SHORT:
            lines.append(line)
    place: Spec = {"x": x, "y": y, "tooltip": {"value": None}}
    order = {"field": "radius", "type": "quantitative"}
    return [
        {
            "data": {"values": [point for line in lines for point in line]},
            "mark": {"type": "line", "color": "#c4c4c4", "strokeWidth": 1, "clip": True},
            "encoding": place | {"detail": {"field": "level"}, "order": order},
        },
        {
            "data": {"values": [line[_LABELED] for line in lines]},
            "mark": {"type": "text", "color": "#767676", "fontSize": 10, "align": "left", "dx": 5},
            "encoding": place
            | {"text": {"field": "level", "type": "quantitative", "format": ".3~g"}},
        },
    ]


def capacity(radius: float, dimension: float) -> float:
    """Of balls of that radius and dimension."""
    return (1 + radius**-2) / dimension


def _radius(level: float, dimension: float) -> float:
    """Of balls with that capacity; infinite where even points at the center have more."""
    rest = level * dimension - 1
    return 1 / math.sqrt(rest) if rest > 0 else math.inf


def _levels(low: float, high: float) -> list[float]:
    """Round numbers between, enough to see the slope, at most as many as can be told apart."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    between: list[float] = []
    even = ([1 + i * gap for i in range(round(9 / gap))] for gap in _SPACINGS)
    for mantissas in (_NICE, *even):
        nice = [float(f"{m * 10.0**p:.4g}") for p in powers for m in mantissas]
        between = [level for level in nice if low < level < high]
        if len(between) >= _ENOUGH:
            break
    return between[:: max(1, math.ceil(len(between) / _CONTOURS))]
