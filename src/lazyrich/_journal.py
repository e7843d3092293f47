"""The file of a run in progress: steps are added whole, and none twice, whatever is killed when."""

import json
import os
from pathlib import Path

from ._records import Records
from .errors import UnreadableFile


class Journal:
    """Appends the records of one run to a file, step by step; one process writes at a time.

    Each step stands between the marks `{"started": {"run": ..., "step": ...}}` and `{"finished":
    ...}`. A step that was started and not finished was being written when the process was killed;
    it is cut off on opening.

    Attributes:
        finished: the steps of this run that the file holds.

    Raises:
        UnreadableFile: the file is there and is not one of records, or cannot be written.
    """

    def __init__(self, path: str | Path, run: str) -> None:
        self._path, self._run = Path(path), run
        self._known: set[str] = set()
        self.finished: set[int] = set()
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

    def append(self, records: Records, step: int) -> None:
        """Add the rows of a step between its marks, and wait until they are on the disk."""
        at = {"run": self._run, "step": step}
        lines = records.lines(self._known)
        whole = [json.dumps({"started": at}), *lines, json.dumps({"finished": at}), ""]
        self._file.write("\n".join(whole).encode())
        os.fsync(self._file.fileno())
        self._known |= records.definitions.keys()
        self.finished.add(step)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _resume(self) -> None:
        """Read what is there, and cut off a step of this run that was never finished."""
        self._known |= Records.load(self._path).definitions.keys()  # or it is no file of ours
        open_at: int | None = None
        position = 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            mark = json.loads(line) if line.endswith(b"\n") and line.strip() else {}
            if mark.get("started", {}).get("run") == self._run:
                open_at = position
            elif mark.get("finished", {}).get("run") == self._run:
                open_at = None
                self.finished.add(mark["finished"]["step"])
            elif not mark and open_at is None:
                open_at = position  # a line that was torn before its step had a mark
            position += len(line)
        if open_at is not None:
            self._file.truncate(open_at)
            self._known = set(Records.load(self._path).definitions)
