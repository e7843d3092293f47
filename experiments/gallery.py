"""One page for each experiment and one over all of them."""

from collections.abc import Sequence
from html import escape
from math import isfinite
from pathlib import Path

import lazyrich as lz
from lazyrich import Records

from .harness import Experiment
from .verdicts import Verdict

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; width: 100% } td, th { padding: .4em .7em; text-align: left;
border-top: 1px solid #ddd; vertical-align: top } th { font-weight: normal; color: #555 }
td.number { white-space: nowrap; font-variant-numeric: tabular-nums }
h2 { margin: 2em 0 .2em } p { margin: .3em 0; color: #444 }
.holds { color: #00724f } .no { color: #a03c00 } .other { color: #666 }
"""
_COLORS = {"holds": "holds", "holds in sign": "holds", "does not hold": "no"}


def pages(experiment: Experiment, records: Records, folder: Path) -> Path:
    """The report of one experiment's records, and its verdicts beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    lz.report(records, folder / f"{experiment.key}.html", title=experiment.expected.title)
    return _write(folder / f"{experiment.key}-verdicts.html", [_section(experiment, records)])


def gallery(found: Sequence[tuple[Experiment, Records]], folder: Path) -> Path:
    """All verdicts on one page, with links to the reports."""
    for experiment, records in found:
        pages(experiment, records, folder)
    return _write(folder / "index.html", [_section(e, records) for e, records in found])


def results(found: Sequence[tuple[Experiment, Records]]) -> str:
    """All verdicts as Markdown, for `experiments/README.md`."""
    parts = []
    for experiment, records in found:
        told = experiment.expected
        rows = [
            f"| {' '.join(filter(None, [v.claim.says, v.claim.not_recoverable]))} "
            f"| {v.claim.paper} | {_ours(v)} | {v.word} |"
            for v in experiment.verdicts(records)
        ]
        head = ["| claim | paper | ours | verdict |", "|---|---|---|---|"]
        title = f"### [{told.title}]({experiment.key}/README.md)"
        parts.append("\n".join([title, "", told.scale, "", *head, *rows, ""]))
    return "\n".join(parts)


def lines(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as text."""
    return "\n".join(
        f"  {v.word:16} {_ours(v):28} paper: {v.claim.paper or '-':12} {v.claim.says}"
        for v in verdicts
    )


def _section(experiment: Experiment, records: Records) -> str:
    told = experiment.expected
    rows = "".join(_row(v) for v in experiment.verdicts(records))
    heads = "".join(f"<th>{h}</th>" for h in ("claim", "paper", "ours", "seeds", "verdict"))
    return (
        f'<h2 id="{experiment.key}"><a href="{experiment.key}.html">{escape(told.title)}</a></h2>'
        f"<p>{escape(told.source)}</p><p>{escape(told.scale)}</p>"
        f"<table><tr>{heads}</tr>{rows}</table>"
    )


def _row(v: Verdict) -> str:
    why = f"<br>{escape(v.claim.not_recoverable)}" if v.claim.not_recoverable else ""
    return (
        f"<tr><td>{escape(v.claim.says)}{why}</td><td>{escape(v.claim.paper)}</td>"
        f'<td class="number">{_ours(v)}</td><td>{len(v.values) or ""}</td>'
        f'<td class="{_COLORS.get(v.word, "other")}">{v.word}</td></tr>'
    )


def _ours(v: Verdict) -> str:
    if not isfinite(v.mean):
        return ""
    interval = f" [{v.low:.3g}, {v.high:.3g}]" if len(v.values) > 1 else ""
    failed = f", {v.failed} seeds failed" if v.failed else ""
    return f"{v.mean:.3g}{interval}{failed}"


def _write(path: Path, sections: Sequence[str]) -> Path:
    body = "".join(sections)
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Reproductions</title>'
        f"<style>{_STYLE}</style></head><body><h1>Reproductions</h1>"
        "<p>Means over seeds with 95 % intervals. A claim holds where our mean lies where the "
        "paper's does; in sign, where only the direction is the paper's.</p>"
        f"{body}</body></html>\n",
        encoding="utf-8",
    )
    return path
