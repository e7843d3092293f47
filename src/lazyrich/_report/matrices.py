"""A heat map of pairs of layers: rows are the first side's, columns the second's."""

from collections.abc import Sequence
from typing import Any

from .encodings import matrix_axis, share_color
from .panels import PAIR, Panel

Spec = dict[str, Any]

_WRITTEN = 12  # columns that leave room for a number in each cell
_CELL = 24  # pixels of a row
_CHOSEN: Spec = {"filter": "datum.run === chosen"}


def matrix(panel: Panel, base: Spec, tooltip: Sequence[Spec]) -> Spec:
    """Every pair as a cell in one color scale from 0 to 1; one run at a time.

    Pairs within one model that came once stand on both sides of the diagonal.

    Args:
        panel: of layers named `a ~ b`.
        base: data, size and filters that all charts share.
        tooltip: what is told of a cell.
    """
    rows, columns = panel.sides
    spec = base | {"height": _CELL * len(rows), "encoding": {"tooltip": [*tooltip]}}
    spec["transform"] = [*spec["transform"], {"filter": f"indexof(datum.layer, '{PAIR}') > 0"}]
    if len(panel.runs) > 1:
        bind = {"input": "select", "options": panel.runs, "name": "run "}
        spec["params"] = [{"name": "chosen", "value": panel.runs[-1], "bind": bind}]
        spec["transform"].append(_CHOSEN)
    spec["transform"] += [
        {"calculate": f"split(datum.layer, '{PAIR}')[{i}]", "as": name}
        for i, name in enumerate(("first", "second"))
    ]
    y, x = matrix_axis("first", rows), matrix_axis("second", columns)
    layers = _cells(x, y, "true", len(columns))
    if panel.is_half:
        turned = x | {"field": "first"}, y | {"field": "second"}
        layers += _cells(*turned, "datum.first !== datum.second", len(columns))
    return spec | {"layer": layers}


def _cells(x: Spec, y: Spec, kept: str, columns: int) -> list[Spec]:
    """Colored cells with their numbers where these fit, and a cross where there is none."""
    place: Spec = {"transform": [{"filter": kept}], "encoding": {"x": x, "y": y}}
    number: Spec = {"field": "value", "type": "quantitative", "format": ".2f"}
    ink = {"condition": {"test": "datum.value > 0.6", "value": "black"}, "value": "white"}
    cell = place | {
        "mark": {"type": "rect"},
        "encoding": place["encoding"] | {"color": share_color()},
    }
    text = place | {
        "mark": {"type": "text", "fontSize": 10},
        "encoding": place["encoding"] | {"text": number, "color": ink},
    }
    cross = place | {
        "transform": [{"filter": f"{kept} && datum.value === null"}],
        "mark": {"type": "text", "text": "×", "fontSize": 14},
    }
    return [cell, *[text] * (columns <= _WRITTEN), cross]
