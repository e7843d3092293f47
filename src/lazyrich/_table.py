"""A table of strings as text for a terminal and as HTML for a notebook or page."""

import html
from collections.abc import Sequence
from typing import NamedTuple

_LEFT = {
    "run",
    "layer",
    "measure",
    "estimator",
    "note",
    "name",
    "kind",
    "source",
    "summary",
    "shape",
}


class Cells(NamedTuple):
    """A header, rows of as many cells, and a line about what is not shown."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: str = ""


def text(cells: Cells) -> str:
    """Aligned columns: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(cells.head, *cells.rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for cell, width, name in zip(row, widths, cells.head, strict=True)
        ).rstrip()
        for row in (cells.head, *cells.rows)
    ]
    return "\n".join(lines + [f"… {cells.foot}"] * bool(cells.foot))


def markup(cells: Cells) -> str:
    """The same as an HTML table; every cell is escaped."""

    def row(tag: str, values: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(v)}</{tag}>' for v in values)}</tr>"

    body = "".join(row("td", r) for r in cells.rows)
    foot = f"<caption>{html.escape(cells.foot)}</caption>" if cells.foot else ""
    return f"<table>{foot}{row('th', cells.head)}{body}</table>"
