"""The page: headline, comparison, a card for each measure, tables, and all that draws them."""

import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from .._records import Definition, Records
from ..errors import LazyrichError
from . import tables
from .cards import card, joined_card
from .charts import CONFIG, Spec, chart
from .decompositions import decompositions
from .geometry import geometry
from .images import images
from .panels import PAIR, Panel, data, panels
from .text import escape, spread

_LIBRARIES = ("vega", "vega-lite", "vega-embed")
_NAMED = 6  # runs that the headline names
# No address is ever asked for: a browser that keeps this rule could not if the page tried.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def report(records: Records, path: str | Path, *, title: str = "lazyrich report") -> Path:
    """Write one HTML page that opens anywhere, offline.

    Args:
        records: of one or more runs and steps; with more than one run they are compared.
        path: the file to write. A missing folder is made; an old file is replaced as a whole.
        title: the heading.

    Returns:
        The path of the page.

    Raises:
        LazyrichError: there are no records, or the file cannot be written.
    """
    if not records:
        raise LazyrichError(
            "a report needs at least one record, and these are none. "
            "Measure first, or check the filters of where() and the file that was loaded."
        )
    path = Path(path)
    _replace(path, _page(records, title))
    return path


def _replace(path: Path, text: str) -> None:
    """Write next to the target and move it there, so that no reader ever meets half a page."""
    part = path.parent / f".{path.name}.{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise LazyrichError(
            f"cannot write the report to {path}: {error.strerror}. "
            "Give the path of a file in a folder that you may write to."
        ) from error


def _page(records: Records, title: str) -> str:
    found = panels(records)
    cards = [card(p, records.definitions.get(p.measure)) for p in found]
    caveats = sum(map(tables.is_caveat, records))
    over = geometry(found)
    features = decompositions(found, len(found) + len(over))
    seen = images(records, len(found) + len(over) + len(features))
    sections = {
        "Overview": _overview(records, caveats),
        "Which run is richer": tables.comparison(found, records.definitions),
        "Capacity and geometry": "".join(map(joined_card, over)),
        "Features one by one": "".join(map(joined_card, features)),
        "Inputs that matter": "".join(map(joined_card, seen)),
        "Measures": "".join(c for c, p in zip(cards, found, strict=True) if not p.is_curve),
        "Curves": "".join(c for c, p in zip(cards, found, strict=True) if p.is_curve),
        "Notes and failures": tables.caveats(records) if caveats else "",
        "All records": tables.numbers(records),
        "Definitions and sources": tables.sources(records),
    }
    shown = {name: body for name, body in sections.items() if body}
    links = "".join(f'<a href="#{_anchor(name)}">{name}</a>' for name in shown)
    bodies = "".join(
        f'<section id="{_anchor(name)}"><h2>{name}</h2>{body}</section>\n'
        for name, body in shown.items()
    )
    specs = _specs(found, records.definitions) + [c.spec for c in (*over, *features, *seen)]
    content = {"config": CONFIG, **data(found), "specs": specs}
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<style>{_file("page.css")}</style></head>
<body><header><h1>{escape(title)}</h1></header><nav aria-label="Sections">{links}</nav>
<main>{bodies}</main>
<footer>{_licenses()}</footer>
<script type="application/json" id="content">{_json(content)}</script>
{_scripts()}<script>{_file("page.js")}</script></body></html>
"""


def _overview(records: Records, caveats: int) -> str:
    alone = (name for name in records.unique("layer") if " -> " not in name)
    layers = {part for name in alone for part in name.split(PAIR)}
    facts = {
        "runs": _listed(records.unique("run")),
        "layers": f"{len(layers):,}",
        "steps": _steps(records.unique("step")),
        "samples": spread([r.n for r in records if r.n] or [0]),
        "measures": f"{len(records.unique('measure')):,}",
        "records": f"{len(records):,}",
    }
    if caveats:
        link = f'<a href="#{_anchor("Notes and failures")}">{caveats:,} of {len(records):,}</a>'
        facts["with a note or a failure"] = link
    items = "".join(f"<div><dt>{name}</dt><dd>{fact}</dd></div>" for name, fact in facts.items())
    return f'<dl class="facts">{items}</dl>'


def _listed(runs: Sequence[str]) -> str:
    names = [*map(escape, runs[:_NAMED]), *["…"] * (len(runs) > _NAMED)]
    return f"{len(runs)} {''.join(f'<small>{name}</small>' for name in names)}"


def _steps(steps: Sequence[int]) -> str:
    return f"{len(steps)} <small>step{'s' * (len(steps) > 1)} {spread(steps)}</small>"


def _specs(found: Sequence[Panel], definitions: dict[str, Definition]) -> list[Spec]:
    directions = {measure: d.richer for measure, d in definitions.items()}
    return [chart(p, directions.get(p.measure, "neither")) for p in found]


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _json(content: object) -> str:
    """JSON that cannot end the script element that holds it."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _scripts() -> str:
    """The libraries without the addresses of their source maps, which a debugger would ask for."""
    builds = (
        _file(f"vega/{name}.min.js").partition("//# sourceMappingURL")[0] for name in _LIBRARIES
    )
    return "".join(f"<script>{build}</script>\n" for build in builds)


def _licenses() -> str:
    texts = (_file(f"vega/LICENSE-{name}") for name in (*_LIBRARIES, "bundled"))
    told = "All data, styles and scripts are inside this file; it asks for nothing from outside."
    summary = "<summary>Licenses of the drawing libraries</summary>"
    return f"<p>{told}</p><details>{summary}<pre>{escape(chr(10).join(texts))}</pre></details>"
