"""Which charts of capacity and its geometry a page has: those whose measures were recorded."""

from collections.abc import Sequence

from .attributions import PARTS, WHOLE, attribution
from .joined import Joined
from .panels import Panel
from .planes import plane

_ENDLESS = float("inf")
_PLANE = ("manifold_radius", "manifold_dimension")


def geometry(found: Sequence[Panel]) -> list[Joined]:
    """A chart for each set of conventions under which all that it draws was measured."""
    variants = dict.fromkeys(p.variant for p in found)
    planes = [p for v in variants if (p := _together(found, _PLANE, v)) and _share_a_place(p)]
    changes = [p for v in variants if (p := _together(found, (WHOLE, *PARTS), v))]
    charts = [plane(len(found) + i, *pair) for i, pair in enumerate(planes)]
    start = len(found) + len(charts)
    return charts + [attribution(start + i, panels) for i, panels in enumerate(changes)]


def _together(found: Sequence[Panel], measures: Sequence[str], variant: str) -> list[Panel]:
    """The panels of these measures, or none where one is missing."""
    of = {p.measure: p for p in found if p.variant == variant and not p.is_curve}
    return [of[m] for m in measures] if all(m in of for m in measures) else []


def _share_a_place(panels: Sequence[Panel]) -> bool:
    """Whether one run, step and layer has finite numbers above zero in all of them."""
    places = [{(r.run, r.step, r.layer) for r in p.rows if 0 < r.value < _ENDLESS} for p in panels]
    return bool(set.intersection(*places))
