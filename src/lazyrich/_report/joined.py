"""Charts made of the rows of several others: what they share, and which of them a page has."""

from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Joined:
    """A chart that draws the rows of several panels at once.

    Attributes:
        number: place on the page, after those of the panels.
        title: what is drawn.
        variant: what tells it from another chart of the same title; mostly empty.
        spec: for Vega-Lite.
        told: what the ink means.
        facts: HTML by term, beside the chart.
    """

    number: int
    title: str
    variant: str
    spec: Spec
    told: str
    facts: dict[str, str] = field(default_factory=dict)


def frame(description: str) -> Spec:
    """What every chart begins with."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "data": {"name": "records"},
        "width": "container",
        "height": 250,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
