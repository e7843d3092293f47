"""The file of a run in progress: steps are added whole, and none twice, whatever is killed when."""

import json
import os
from pathlib import Path

from ._records import Records
from .errors import UnreadableFile


class Journal:
    """Appends records to a file, step by step of a run; one process writes at a time.

    Each step stands between the marks `{"started": {"run": ..., "step": ...}}` and `{"finished":
    ...}`. A step that was started and not finished was being written when the process was killed;
    it is cut off on opening.

    Args:
        run: the one that is written; None for any of them, which `append` is told.

    Attributes:
        finished: the steps of this run that the file holds.
        runs: the steps that the file holds of any run.

    Raises:
        UnreadableFile: the file is there and is not one of records, or cannot be written.
    """

    def __init__(self, path: str | Path, run: str | None) -> None:
        self._path, self._run = Path(path), run
        self._known: set[str] = set()
        self.runs: dict[str, set[int]] = {}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise UnreadableFile(f"cannot write to {path}: {error.strerror}.") from error
        try:
            self._resume()
        except BaseException:
            self.close()
            raise

    @property
    def finished(self) -> set[int]:
        return self.runs.get(self._run or "", set())

    def append(self, records: Records, step: int, run: str | None = None) -> None:
        """Add the rows of a step between its marks, and wait until they are on the disk."""
        name = self._run if run is None else run
        assert name is not None, "a journal of any run is told which"
        at = {"run": name, "step": step}
        lines = records.lines(self._known)
        whole = [json.dumps({"started": at}), *lines, json.dumps({"finished": at}), ""]
        self._file.write("\n".join(whole).encode())
        os.fsync(self._file.fileno())
        self._known |= records.definitions.keys()
        self.runs.setdefault(name, set()).add(step)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _resume(self) -> None:
        """Read what is there, and cut off a step that was never finished."""
        self._known |= Records.load(self._path).definitions.keys()  # or it is no file of ours
        open_at: int | None = None
        position = 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            mark = json.loads(line) if line.endswith(b"\n") and line.strip() else {}
            begun, ended = mark.get("started"), mark.get("finished")
            if begun and self._run in (None, begun["run"]):
                open_at = position
            elif ended:
                self.runs.setdefault(ended["run"], set()).add(ended["step"])
                open_at = None if self._run in (None, ended["run"]) else open_at
            elif not mark and open_at is None:
                open_at = position  # a line that was torn before its step had a mark
            position += len(line)
        if open_at is not None:
            self._file.truncate(open_at)
            self._known = set(Records.load(self._path).definitions)
