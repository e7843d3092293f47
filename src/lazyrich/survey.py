"""Many models, measured in any pool of workers, each of them once, whatever is killed when."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import nan
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import torch
from torch import nn

from ._capture import Capture
from ._engine import Model, measure
from ._files import load_weights
from ._journal import Journal
from ._records import Definition, Record, Records
from .errors import LazyrichError

__all__ = ["Checkpoint", "Executor", "survey"]

Make = Callable[[], Model]
PARAMETERS = Definition(
    "parameters",
    "The number of parameters, each counted once.",
    "",
    "",
    "neither",
    (0, float("inf")),
)
_one_at_a_time = Lock()


class Result(Protocol):
    """What will have come of a task."""

    def result(self) -> Any:
        """Wait for it; raises what the task has raised."""


class Executor(Protocol):
    """A pool of workers: of concurrent.futures, loky, dask.distributed or submitit."""

    def submit(self, function: Callable[[Any], Any], task: Any, /) -> Result:
        """Have a worker call the function on the task."""


@dataclass(frozen=True)
class Checkpoint:
    """A model with saved weights; call it to have it made.

    Args:
        make: the model, with weights that will be replaced.
        path: a state dict, see `lazyrich measure --weights`.
    """

    make: Callable[[], nn.Module]
    path: str | Path

    def __call__(self) -> nn.Module:
        model = self.make()
        load_weights(model, Path(self.path))
        return model


def survey(
    models: Mapping[str, Make],
    data: Callable[[], Iterable[Any]] | Iterable[Any],
    measures: Sequence[str] | str | None = None,
    *,
    journal: str | Path,
    executor: Executor | None = None,
    layers: str | Sequence[str] | None = None,
    interval: int = 0,
    threads: int = 1,
    seed: int = 0,
) -> Records:
    """Measure many models, each in a worker that makes it, measures it and forgets it.

    What a model has given is on the disk before the next one is taken. Call it again after a crash,
    and only what is missing is done: a model that is in the journal is not made again, and those
    that failed are tried again. Models go by their names: a name stands for one model for ever.

    Args:
        models: by name what makes each: a function without arguments, or a `Checkpoint`. Whatever
            goes to another process must be picklable: functions of modules, no lambdas.
        data: what makes the loader in the worker, or a loader that goes to each of them.
        measures: names and globs of the catalogue; None for all that the data allows.
        journal: a file of records, which may hold others; `Records.load` reads it.
        executor: a pool of workers; None for this process. A pool of threads is served, but torch
            has one stream of random numbers for all threads, so that they take turns.
        layers: patterns of addresses; None for every module without children, the penultimate
            features and the outputs. A model that is made as a `Capture` says so itself.
        interval: jackknife blocks; 0 for none.
        threads: of torch, in each worker.
        seed: of all that models and data draw.

    Returns:
        The records of all these models, the number of parameters among them, in the order of
        `models`; for a model that failed, a row with the reason and status `failed`, which the
        journal does not keep.

    Raises:
        LazyrichError: no models, or measures that are no names.
        UnreadableFile: the journal is something else, or cannot be written.
    """
    if not models:
        raise LazyrichError("no model was given: pass what makes them by name.")
    names = [measures] if isinstance(measures, str) else measures
    if names is not None and not all(isinstance(name, str) for name in names):
        raise LazyrichError("measures go to workers by name: give names, no Measure objects.")
    failed: dict[str, Record] = {}
    with closing(Journal(journal, None)) as file:
        tasks = [
            _Task(name, make, data, names, layers, interval, threads, seed)
            for name, make in models.items()
            if name not in file.runs
        ]
        for name, found in _each(tasks, executor):
            if isinstance(found, Exception):
                failed[name] = _failure(name, found, seed)
            else:
                file.append(found, 0, name)
    kept = Records.load(journal)
    by_run: dict[str, list[Record]] = {name: [] for name in models}
    for record in kept:
        by_run.get(record.run, []).append(record)
    rows = [row for name in models for row in by_run[name] or [failed[name]]]
    return Records(rows, kept.definitions.values())


@dataclass(frozen=True)
class _Task:
    """What a worker needs to know."""

    name: str
    make: Make
    data: Callable[[], Iterable[Any]] | Iterable[Any]
    measures: Sequence[str] | None
    layers: str | Sequence[str] | None
    interval: int
    threads: int
    seed: int


def _each(
    tasks: Sequence[_Task], executor: Executor | None
) -> Iterator[tuple[str, Records | Exception]]:
    """What came of each task, as soon as it is known where the pool can say so."""
    if executor is None:
        yield from ((task.name, _caught(_measured, task)) for task in tasks)
        return
    waiting: dict[Any, str] = {}
    for task in tasks:
        submitted = _caught(executor.submit, _measured, task)
        if isinstance(submitted, Exception):  # a pool that broke takes no more
            yield task.name, submitted
        else:
            waiting[submitted] = task.name
    done = as_completed(waiting) if all(isinstance(f, Future) for f in waiting) else waiting
    for future in done:
        yield waiting[future], _caught(future.result)


def _caught(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or the exception that it raised."""
    try:
        return call(*arguments)
    except Exception as error:
        return error


def _measured(task: _Task) -> Records:
    """The work itself, in the worker."""
    with _one_at_a_time, _threads(task.threads):
        model = task.make()
        data = task.data() if callable(task.data) else task.data
        found = measure(
            model,
            data,
            task.measures,
            layers=task.layers,
            interval=task.interval,
            seed=task.seed,
            run=task.name,
            progress=False,
        )
        network = model.model if isinstance(model, Capture) else model
        count = sum(p.numel() for p in network.parameters())
    row = Record(
        task.name, 0, "model", "", "parameters", None, "", float(count), d=count, seed=task.seed
    )
    return Records([row], [PARAMETERS]) + found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _failure(name: str, error: Exception, seed: int) -> Record:
    note = f"{type(error).__name__}: {error}"
    return Record(
        name, 0, "model", "", "parameters", None, "", nan, seed=seed, status="failed", note=note
    )
