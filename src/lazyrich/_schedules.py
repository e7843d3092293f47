"""When to measure during training: functions from step to yes or no."""

from collections.abc import Callable

Schedule = Callable[[int], bool]


def every(steps: int) -> Schedule:
    """Step 0 and every `steps` after it.

    >>> [step for step in range(10) if every(4)(step)]
    [0, 4, 8]
    """
    return lambda step: step % steps == 0


def log_spaced(last: int, points: int = 20) -> Schedule:
    """Step 0, the last step, and about `points` in between, evenly on a log scale.

    >>> [step for step in range(101) if log_spaced(100, 5)(step)]
    [0, 1, 3, 10, 32, 100]
    """
    chosen = {0, last} | {round(last ** (k / max(points - 1, 1))) for k in range(points)}
    return chosen.__contains__
