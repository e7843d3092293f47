"""Training rows, each distinct one once, and how they are divided."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import TooFewSamples

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Rows:
    """Samples with their targets.

    Attributes:
        x: [n, d].
        y: [n, c] in float64.
        weights: [n]; a weight of 2 stands for the same row twice.
    """

    x: Array
    y: NDArray[np.float64]
    weights: NDArray[np.float64]

    @classmethod
    def merged(cls, x: Array, y: NDArray[np.float64], weights: NDArray[np.float64]) -> "Rows":
        """Rows of weight above zero, equal ones as one with their mean target: exact for ridges.

        They come in an order of their own, so that nothing depends on the order of the samples.
        """
        counted = weights > 0
        x, y, weights = x[counted], y[counted], weights[counted]
        if not len(x):
            raise TooFewSamples("all weights are zero: no sample is left to learn from.")
        x = np.ascontiguousarray(x) + 0  # -0.0 becomes 0.0
        as_bytes = x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1]))).ravel()
        _, first, place = np.unique(as_bytes, return_index=True, return_inverse=True)
        total = np.bincount(place, weights).astype(np.float64)
        sums = [np.bincount(place, weights * column) for column in y.T]
        return cls(x[first], np.stack(sums, axis=1) / total[:, None], total)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, index: NDArray[np.intp]) -> "Rows":
        return Rows(self.x[index], self.y[index], self.weights[index])


def held_out(
    rows: Rows, fraction: float, seed: int, *, stratified: bool
) -> Iterator[tuple[Rows, Rows]]:
    """One division: most rows, and the share that is held out, of every class alike.

    Raises:
        TooFewSamples: a single row.
    """
    n = len(rows)
    groups = _shuffled_groups(rows, seed, stratified)
    chosen = np.concatenate([g[: min(round(fraction * len(g)), len(g) - 1)] for g in groups])
    if not len(chosen):
        chosen = max(groups, key=len)[:1]
    if n < 2:
        raise TooFewSamples(
            "n_samples=1 distinct row cannot be divided into rows to learn from and rows to choose "
            "by: give more, or choose nothing with selection=None."
        )
    yield _parted(rows, np.isin(np.arange(n), chosen))


def folds(rows: Rows, count: int, seed: int, *, stratified: bool) -> Iterator[tuple[Rows, Rows]]:
    """As many divisions as folds, each row held out once.

    Raises:
        TooFewSamples: fewer rows than folds.
    """
    if len(rows) < count:
        raise TooFewSamples(f"folds={count} need as many distinct rows, and there are {len(rows)}.")
    dealt = np.concatenate(_shuffled_groups(rows, seed, stratified))
    fold = np.empty(len(rows), dtype=int)
    fold[dealt] = np.arange(len(rows)) % count
    return (_parted(rows, fold == f) for f in range(count))


def _shuffled_groups(rows: Rows, seed: int, stratified: bool) -> list[NDArray[np.intp]]:
    order = np.random.default_rng(seed).permutation(len(rows))
    if not stratified:
        return [order]
    labels = rows.y.argmax(1)[order]
    return [order[labels == label] for label in np.unique(labels)]


def _parted(rows: Rows, out: NDArray[np.bool_]) -> tuple[Rows, Rows]:
    return rows.take(np.flatnonzero(~out)), rows.take(np.flatnonzero(out))
