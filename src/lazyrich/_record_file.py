"""Files of records: read whole, added to without harm to what is there."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ._record import Definition, Record, from_line
from .errors import UnreadableFile

_STARTS = (b'{"run": ', b'{"definition": ', b'{"started": ', b'{"finished": ')


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


def read(path: Path) -> tuple[list[Record], list[Definition]]:
    """The rows and definitions in a file, but for a last line that was torn.

    Raises:
        UnreadableFile: missing, or with a line that is no record.
    """
    if path.exists() and not path.is_file():
        raise UnreadableFile(f"cannot read records from {path}: it is no regular file.")
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UnreadableFile(f"cannot read records from {path}: {error.strerror}.") from error
    rows: list[Record] = []
    definitions: list[Definition] = []
    for number, line in enumerate(lines, start=1):
        try:
            content = from_line(line)
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
    return rows, definitions


def append(path: Path, lines: Sequence[str]) -> None:
    """Add lines behind the last whole one.

    Raises:
        UnreadableFile: the file is there and holds something else, or cannot be written.
    """
    check_file(path)
    with path.open("ab+") as file:
        torn = _last_line(file)
        whole = _is_json(torn)  # but for its newline
        if not whole:
            file.truncate(file.seek(-len(torn), os.SEEK_END))
        file.write("\n".join([*[""] * whole, *lines, ""]).encode())


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
