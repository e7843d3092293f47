"""A tree of machines: rows are halved along the direction that matters most, as in xRFM."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._fitting import Fit, fit, temperature
from ._machine import Metric
from ._recipe import Choice, Recipe
from ._rows import Rows
from ._solvers import solver


class Executor(Protocol):
    """Of concurrent.futures, Dask, submitit and others."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> "Future[Any]":
        """Start a call, to be asked for its result."""
        ...


@dataclass(frozen=True)
class Tree:
    """Machines in the leaves; one alone where rows were not divided.

    Attributes:
        directions: [splits, d].
        thresholds: [splits]; rows up to it go to the first child.
        children: [splits, 2], the number of a later split, or -1 - the number of a leaf.
        leaves: as many as splits, and one.
        temperature: of a classifier, that makes probabilities of outputs; NaN where no rows were
            held out. One for all leaves, so that larger outputs are larger probabilities.
    """

    directions: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    children: NDArray[np.int64]
    leaves: list[Fit]
    temperature: float = nan

    def leaf(self, x: NDArray[np.floating]) -> NDArray[np.int64]:
        """In which leaf each row lies, [n]."""
        at = np.full(len(x), 0 if len(self.children) else -1)
        for split, direction in enumerate(self.directions):  # children come after their parents
            here = np.flatnonzero(at == split)
            far = x[here].astype(np.float64) @ direction > self.thresholds[split]
            at[here] = self.children[split, far.astype(int)]
        return -1 - at

    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Outputs [n, c], each row by the machine of its leaf."""
        leaf = self.leaf(x)
        found = np.empty((len(x), len(self.leaves[0].machine.offset)))
        for number, of_leaf in enumerate(self.leaves):
            here = np.flatnonzero(leaf == number)
            found[here] = of_leaf.machine(x[here])
        return found

    def mean(self, value: Callable[[Fit], NDArray[Any]]) -> NDArray[np.float64]:
        """Over leaves, by the weight of what they learned from."""
        weights = [f.weight for f in self.leaves]
        return np.asarray(np.average([value(f) for f in self.leaves], axis=0, weights=weights))


@dataclass
class _Growing:
    directions: list[NDArray[np.float64]]
    thresholds: list[float]
    children: list[list[int]]
    leaves: list[Rows]


def grow(
    rows: Rows,
    recipe: Recipe,
    choice: Choice,
    given: Rows | None = None,
    *,
    max_leaf_size: int | None,
    classify: bool,
    executor: Executor | None = None,
) -> Tree:
    """Halve until leaves are small enough, and fit a machine in each.

    Args:
        given: rows to choose the iteration by; a leaf that none of them reaches divides its own.
        executor: where leaves are fitted; None for here, one after the other.

    Raises:
        LazyrichError: as in `fit`.
    """
    tree, parts = _shape(rows, recipe, len(rows) if max_leaf_size is None else max_leaf_size)
    rests = len(parts) * [None] if given is None else _routed(tree, given, len(parts))
    tasks = [(p, recipe, choice, rest, classify) for p, rest in zip(parts, rests, strict=True)]
    if executor is None:
        leaves = [fit(*task) for task in tasks]
    else:
        started = [executor.submit(fit, *task) for task in tasks]
        leaves = [future.result() for future in started]
    found = temperature([f.rest for f in leaves]) if classify else nan
    return replace(tree, leaves=[replace(f, rest=None) for f in leaves], temperature=found)


def _shape(rows: Rows, recipe: Recipe, most: int) -> tuple[Tree, list[Rows]]:
    """A tree without machines, and the rows of its leaves."""
    growing = _Growing([], [], [], [])
    _divide(rows, recipe, most, growing)
    splits = len(growing.thresholds)
    tree = Tree(
        np.array(growing.directions).reshape(splits, rows.x.shape[1]),
        np.array(growing.thresholds),
        np.array(growing.children, dtype=np.int64).reshape(splits, 2),
        [],
    )
    return tree, growing.leaves


def _routed(tree: Tree, rows: Rows, leaves: int) -> list[Rows | None]:
    """By leaf; None where there are none."""
    leaf = tree.leaf(rows.x)
    each = [rows.take(np.flatnonzero(leaf == number)) for number in range(leaves)]
    return [of_leaf if len(of_leaf) else None for of_leaf in each]


def _divide(rows: Rows, recipe: Recipe, most: int, growing: _Growing) -> int:
    """The place of these rows among the children of a split."""
    if len(rows) <= most:
        growing.leaves.append(rows)
        return -len(growing.leaves)
    number = len(growing.thresholds)
    direction, threshold = _split(rows, recipe, most)
    growing.directions.append(direction)
    growing.thresholds.append(threshold)
    growing.children.append([])
    far = rows.x.astype(np.float64) @ direction > threshold
    sides = [rows.take(np.flatnonzero(side)) for side in (~far, far)]
    growing.children[number] = [_divide(side, recipe, most, growing) for side in sides]
    return number


def _split(rows: Rows, recipe: Recipe, most: int) -> tuple[NDArray[np.float64], float]:
    """The top direction of the AGOP of ridge regression on as many rows as a leaf may have."""
    chosen = np.random.default_rng(recipe.seed).permutation(len(rows))[:most]
    solve = solver(rows.take(chosen), replace(recipe, diagonal=False))
    d = rows.x.shape[1]
    machine = solve.solve(Metric.euclidean(d, diagonal=False, device=recipe.torch_device))
    _, vectors = np.linalg.eigh(solve.agop(machine).cpu().numpy())
    direction = vectors[:, -1]
    if (found := _middle(rows.x.astype(np.float64) @ direction)) is None:
        # no slopes along which rows differ: distinct rows differ in some coordinate
        direction = np.eye(d)[np.ptp(rows.x, axis=0).argmax()]
        found = _middle(rows.x.astype(np.float64) @ direction)
        assert found is not None
    return direction, found


def _middle(values: NDArray[np.float64]) -> float | None:
    """Between two different values as near to the median as there are; None if all are equal."""
    ordered = np.sort(values)
    steps = np.flatnonzero(np.diff(ordered) > 0)
    if not len(steps):
        return None
    step = steps[np.abs(steps + 1 - len(values) / 2).argmin()]
    middle = (ordered[step] + ordered[step + 1]) / 2
    return float(middle if middle < ordered[step + 1] else ordered[step])
