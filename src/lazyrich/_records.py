"""The one thing that all views read: a tidy long table, one value a row. Knows nothing of torch."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Any, overload

from ._record import COLUMNS, Definition, Record, as_line
from ._record_file import append, check_file, read
from ._table import Cells, markup, text
from .errors import UnknownName

__all__ = ["COLUMNS", "Definition", "Record", "Records", "check_file"]


class Records(Sequence[Record]):
    """An immutable table of records with the definitions of what was measured."""

    def __init__(self, rows: Iterable[Record] = (), definitions: Iterable[Definition] = ()) -> None:
        self._rows = tuple(rows)
        self.definitions = {d.measure: d for d in definitions}

    def where(self, **equal: Any) -> "Records":
        """The rows whose columns equal the values given, or are among them for a list.

        Raises:
            UnknownName: a column that does not exist.
        """
        for column in equal:
            if column not in COLUMNS:
                raise UnknownName("column", column, COLUMNS)
        wanted = {c: v if isinstance(v, (list, tuple, set)) else (v,) for c, v in equal.items()}
        return Records(
            (r for r in self if all(getattr(r, c) in v for c, v in wanted.items())),
            self.definitions.values(),
        )

    def matching(self, column: str, patterns: Iterable[str]) -> "Records":
        """The rows whose column matches one of these globs.

        Raises:
            UnknownName: a glob that matches nothing.
        """
        values = self.unique(column)
        hits: set[Any] = set()
        for pattern in patterns:
            literal = pattern.replace("[", "[[]")  # part of an address, as in rnn[0]
            found = [v for v in values if fnmatchcase(v, literal)]
            if not found:
                raise UnknownName(column, pattern, values)
            hits.update(found)
        return self.where(**{column: hits})

    def tag(self, *, run: str | None = None, step: int | None = None) -> "Records":
        """The same rows under another run name or training step."""
        change: dict[str, Any] = {} if run is None else {"run": run}
        change |= {} if step is None else {"step": int(step)}
        return Records((replace(r, **change) for r in self), self.definitions.values())

    def values(self) -> list[float]:
        """The numbers alone, in order."""
        return [r.value for r in self]

    def numbers(self) -> dict[str, float]:
        """Single values by `measure/layer`, as loggers take them; what is undefined is left out."""
        shown = (r for r in self if r.index is None and isfinite(r.value))
        return {f"{r.measure}/{r.layer}": r.value for r in shown}

    def unique(self, column: str) -> list[Any]:
        """The different values of a column, in order of appearance."""
        if column not in COLUMNS:
            raise UnknownName("column", column, COLUMNS)
        return list(dict.fromkeys(getattr(r, column) for r in self))

    def save(self, path: str | Path) -> None:
        """Append to a file of JSON Lines; each line is whole before the next begins.

        A line is either a record or a `{"definition": ...}`. A last line that was torn by a crash
        is cut off first.

        Raises:
            UnreadableFile: the file is there and holds something else, or cannot be written.
        """
        append(Path(path), self.lines())

    def lines(self, known: Collection[str] = ()) -> list[str]:
        """Definitions, but of the measures that are known, and rows, each as a line of JSON."""
        definitions = (d for d in self.definitions.values() if d.measure not in known)
        return [as_line(told) for told in (*definitions, *self)]

    @classmethod
    def load(cls, *paths: str | Path) -> "Records":
        """Read one or more files of records.

        Raises:
            UnreadableFile: a file is missing or holds a line that is not a record. Only the last
                line of a file may be torn: a run that was killed while writing it.
        """
        return sum((cls(*read(Path(p))) for p in paths), cls())

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame (needs the extra `lazyrich[pandas]`)."""
        import pandas

        return pandas.DataFrame([asdict(r) for r in self], columns=COLUMNS)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet (needs the extra `lazyrich[pandas]`)."""
        self.to_pandas().to_parquet(path, index=False)

    def __add__(self, other: "Records") -> "Records":
        definitions = (self.definitions | other.definitions).values()
        return Records((*self._rows, *other._rows), definitions)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> "Records": ...
    def __getitem__(self, index: int | slice) -> "Record | Records":
        if isinstance(index, int):
            return self._rows[index]
        return Records(self._rows[index], self.definitions.values())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Records) and repr(list(self)) == repr(list(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return text(self.cells(limit=60))

    def _repr_html_(self) -> str:
        return markup(self.cells(limit=60))

    def cells(self, limit: int | None = None) -> Cells:
        """The table as strings: header and rows, the points of curves left out, long tables cut."""
        scalars = [r for r in self if r.index is None]
        head = [c for c in ("run", "step") if len({getattr(r, c) for r in scalars}) > 1]
        told = _told_apart(scalars)
        head += ["layer", "measure", *["estimator"] * any(told.values())]
        head += ["value", "95 % interval", "n", "d", "note"]
        short = (replace(r, estimator=told[r.measure, r.estimator]) for r in scalars[:limit])
        rows = [[_cell(r, column) for column in head] for r in short]
        points = len(self) - len(scalars)
        hidden = len(scalars) - len(rows)
        foot = [f"{hidden} more rows"] * (hidden > 0)
        foot += [f"{points} points of curves"] * (points > 0)
        return Cells(head, rows, " and ".join(foot))


def _told_apart(rows: list[Record]) -> dict[tuple[str, str], str]:
    """By measure and estimator what tells it from others that measured the same in one place."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for r in rows:
        kinds.setdefault(r.measure, {})[r.estimator] = r.estimator.split(", ")
    places = {(r.run, r.step, r.layer, r.view, r.measure) for r in rows}
    many = len({(r.run, r.step, r.layer, r.view, r.measure, r.estimator) for r in rows})
    if many == len(places):
        return {(m, estimator): "" for m, each in kinds.items() for estimator in each}
    return {
        (measure, estimator): ", ".join(
            part for part in parts if not all(part in other for other in each.values())
        )
        for measure, each in kinds.items()
        for estimator, parts in each.items()
    }


def _cell(record: Record, column: str) -> str:
    if column == "95 % interval":
        if record.low is None or record.high is None:
            return ""
        return f"[{record.low:.4g}, {record.high:.4g}]"
    if column == "value":
        return f"{record.value:.6g}"
    return str(getattr(record, column))
