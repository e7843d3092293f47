"""When to measure during training: functions from step to yes or no."""

from collections.abc import Callable

from .errors import LazyrichError

Schedule = Callable[[int], bool]


def every(steps: int) -> Schedule:
    """Step 0 and every `steps` after it.

    Raises:
        LazyrichError: fewer than one.

    >>> [step for step in range(10) if every(4)(step)]
    [0, 4, 8]
    """
    if steps < 1:
        raise LazyrichError(f"every({steps}): needs 1 step or more.")
    return lambda step: step % steps == 0


def log_spaced(last: int, points: int = 20) -> Schedule:
    """Step 0, the last step, and about `points` in between, evenly on a log scale.

    Raises:
        LazyrichError: fewer than one step or point.

    >>> [step for step in range(101) if log_spaced(100, 5)(step)]
    [0, 1, 3, 10, 32, 100]
    """
    if last < 1 or points < 1:
        raise LazyrichError(f"log_spaced({last}, {points}): needs 1 step and 1 point or more.")
    chosen = {0, last} | {round(last ** (k / max(points - 1, 1))) for k in range(points)}
    return chosen.__contains__
