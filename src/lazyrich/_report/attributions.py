"""Bars for a change in capacity and the parts that it splits into."""

from collections.abc import Sequence
from typing import Any

from .encodings import PALETTE
from .joined import Joined, frame
from .panels import Panel
from .text import escape

Spec = dict[str, Any]

WHOLE = "capacity_change"
PARTS = tuple(f"{WHOLE}_from_{part}" for part in ("radius", "dimension", "utility"))
_TITLE = "what changed capacity"
_NAMES = ("all", "radius", "dimension", "utility")
_INKS = ("#333333", *PALETTE[:3])
_BAR = 13  # pixels
_DEFINITION = {
    "Definition": "The change of the logarithm of capacity, and its parts: they add up to it.",
    "Formula": r"<code>\Delta \ln \alpha_M = \Delta \ln(1 + R_M^{-2}) - \Delta \ln D_M + "
    r"\Delta \ln \Psi</code>",
}


def attribution(number: int, panels: Sequence[Panel]) -> Joined:
    """Four bars for each place, with their intervals.

    Args:
        number: of the chart on the page.
        panels: of the whole change and of its parts from radius, dimension and utility.
    """
    numbers = [p.number for p in panels]
    whole = panels[0]
    columns = {"run": whole.runs, "step": whole.steps, "layer": whole.layers}
    named = [c for c, values in columns.items() if len(values) > 1] or ["layer"]
    place = " + ', ' + ".join(
        f"'step ' + datum.{c}" if c == "step" else f"datum.{c}" for c in named
    )
    spec = frame("change of capacity and its parts") | {
        "height": _BAR * 5 * len({(r.run, r.step, r.layer) for r in whole.rows}),
        "transform": [
            {"filter": {"field": "chart", "oneOf": numbers}},
            {"calculate": f"{list(_NAMES)}[indexof({numbers}, datum.chart)]", "as": "part"},
            {"calculate": place, "as": "place"},
        ],
        "encoding": {
            "y": {
                "field": "place",
                "type": "nominal",
                "title": None,
                "sort": None,
                "axis": {"labelLimit": 200},
            },
            "yOffset": {"field": "part", "sort": _NAMES},
            "tooltip": _tooltip(whole),
        },
    }
    bar = {"mark": {"type": "bar"}, "encoding": {"x": _change("value"), "color": _color()}}
    ends = {"x": _change("low"), "x2": {"field": "high"}}
    rule = {"mark": {"type": "rule", "color": "#888888", "strokeWidth": 2}, "encoding": ends}
    has = any(p.has("low") for p in panels)
    spec["layer"] = [bar] + [rule] * has
    told = "0.1 is about 10 % more." + " Gray: 95 % interval." * has
    return Joined(number, _TITLE, whole.variant, spec, told, _facts(whole))


def _facts(whole: Panel) -> dict[str, str]:
    """What the change is between stands in the estimator."""
    estimators = dict.fromkeys(r.estimator for r in whole.rows)
    layer = escape(whole.layers[0]) if len(whole.layers) == 1 else ""
    return _DEFINITION | {"Layer": layer, "Estimator": "; ".join(map(escape, estimators))}


def _change(field: str) -> Spec:
    title = "change of ln capacity"
    return {"field": field, "type": "quantitative", "title": title, "axis": {"tickCount": 6}}


def _color() -> Spec:
    scale = {"domain": _NAMES, "range": _INKS}
    return {"field": "part", "type": "nominal", "scale": scale, "legend": {"title": None}}


def _tooltip(panel: Panel) -> list[Spec]:
    names = [{"field": name} for name in ("run", "layer", "step", "part")]
    numbers = ["value"] + [c for c in ("low", "high") if panel.has(c)]
    return names + [{"field": c, "type": "quantitative", "format": ".4~g"} for c in numbers]
