"""A machine, round after round, and which round is kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from tqdm import tqdm

from ..errors import LazyrichError
from ._machine import Machine, Metric
from ._recipe import Choice, Recipe
from ._rows import Rows, folds, held_out
from ._solvers import solver

_LOG_TEMPERATURES = (-5.0, 3.0)


@dataclass(frozen=True)
class Rest:
    """What the round that was kept says of rows that were held out.

    Attributes:
        outputs: [n, c].
        y: [n, c].
        weights: [n].
    """

    outputs: NDArray[np.float64]
    y: NDArray[np.float64]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A machine and how it came about.

    Attributes:
        machine: of the round that was kept.
        iteration: how often M was updated for it.
        scores: on rows that were held out, after 0, 1, ... updates; empty without such.
        weight: of the training rows.
        rest: rows that were held out, until temperatures are found.
    """

    machine: Machine
    iteration: int
    scores: NDArray[np.float64]
    weight: float
    rest: Rest | None = None


def rounds(rows: Rows, recipe: Recipe) -> Iterator[Machine]:
    """Ridge regression, AGOP, metric, and again: iterations + 1 machines.

    Reference: Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639,
    algorithm 1.

    Raises:
        LazyrichError: the data cannot be solved; the message says why.
    """
    solve = solver(rows, recipe)
    device = recipe.torch_device
    metric = Metric.euclidean(rows.x.shape[1], diagonal=recipe.diagonal, device=device)
    shown = tqdm(
        reversed(range(recipe.iterations + 1)),
        desc=f"learning from {len(rows)} rows",
        unit="round",
        total=recipe.iterations + 1,
        disable=None if recipe.progress else True,
        delay=3,  # seconds; what is done sooner shows nothing
        leave=False,
    )
    for updates_left in shown:
        machine = solve.solve(metric)
        if not bool(machine.expansion.coefficients.isfinite().all()):
            raise LazyrichError(
                "the coefficients are not finite: numbers of this size overflow when they are "
                "squared. Scale the features, with StandardScaler for one."
            )
        yield machine
        if updates_left:
            metric = machine.metric.following(solve.agop(machine), recipe.normalize)


def fit(rows: Rows, recipe: Recipe, choice: Choice, given: Rows | None, classify: bool) -> Fit:
    """Choose the number of updates on rows that no M has seen, then learn from all rows.

    Args:
        rows: to learn from.
        recipe, choice: the options.
        given: to choose by in place of a part of rows; then no machine is fitted again.
        classify: targets are shares of classes: score by accuracy, and divide class by class.

    Raises:
        LazyrichError: as in `rounds`, or rows that cannot be divided.
    """
    weight = float(rows.weights.sum())
    if given is not None:
        machines = list(rounds(rows, recipe))
        outputs = np.stack([m(given.x) for m in machines])
        iteration, scores, rest = _judge(outputs, given, classify)
        return Fit(machines[iteration], iteration, scores, weight, rest)
    if choice.selection is None:
        machine = _last(rounds(rows, recipe))
        return Fit(machine, recipe.iterations, np.empty(0), weight)
    if choice.selection == "cv":
        parts = folds(rows, choice.folds, recipe.seed, stratified=classify)
    else:
        parts = held_out(rows, choice.fraction, recipe.seed, stratified=classify)
    iteration, scores, rest = _judge(*_outputs_on_rest(parts, recipe), classify)
    machine = _last(rounds(rows, replace(recipe, iterations=iteration)))
    return Fit(machine, iteration, scores, weight, rest)


def _last(machines: Iterable[Machine]) -> Machine:
    *_, machine = machines
    return machine


def _outputs_on_rest(
    parts: Iterable[tuple[Rows, Rows]], recipe: Recipe
) -> tuple[NDArray[np.float64], Rows]:
    """What machines say, round by round, of rows that they did not learn from: [rounds, n, c]."""
    outputs, rests = [], []
    for part, rest in parts:
        outputs.append(np.stack([machine(rest.x) for machine in rounds(part, recipe)]))
        rests.append(rest)
    fields = zip(*((r.x, r.y, r.weights) for r in rests), strict=True)
    return np.concatenate(outputs, axis=1), Rows(*map(np.concatenate, fields))


def _judge(
    outputs: NDArray[np.float64], rows: Rows, classify: bool
) -> tuple[int, NDArray[np.float64], Rest]:
    """The first round with the best score, the scores of all, and what that round says."""
    score = accuracy if classify else minus_squared_error
    rounds = [Rest(of_round, rows.y, rows.weights) for of_round in outputs]
    scores = np.array([score(rest) for rest in rounds])
    best = int(scores.argmax())
    return best, scores, rounds[best]


def accuracy(rest: Rest) -> float:
    """Share of the weight whose class has the largest output."""
    right = rest.y[np.arange(len(rest.y)), rest.outputs.argmax(1)]
    return float(np.average(right, weights=rest.weights))


def minus_squared_error(rest: Rest) -> float:
    """Mean over samples and outputs."""
    return -float(np.average(np.square(rest.outputs - rest.y).mean(1), weights=rest.weights))


def temperature(rests: Sequence[Rest | None]) -> float:
    """T for which softmax(outputs / T) has the least cross-entropy; NaN where none were held out.

    As in Platt scaling, every class is given one more sample spread over all rows, so that rows
    which are all right do not make probabilities of 0.
    """
    known = [rest for rest in rests if rest is not None]
    if not known:
        return float("nan")
    outputs, y = (np.concatenate([getattr(r, of) for r in known]) for of in ("outputs", "y"))
    weights = np.concatenate([r.weights for r in known])
    k, total = y.shape[1], weights.sum()
    targets = (total * y + 1) / (total + k)

    def cross_entropy(log_temperature: float) -> float:
        logs = log_softmax(outputs / np.exp(log_temperature), axis=1)
        return -float(np.average((targets * logs).sum(1), weights=weights))

    found = minimize_scalar(cross_entropy, bounds=_LOG_TEMPERATURES, method="bounded")
    return float(np.exp(found.x))
