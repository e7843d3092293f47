"""Features one by one: strength, quality and use of each, beside each other over the rank."""

from collections.abc import Sequence
from typing import Any

from .encodings import PALETTE, rank_axis
from .joined import Joined, frame
from .panels import Panel

Spec = dict[str, Any]

CURVES = {
    "relative_eigenvalue": "strength",
    "cumulative_quality": "quality, cumulative",
    "cumulative_utilization": "utilization, cumulative",
}
_TITLE = "feature decomposition"
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])  # more runs than that cannot be told apart
_STROKES = {"symbolType": "stroke", "symbolSize": 500, "symbolFillColor": "transparent"}
_DEFINITION = {
    "Definition": "Features in order of strength: the eigenvalue of each beside the largest, how "
    "much of the targets the first k can express, and how much of the outputs they make up.",
    "Formula": r"<code>\rho_k / \rho_1, \quad \Pi^*(k), \quad \hat\Pi(k)</code>",
}


def decompositions(found: Sequence[Panel], start: int) -> list[Joined]:
    """A chart for each set of conventions under which two or more of the curves were recorded.

    Args:
        found: the panels of the page.
        start: number of the first chart on the page.
    """
    curves = [p for p in found if p.measure in CURVES and p.is_curve]
    together = [
        [p for p in curves if p.variant == variant]
        for variant in dict.fromkeys(p.variant for p in curves)
    ]
    several = [panels for panels in together if len(panels) > 1]
    return [_decomposition(start + i, panels) for i, panels in enumerate(several)]


def _decomposition(number: int, panels: Sequence[Panel]) -> Joined:
    runs = list(dict.fromkeys(run for p in panels for run in p.runs))
    layers = [name for name in panels[0].layers if all(name in p.layers for p in panels)]
    layers = layers or list(panels[0].layers)
    names = [CURVES[p.measure] for p in panels]
    numbers = [p.number for p in panels]
    choices = {"layer": (layers, _main(panels, layers))} if len(layers) > 1 else {}
    if len(runs) > len(_DASHES):
        choices["run"] = (runs, runs[0])
    spec = frame("strength, quality and utilization of features against rank") | {
        "transform": [
            {"filter": {"field": "chart", "oneOf": numbers}},
            {"calculate": f"{names}[indexof({numbers}, datum.chart)]", "as": "curve"},
            *({"filter": f"datum.{field} === chosen_{field}"} for field in choices),
        ],
        "params": [_choice(field, values, chosen) for field, (values, chosen) in choices.items()],
        "encoding": {
            "x": rank_axis(panels[0]),
            "y": _share(),
            "color": _named("curve", names, PALETTE, {}),
            "tooltip": _tooltip(),
        },
        "mark": {"type": "line", "strokeWidth": 1.8, "point": {"size": 14}},
    }
    if 1 < len(runs) <= len(_DASHES):
        spec["encoding"]["strokeDash"] = _named("run", runs, _DASHES, _STROKES)
    told = "A rich network uses few features, and those are good for the targets."
    return Joined(number, _TITLE, panels[0].variant, spec, told, _DEFINITION)


def _main(panels: Sequence[Panel], layers: Sequence[str]) -> str:
    main = panels[0].main_layer
    return main if main in layers else layers[-1]


def _choice(field: str, values: Sequence[str], chosen: str) -> Spec:
    bind = {"input": "select", "options": values, "name": f"{field} "}
    return {"name": f"chosen_{field}", "value": chosen, "bind": bind}


def _named(field: str, names: Sequence[str], inks: Sequence[Any], legend: Spec) -> Spec:
    scale = {"domain": names, "range": list(inks[: len(names)])}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend | {"title": None}}


def _share() -> Spec:
    axis = {"tickCount": 5, "format": ".2~g"}
    return {
        "field": "value",
        "type": "quantitative",
        "title": "share",
        "scale": {"domain": [0, 1]},
        "axis": axis,
    }


def _tooltip() -> list[Spec]:
    names: list[Spec] = [{"field": name} for name in ("run", "layer", "step", "curve")]
    rank: Spec = {"field": "index", "title": "rank"}
    return [*names, rank, {"field": "value", "type": "quantitative", "format": ".4~g"}]
