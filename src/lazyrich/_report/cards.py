"""A card: one chart with, right beside it, what is drawn and where its definition comes from."""

from .._records import Definition
from .joined import Joined
from .panels import Panel
from .text import RICHER, bounds, escape, source, spread, titled


def card(panel: Panel, definition: Definition | None) -> str:
    """The chart's place, to be filled in by the script, and the facts about it."""
    facts = _defined(definition) | {
        "Layer": escape(panel.layers[0]) if len(panel.layers) == 1 else "",
        "Estimator": ", ".join(escape(e) for e in _different(panel, "estimator")),
        "Samples": spread([r.n for r in panel.rows if r.n] or [0]),
        "Precision": ", ".join(escape(t) for t in _different(panel, "dtype")),
    }
    return _article(panel.number, titled(panel.measure, panel.variant), _explained(panel), facts)


def joined_card(chart: Joined) -> str:
    """The same for a chart that draws the rows of several others."""
    return _article(chart.number, titled(chart.title, chart.variant), chart.told, chart.facts)


def _article(number: int, title: str, told: str, facts: dict[str, str]) -> str:
    name = f"chart-{number}"
    items = "".join(f"<dt>{term}</dt><dd>{fact}</dd>" for term, fact in facts.items() if fact)
    return (
        f'<article id="{name}"><h3 id="{name}-title">{title}</h3>'
        f'<figure aria-labelledby="{name}-title"><div class="chart"></div>'
        f"<figcaption>{told}</figcaption></figure>"
        f"<dl>{items}</dl></article>\n"
    )


def _defined(definition: Definition | None) -> dict[str, str]:
    if definition is None:
        return {"Definition": "No definition came with the records."}
    return {
        "Definition": escape(definition.summary),
        "Formula": f"<code>{escape(definition.formula)}</code>",
        "Source": source(definition),
        "Richer": RICHER[definition.richer],
        "Bounds": bounds(definition),
    }


def _different(panel: Panel, column: str) -> list[str]:
    return list(dict.fromkeys(v for r in panel.rows if (v := getattr(r, column))))


def _explained(panel: Panel) -> str:
    """What the ink means, said for the marks that this chart has."""
    whole = panel.is_curve or panel.is_trajectory
    told = {
        "Shaded: 95 % interval.": panel.has("low") and whole,
        "Bars: 95 % interval.": panel.has("low") and not (whole or panel.is_matrix),
        "Dashed: the level that unrelated data would give.": panel.has("null")
        and not panel.is_matrix,
        **_of_matrix(panel),
        '×: no value, <a href="#notes-and-failures">see why</a>.': panel.has_gaps,
        "Last step; ranks spaced logarithmically; round-off left out.": panel.is_curve,
    }
    return " ".join(sentence for sentence, holds in told.items() if holds)


def _of_matrix(panel: Panel) -> dict[str, bool]:
    nulls = panel.numbers("null")
    level = f"{min(nulls):.3g} to {max(nulls):.3g}" if nulls else ""
    if nulls and f"{min(nulls):.3g}" == f"{max(nulls):.3g}":
        level = f"{min(nulls):.3g}"
    below = min(panel.numbers("value")) < 0
    return {
        "Row: the first of the pair; column: the second.": panel.is_matrix,
        f"Unrelated data would give {level}.": panel.is_matrix and bool(nulls),
        "Colors end at 0 and 1; values below are written as they are.": panel.is_matrix and below,
    }
