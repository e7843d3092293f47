"""How fast a network learns beside how fast its tangent kernel moves."""

from collections.abc import Mapping
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

from ..errors import LazyrichError


class TimeScales(NamedTuple):
    """In units of flow time, learning rate times steps; infinite where it was never reached.

    Attributes:
        optimization: T_opt, when the loss is down to the share that was asked for.
        kernel: T_NTK, when the kernel has changed by one half of its size.
        first_kernel: T_NTK at the pace of the first recorded change. Where gates of ReLU flip, the
            kernel moves faster than this says.
        ratio: T_opt over T_NTK at the first pace; near 0 the run was lazy. The learning rate
            cancels in it.
    """

    optimization: float
    kernel: float
    first_kernel: float
    ratio: float


def time_scales(
    losses: Mapping[int, float],
    changes: Mapping[int, float],
    rate: float,
    *,
    share: float = 0.01,
    moved: float = 0.5,
) -> TimeScales:
    r"""T_opt and T_NTK of a recorded run of gradient descent.

    $T_{\text{opt}} = \min\{t : L(t) \le \epsilon L(0)\}$,
    $T_{\text{NTK}} = \min\{t : \lVert K_t - K_0 \rVert \ge \tfrac12 \lVert K_0 \rVert\}$

    Between recorded steps both are interpolated linearly. Compare runs at the same share, and over
    widths: a single ratio has a constant in it that depends on the task.

    Reference: the lazy regime as in Chizat, Oyallon & Bach 2019, arXiv:1812.07956.

    Args:
        losses: by step, from step 0.
        changes: `ntk_change` by step; step 0 has none and may be left out.
        rate: learning rate, the same at every step.
        share: epsilon, of the loss at step 0.
        moved: share of its size by which a kernel has changed.

    Raises:
        LazyrichError: no loss at step 0, no change after it, or numbers that mean nothing.
    """
    if not losses.get(0, 0) > 0 or not all(isfinite(v) for v in losses.values()):
        raise LazyrichError("losses: a loss above zero at step 0 is needed, and finite ones after.")
    later = {step: value for step, value in changes.items() if step > 0}
    if not later or not all(isfinite(v) and v >= 0 for v in later.values()):
        raise LazyrichError("changes: ntk_change at one step after 0 or more is needed, finite.")
    if not rate > 0 or not 0 < share < 1 or not moved > 0:
        raise LazyrichError(
            f"rate={rate}, share={share}, moved={moved}: a rate and a change above 0, and a share "
            "between 0 and 1."
        )
    falling = {step: -loss for step, loss in losses.items()}
    optimization = rate * _reached(falling, -share * losses[0])
    kernel = rate * _reached({0: 0.0} | later, moved)
    first = min(later)
    first_kernel = rate * first / later[first] if later[first] > 0 else inf
    ratio = optimization / first_kernel if isfinite(optimization) else inf
    return TimeScales(optimization, kernel, first_kernel, ratio)


def _reached(values: Mapping[int, float], level: float) -> float:
    """The step at which a curve first comes up to a level."""
    steps = sorted(values)
    for before, after in pairwise(steps):
        low, high = values[before], values[after]
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return inf
