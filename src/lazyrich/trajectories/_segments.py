"""A path of several numbers cut into straight pieces: the best cut of all, and how many pieces."""

from dataclasses import dataclass
from typing import Any

SHORTEST = 3  # steps of a piece: a straight line through two would fit whatever they are
_MOST = 8  # pieces
_ROUNDS = 3  # after which variances and cuts agree as a rule
EXACT = 1e-4  # of a measure's variance: smaller misfits are taken for rounding of the path


@dataclass(frozen=True)
class Path:
    """What is cut: columns of unit variance over the logarithm of the step.

    Attributes:
        time: n increasing numbers.
        values: (n, q), standardized.
        noise: (q) mean squared standard errors of the standardized values.
    """

    time: Any
    values: Any
    noise: Any

    def variances(self, misfit: Any) -> Any:
        """Of the columns around their lines; never below what the standard errors make sure of."""
        return (misfit / len(self.time)).clip(self.noise.clip(EXACT))


def cuts(path: Path) -> list[int]:
    """Where new pieces begin, by the smallest sum of n ln(variance) + parameters ln(n q).

    A piece is a straight line for each of the q columns, and a column has one variance around its
    lines. k pieces have 2 q k + k - 1 parameters besides.
    """
    import numpy

    n, q = path.values.shape
    table = misfits(path)
    best, chosen = numpy.inf, [0]
    variances = path.variances(table[0, n])
    for pieces in range(1, min(_MOST, n // SHORTEST) + 1):
        for _ in range(_ROUNDS):  # cut by the variances, and take the variances from the cut
            starts = _cut((table / variances).sum(axis=2), pieces)
            ends = zip(starts, [*starts[1:], n], strict=True)
            variances = path.variances(sum(table[i, j] for i, j in ends))
        parameters = 2 * q * pieces + pieces - 1
        score = n * numpy.log(variances).sum() + parameters * numpy.log(n * q)
        if score < best:
            best, chosen = score, starts
    return chosen[1:]


def misfits(path: Path) -> Any:
    """(n, n + 1, q) sums of squares around the line from i to before j; infinite if too short."""
    import numpy

    n = len(path.time)
    t = path.time[:, None] - path.time.mean()
    columns = (numpy.ones_like(t), t, t * t, path.values, t * path.values, path.values**2)
    running = [numpy.vstack([numpy.zeros((1, c.shape[1])), c.cumsum(axis=0)]) for c in columns]
    one, x, xx, y, xy, yy = (c[None, :, :] - c[:-1, None, :] for c in running)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        found = yy - y * y / one - (xy - x * y / one) ** 2 / (xx - x * x / one)
    i, j = numpy.ogrid[:n, : n + 1]
    return numpy.where((j - i >= SHORTEST)[:, :, None], numpy.maximum(found, 0), numpy.inf)


def slopes(path: Path, start: int, stop: int) -> Any:
    """Of the columns' lines over one piece."""
    t = path.time[start:stop] - path.time[start:stop].mean()
    return t @ path.values[start:stop] / (t @ t)


def _cut(cost: Any, pieces: int) -> list[int]:
    """Where the pieces of smallest total cost begin: exact, by dynamic programming."""
    import numpy

    n = len(cost)
    reach, starts = cost[0], [[0]] * (n + 1)
    for _ in range(pieces - 1):
        whole = reach[:n, None] + cost
        at = whole.argmin(axis=0)
        reach = whole[at, numpy.arange(n + 1)]
        starts = [[*starts[i], int(i)] for i in at]
    return starts[n]
