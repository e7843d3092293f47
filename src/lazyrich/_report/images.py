"""Numbers that belong to the pixels of an image, drawn where the pixels are."""

import math
import re
from collections.abc import Sequence
from typing import Any

from .._records import Record, Records
from .joined import Joined, frame
from .panels import at_last_step

Spec = dict[str, Any]

DRAWN = {  # whether values have a sign
    "nfm_diagonal": False,
    "agop_diagonal": False,
    "nfm_direction": True,
    "agop_direction": True,
}
_TITLE = "what the network looks at"
_WIDTH = 210  # pixels of the page an image takes
_PIXELS = 128 * 128  # larger images would make pages that no browser likes
_SHAPE = re.compile(r"inputs (\d+(?: x \d+)+)")
_DEFINITION = {
    "Reading": "Each pixel has the value of the measure at that input, summed over color channels "
    "where there are some. NFM is what the weights say matters, AGOP what the outputs react to; "
    "the other charts show by how much they agree. The sign of a direction means nothing.",
}


def images(records: Records, start: int) -> list[Joined]:
    """A chart for each run and layer whose inputs are images: the measures side by side.

    Args:
        start: number of the first chart on the page.
    """
    groups: dict[tuple[str, str], dict[tuple[str, str], list[Record]]] = {}
    for r in at_last_step(r for r in records if r.measure in DRAWN and _shape(r)):
        groups.setdefault((r.run, r.layer), {}).setdefault((r.measure, r.estimator), []).append(r)
    runs = {run for run, _ in groups}
    layers = {layer for _, layer in groups}
    found: list[Joined] = []
    for (run, layer), columns in groups.items():
        variant = ", ".join(
            [f"run {run}"] * (len(runs) > 1) + [f"layer {layer}"] * (len(layers) > 1)
        )
        spec = _side_by_side(list(columns.values()))
        told = f"The inputs of {layer} in {run}."
        found.append(Joined(start + len(found), _TITLE, variant, spec, told, _DEFINITION))
    return found


def _shape(record: Record) -> tuple[int, int] | None:
    """Height and width, where the layer reads whole images."""
    told = _SHAPE.search(record.view)
    if told is None:
        return None
    sizes = [int(size) for size in told[1].split(" x ")]
    channels, height, width = [1, *sizes][-3:]
    whole = record.d == channels * height * width and height * width <= _PIXELS
    return (height, width) if whole else None


def _side_by_side(columns: Sequence[Sequence[Record]]) -> Spec:
    base = frame("images of what the network looks at")
    outer = {name: base[name] for name in ("$schema", "description")}
    parts = [_image(rows) for rows in columns]
    return outer | {"concat": parts, "columns": 3, "resolve": {"scale": {"color": "independent"}}}


def _image(rows: Sequence[Record]) -> Spec:
    first = rows[0]
    shape = _shape(first)
    assert shape is not None  # rows without one were left out
    height, width = shape
    pixels = [0.0] * (height * width)
    for r in rows:
        if r.index is not None and math.isfinite(r.value):
            pixels[(r.index - 1) % (height * width)] += r.value
    values = [float(f"{v:.4g}") for v in pixels]
    signed = DRAWN[first.measure]
    largest = max(map(abs, values)) or 1.0
    scale: Spec = {"scheme": "viridis", "domain": [0, largest]}
    if signed:
        scale = {"scheme": "blueorange", "domain": [-largest, largest]}
    how = first.estimator.removeprefix("plug-in").removeprefix(", ")
    named = first.measure.replace("_", " ") + f", {how}" * bool(how)
    bars: Spec = {"title": None, "orient": "bottom", "gradientLength": _WIDTH, "format": ".2~g"}
    side: Spec = {"axis": None, "type": "ordinal"}
    return {
        "title": {"text": named, "fontSize": 12, "fontWeight": "normal"},
        "width": _WIDTH,
        "height": round(_WIDTH * height / width),
        "data": {"sequence": {"start": 0, "stop": height * width, "as": "place"}},
        "transform": [
            {"calculate": f"floor(datum.place / {width})", "as": "row"},
            {"calculate": f"datum.place % {width}", "as": "column"},
            {"calculate": f"{values}[datum.place]", "as": "value"},
        ],
        "mark": {"type": "rect"},
        "encoding": {
            "y": {"field": "row"} | side,
            "x": {"field": "column"} | side,
            "color": {"field": "value", "type": "quantitative", "scale": scale, "legend": bars},
            "tooltip": [
                {"field": "row"},
                {"field": "column"},
                {"field": "value", "type": "quantitative", "format": ".3~g"},
            ],
        },
    }
