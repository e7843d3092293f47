"""The one thing that all views read: a tidy long table, one value a row. Knows nothing of torch."""

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, overload

from ._table import Cells, markup, text
from .errors import UnknownName, UnreadableFile


@dataclass(frozen=True, slots=True)
class Record:
    """One measured value and all that is needed to judge it.

    Attributes:
        run: name of the run or model.
        step: training step, 0 where there is none.
        layer: name of the layer, `first -> last` for a measure between two.
        view: how maps and tokens became samples (`mean`, `flatten`, `tokens`, `last`).
        measure: name in the catalogue.
        index: rank on a curve (1 is the largest eigenvalue); None for a single number.
        estimator: which estimator, with the options that were chosen.
        value: the number; NaN where it is undefined or failed, then `note` says why.
        standard_error: where it was asked for or is sampled.
        low, high: ends of the 95 % interval.
        null: the level that unrelated data would give, for similarities.
        n, d: samples and units that the value is made of.
        dtype: precision of the products; sums and eigenvalues are float64.
        seed: the seed of all that was drawn.
        status: `ok`; `caution` where the note must be read first; `undefined` or `failed`.
        note: the reason, the caution, or what stands behind the value.
    """

    run: str
    step: int
    layer: str
    view: str
    measure: str
    index: int | None
    estimator: str
    value: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    n: int = 0
    d: int = 0
    dtype: str = ""
    seed: int = 0
    status: str = "ok"
    note: str = ""


COLUMNS = tuple(f.name for f in fields(Record))
_STARTS = (b'{"run": ', b'{"definition": ', b'{"started": ', b'{"finished": ')
_NUMBERS = ("value", "standard_error", "low", "high", "null")


@dataclass(frozen=True, slots=True)
class Definition:
    """What a measure is: travels with the records, so that a page can be drawn without the code."""

    measure: str
    summary: str
    formula: str
    source: str
    richer: str
    bounds: tuple[float, float]


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
        shown = (r for r in self if r.index is None and math.isfinite(r.value))
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
        path = Path(path)
        check_file(path)
        lines = self.lines()
        with path.open("ab+") as file:
            torn = _last_line(file)
            if _is_json(torn):  # whole but for its newline
                lines.insert(0, "")
            else:
                file.truncate(file.seek(-len(torn), os.SEEK_END))
            file.write("\n".join([*lines, ""]).encode())

    def lines(self, known: Collection[str] = ()) -> list[str]:
        """Definitions, but of the measures that are known, and rows, each as a line of JSON."""
        definitions = [
            json.dumps({"definition": asdict(d) | {"bounds": list(map(str, d.bounds))}})
            for d in self.definitions.values()
            if d.measure not in known
        ]
        return definitions + [json.dumps(_jsonable(r), allow_nan=False) for r in self]

    @classmethod
    def load(cls, *paths: str | Path) -> "Records":
        """Read one or more files of records.

        Raises:
            UnreadableFile: a file is missing or holds a line that is not a record. Only the last
                line of a file may be torn: a run that was killed while writing it.
        """
        return sum((_read(Path(p)) for p in paths), cls())

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
        head += ["layer", "measure", "value", "95 % interval", "n", "d", "note"]
        rows = [[_cell(r, column) for column in head] for r in scalars[:limit]]
        points = len(self) - len(scalars)
        hidden = len(scalars) - len(rows)
        foot = [f"{hidden} more rows"] * (hidden > 0)
        foot += [f"{points} points of curves"] * (points > 0)
        return Cells(head, rows, " and ".join(foot))


def _cell(record: Record, column: str) -> str:
    if column == "95 % interval":
        if record.low is None or record.high is None:
            return ""
        return f"[{record.low:.4g}, {record.high:.4g}]"
    if column == "value":
        return f"{record.value:.6g}"
    return str(getattr(record, column))


def _jsonable(record: Record) -> dict[str, Any]:
    """NaN and infinity are no JSON: NaN becomes null, infinity a string that float() reads."""
    row: dict[str, Any] = {name: getattr(record, name) for name in COLUMNS}
    for name in _NUMBERS:
        value = row[name]
        if value is not None and not math.isfinite(value):
            row[name] = None if math.isnan(value) else str(value)
    return row


def _record(row: dict[str, Any]) -> Record:
    for name in _NUMBERS:
        if isinstance(row.get(name), str):
            row[name] = float(row[name])
    if row["value"] is None:
        row["value"] = math.nan
    record = Record(**row)
    for name, kind in (("layer", str), ("measure", str), ("run", str), ("step", int)):
        if not isinstance(getattr(record, name), kind):
            raise TypeError(f"its {name} is no {kind.__name__}")
    if not all(isinstance(row.get(n), (int, float, type(None))) for n in _NUMBERS):
        raise TypeError("one of its numbers is none")
    return record


def _last_line(file: BinaryIO) -> bytes:
    """What stands behind the last newline: nothing, or a line that was torn."""
    end = file.seek(0, os.SEEK_END)
    found = b""
    while end > 0 and b"\n" not in found:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start) + found
        end = start
    return found.rpartition(b"\n")[2]


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def check_file(path: Path) -> None:
    """Refuse a path that records cannot be added to: what stands there is somebody's.

    Raises:
        UnreadableFile: no regular file, none of records, or none that may be written.
    """
    try:
        if not path.exists():
            path.open("ab").close()
            path.unlink()
            return
        if not path.is_file():
            raise UnreadableFile(f"cannot write records to {path}: it is no regular file.")
        with path.open("rb+") as file:
            head = file.read(16)
    except OSError as error:
        raise UnreadableFile(f"cannot write records to {path}: {error.strerror}.") from error
    if head and not head.startswith(_STARTS):
        raise UnreadableFile(f"{path} holds something else than records, and is left as it is.")


def _read(path: Path) -> Records:
    if path.exists() and not path.is_file():
        raise UnreadableFile(f"cannot read records from {path}: it is no regular file.")
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UnreadableFile(f"cannot read records from {path}: {error.strerror}.") from error
    rows, definitions = [], []
    for number, line in enumerate(lines, start=1):
        try:
            content = _content(line)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if number == len(lines) and line.startswith(b'{"'):
                break  # no newline behind it: torn by a crash while being written
            raise UnreadableFile(
                f"{path}, line {number} is not a record of lazyrich ({error}). "
                "Records are JSON Lines as written by Records.save()."
            ) from error
        if isinstance(content, Record):
            rows.append(content)
        elif content is not None:
            definitions.append(content)
    return Records(rows, definitions)


def _content(line: bytes) -> Record | Definition | None:
    """What a line says; None for an empty one and for a Recorder's marks around a step."""
    if not line.strip():
        return None
    content = json.loads(line)
    if "definition" in content:
        definition = content["definition"]
        low, high = map(float, definition.pop("bounds"))
        return Definition(**definition, bounds=(low, high))
    return None if content.keys() & {"started", "finished"} else _record(content)
