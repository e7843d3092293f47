"""The same on all processes of the default group, or on the only one."""

from collections.abc import Callable
from typing import TypeVar

from torch import distributed

from .errors import LazyrichError

T = TypeVar("T")


def gathered(produce: Callable[[], T]) -> list[T]:
    """What each process produces, in the order of ranks, on every process.

    Every process must call it. An error on one is an error on all, so that none waits for ever.

    Raises:
        LazyrichError: another process failed; what it raised, if it was this one.
    """
    if not several():
        return [produce()]
    mine: T | None = None
    failure: Exception | None = None
    try:
        mine = produce()
    except Exception as error:
        failure = error
    everything: list[tuple[T, str]] = [None] * distributed.get_world_size()  # type: ignore[list-item]
    distributed.all_gather_object(everything, (mine, "" if failure is None else repr(failure)))
    if failure is not None:
        raise failure
    for rank, (_, message) in enumerate(everything):
        if message:
            raise LazyrichError(f"rank {rank} failed while measuring: {message}")
    return [value for value, _ in everything]


def several() -> bool:
    """Whether there is more than one process."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
