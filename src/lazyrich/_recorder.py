"""Measuring a model again and again while it is trained."""

import hashlib
import logging
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import distributed

from ._cache import fingerprint
from ._capture import Capture
from ._collection import Collection, collect
from ._engine import Model, as_capture
from ._evaluation import Heading, Snapshot
from ._journal import Journal
from ._ranks import gathered
from ._records import Records
from ._schedules import Schedule, log_spaced
from ._source import Source
from ._tensor_file import write_tensors
from ._views import View
from ._wanted import Chosen, Wanted
from .errors import LazyrichError, NonFinite
from .statistics import Points, Weights

log = logging.getLogger("lazyrich")


class Recorder:
    """Measures a model on a fixed probe at chosen steps of its training.

    Use it as a context and call `step` in the loop, before the update of that step. Records go to
    a file of JSON Lines as they come: whatever is killed, the file stays readable and lacks at most
    the step that was being written. Started again with the same path and run, it goes on there and
    records no step twice.

    The first step that is recorded is the start of training, with which weights and features are
    compared; it is kept beside the file, in `<name>.start.safetensors`.

    Under torch.distributed every process must call `step`; the first one writes.

    Args:
        model: any module, or a `Capture` that says how to read it. It comes back from every step
            as it was.
        probe: data as `measure` takes it, the same at every step: some hundred samples. What can be
            read only once is kept in memory.
        path: the file, made with its folder or continued.
        measures: names, globs or measures of the catalogue; None for all that the probe allows, but
            those that draw samples themselves, read the data twice or depend on single units, such
            as `capacity`, `nc4` and `effective_dimension_both_debiased`: ask for them by name.
        when: the steps to record, as a function of the step; about six for every factor of ten
            unless told otherwise.
        layers, view: as `measure` takes them.
        interval: jackknife blocks of probe samples, 0 for none.
        run: name of the run; the file's name unless told otherwise.
        seed: of all that model, probe or measures draw.
        writer: where to log single numbers besides: a TensorBoard SummaryWriter, or a W&B run.

    Raises:
        UnreadableFile: the path cannot be written, or holds something else.
    """

    def __init__(
        self,
        model: Model,
        probe: Iterable[Any],
        path: str | Path,
        measures: Chosen = None,
        *,
        when: Schedule | None = None,
        layers: str | Sequence[str] | None = None,
        view: View | None = None,
        interval: int = 0,
        run: str | None = None,
        seed: int = 0,
        writer: Any = None,
    ) -> None:
        self.path = Path(path)
        self.run = self.path.stem if run is None else run
        self._capture: Capture = as_capture(model, layers, view)
        if when is not None and not callable(when):
            raise LazyrichError(f"when={when!r}: a function of the step, such as lz.every(10).")
        if writer is not None and not (hasattr(writer, "add_scalar") or hasattr(writer, "log")):
            raise LazyrichError(
                f"writer of type {type(writer).__name__}: needs add_scalar(tag, value, step) as "
                "TensorBoard's has, or log(numbers, step=step) as a W&B run has."
            )
        self._wanted = Wanted(measures, interval, None, None, seed, from_start=True)
        self._when = when or log_spaced(10**9, 55)
        self._probe = list(probe) if isinstance(probe, Iterator) else probe
        self._seed, self._writer = seed, writer
        self._journal: Journal | None = None
        self._start: Snapshot | None = None
        self._finished: set[int] | None = None

    def __enter__(self) -> "Recorder":
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; a later `step` opens it again."""
        if self._journal is not None:
            self._journal.close()
        self._journal = self._finished = None

    @property
    def records(self) -> Records:
        """All that the file holds of this run."""
        return Records.load(self.path).where(run=self.run)

    def step(self, step: int) -> Records:
        """Measure now if this step is wanted and was not recorded yet.

        Args:
            step: the number to record, the user's own: with gradient accumulation that of the
                update, not of the batch.

        Returns:
            What was added: empty if the step was not wanted. NaN or infinity in the model are rows
            with the reason, and training goes on.
        """
        step = _whole(step)
        finished = self._open()
        if not self._when(step) or step in finished:
            return Records()
        heading = Heading(self.run, self._capture.view, self._seed, step)
        try:
            found = collect({self.run: self._capture}, self._wanted, self._probe, self._seed)
            records = self._measured(found[self.run], heading)
        except NonFinite as error:
            log.warning("step %d of run %r: %s", step, self.run, error)
            records = self._wanted.failures(heading, str(error))
        if self._journal is not None:
            self._journal.append(records, step)
            self._log(records, step)
        finished.add(step)
        return records

    def _measured(self, found: Collection, heading: Heading) -> Records:
        weights = self._capture.weights()
        if self._start is None and not self._finished:
            self._start = Snapshot(weights.copy(), _points(found))
            if self._journal is not None:
                _save(self._start, self._beside, self._fingerprint())
        return self._wanted.records(
            found.sums,
            heading,
            found.problems,
            found.cautions,
            weights,
            self._start,
            found.heads,
        )

    @property
    def _beside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.run}.start.safetensors")

    def _open(self) -> set[int]:
        """The steps that are recorded; the first process opens the file and tells the others."""
        if self._finished is None:
            self._finished = gathered(self._open_here)[0]
            if self._finished and self._start is None and self._journal is not None:
                try:
                    self._check_start()
                except LazyrichError:
                    self.close()
                    raise
            if self._finished and self._start is None:
                self._start = _load(self._beside)
        return self._finished

    def _check_start(self) -> None:
        """Refuse to go on with a run on another probe, or with another model."""
        if not self._beside.exists():
            return
        with safe_open(self._beside, "pt") as file:
            probe = (file.metadata() or {}).get("probe")
            shapes = {
                key.removeprefix("weights/"): tuple(file.get_slice(key).get_shape())
                for key in file.keys()  # noqa: SIM118, no mapping
                if key.startswith("weights/")
            }
        now = self._capture.weights().tensors
        if shapes != {name: tuple(tensor.shape) for name, tensor in now.items()}:
            raise self._another("model, with weights of other names or shapes")
        if probe != self._fingerprint():
            raise self._another("probe")

    def _another(self, what: str) -> LazyrichError:
        return LazyrichError(
            f"{self.path} holds run {self.run!r}, which was started with another {what}. Give this "
            "one another name with run=..., or seed the probe so that it is the same each time."
        )

    def _fingerprint(self) -> str:
        """A hash of the probe: what is recorded on another one cannot be compared."""
        digest = hashlib.blake2b(digest_size=16)
        for item in Source(self._probe, self._seed).items():
            digest.update(fingerprint(self._capture.inputs(item)).encode())
        return digest.hexdigest()

    def _open_here(self) -> set[int]:
        if distributed.is_available() and distributed.is_initialized() and distributed.get_rank():
            return set()
        self._journal = Journal(self.path, self.run)
        return set(self._journal.finished)

    def _log(self, records: Records, step: int) -> None:
        if hasattr(self._writer, "add_scalar"):
            for tag, value in records.numbers().items():
                self._writer.add_scalar(tag, value, step)
        elif self._writer is not None:
            self._writer.log(records.numbers(), step=step)


def _whole(step: Any) -> int:
    """A step as a number, also from numpy and torch."""
    try:
        number = operator.index(step)
    except TypeError as error:
        raise LazyrichError(f"step {step!r} is no whole number.") from error
    if number < 0 or isinstance(step, bool):
        raise LazyrichError(f"step {step!r}: steps are counted from 0.")
    return number


def _points(found: Collection) -> dict[str, Points]:
    """The rows of each layer, where a measure needs them."""
    return {
        name: layer.whole(layer.blocks())[Points]
        for name, layer in found.sums.items()
        if Points in layer.kinds
    }


def _save(start: Snapshot, path: Path, probe: str) -> None:
    """Write the start whole or not at all."""
    tensors = {f"weights/{name}": tensor for name, tensor in start.weights.tensors.items()}
    for layer, points in start.points.items():
        tensors |= {f"points/{layer}/x": points.x, f"points/{layer}/samples": points.samples}
    write_tensors(path, tensors, {"probe": probe}, "the start of the run")


def _load(path: Path) -> Snapshot | None:
    if not path.exists():
        log.warning("%s is gone: the run goes on without comparing with its start", path)
        return None
    weights: dict[str, torch.Tensor] = {}
    points: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in load_file(path).items():
        part, name = key.split("/", 1)
        if part == "weights":
            weights[name] = tensor
        else:
            layer, _, field = name.rpartition("/")
            points.setdefault(layer, {})[field] = tensor
    kept = {layer: Points(p["x"], p["samples"]) for layer, p in points.items()}
    return Snapshot(Weights(weights), kept)
