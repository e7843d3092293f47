"""Numbers and names as HTML text; everything that a user named is escaped here."""

import html
import math
import re
from collections.abc import Iterable, Sequence
from operator import add

from .._records import Definition, Record

_CITED = re.compile(r"(doi:|arXiv:)([\w./()-]*\w)", re.IGNORECASE)
_SITES = {"doi:": "https://doi.org/", "arxiv:": "https://arxiv.org/abs/"}
_NUMERIC = {"step", "value", "95 % interval", "null level", "n", "d", "seed"}
RICHER = {"low": "lower", "high": "higher", "neither": "no direction"}


def escape(value: object) -> str:
    """Any value as text that is safe between tags and in quoted attributes."""
    return html.escape(str(value))


def number(value: float) -> str:
    """Six significant digits; what is undefined says so."""
    return "undefined" if math.isnan(value) else f"{value:.6g}"


def interval(record: Record) -> str:
    """The 95 % interval; the standard error where that alone is known."""
    if record.low is None or record.high is None:
        error = record.standard_error
        return "" if error is None else f"s.e. {error:.2g}"
    return f"[{record.low:.4g}, {record.high:.4g}]"


def bounds(definition: Definition) -> str:
    """The range of possible values in mathematical notation."""
    low, high = definition.bounds
    left = "(−∞" if math.isinf(low) else f"[{low:g}"
    right = "∞)" if math.isinf(high) else f"{high:g}]"
    return f"{left}, {right}"


def source(definition: Definition) -> str:
    """The citation, with a link where it names a DOI or an arXiv number."""

    def link(match: re.Match[str]) -> str:
        prefix, identifier = match.groups()
        return f'<a href="{_SITES[prefix.lower()]}{identifier}">{prefix}{identifier}</a>'

    return _CITED.sub(link, escape(definition.source))


def titled(measure: str, variant: str) -> str:
    """The measure, and in small letters what tells it from another chart of the same measure."""
    return escape(measure) + (f" <small>{escape(variant)}</small>" if variant else "")


def count(n: int, noun: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def spread(values: Sequence[int]) -> str:
    """One number, or the ends of their range."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """A table whose cells are HTML already; columns of numbers are set to the right.

    A page may hold thousands of rows: closing tags that HTML lets a writer leave out are left out.
    """
    kinds = [" class=n" if name in _NUMERIC else "" for name in head]
    tags = [f"<td{kind}>" for kind in kinds]
    body = "\n".join("<tr>" + "".join(map(add, tags, row)) for row in rows)
    pairs = zip(kinds, head, strict=True)
    columns = "".join(f"<th scope=col{kind}>{name}</th>" for kind, name in pairs)
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{columns}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
