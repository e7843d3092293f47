"""A machine, round after round, and which round is kept."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ..errors import LazyrichError
from ._machine import Machine, Metric
from ._recipe import Choice, Recipe
from ._rows import Rows, folds, held_out
from ._solvers import solver

_LOG_TEMPERATURES = (-5.0, 3.0)


@dataclass(frozen=True)
class Fit:
    """A machine and how it came about.

    Attributes:
        machine: of the round that was kept.
        iteration: how often M was updated for it.
        scores: on rows that were held out, after 0, 1, ... updates; empty without such.
        temperature: that makes probabilities of a classifier; NaN without such rows.
        weight: of the training rows.
    """

    machine: Machine
    iteration: int
    scores: NDArray[np.float64]
    temperature: float
    weight: float


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
    for updates_left in reversed(range(recipe.iterations + 1)):
        machine = solve.solve(metric)
        if not bool(machine.expansion.coefficients.isfinite().all()):
            raise LazyrichError(
                "the coefficients are not finite: numbers of this size overflow when they are "
                "squared. Scale the features, with StandardScaler for one."
            )
        yield machine
        if updates_left:
            metric = machine.metric.following(solve.agop(machine), recipe.normalize)


def fit(
    rows: Rows, recipe: Recipe, choice: Choice, given: Rows | None = None, *, classify: bool
) -> Fit:
    """Choose the number of updates on rows that no M has seen, then learn from all rows.

    Args:
        rows: to learn from.
        given: to choose by in place of a part of rows; then no machine is fitted again.
        classify: targets are shares of classes: score by accuracy, and divide class by class.

    Raises:
        LazyrichError: as in `rounds`, or rows that cannot be divided.
    """
    weight = float(rows.weights.sum())
    if given is not None:
        machines = list(rounds(rows, recipe))
        outputs = np.stack([m(given.x) for m in machines])
        iteration, scores, temperature = _judge(outputs, given, classify)
        return Fit(machines[iteration], iteration, scores, temperature, weight)
    if choice.selection is None:
        machine = _last(rounds(rows, recipe))
        return Fit(machine, recipe.iterations, np.empty(0), float("nan"), weight)
    if choice.selection == "cv":
        parts = folds(rows, choice.folds, recipe.seed, stratified=classify)
    else:
        parts = held_out(rows, choice.fraction, recipe.seed, stratified=classify)
    iteration, scores, temperature = _judge(*_outputs_on_rest(parts, recipe), classify)
    machine = _last(rounds(rows, replace(recipe, iterations=iteration)))
    return Fit(machine, iteration, scores, temperature, weight)


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
    outputs: NDArray[np.float64], rest: Rows, classify: bool
) -> tuple[int, NDArray[np.float64], float]:
    """The first round with the best score, all scores, and its temperature."""
    score = accuracy if classify else minus_squared_error
    scores = np.array([score(of_round, rest) for of_round in outputs])
    best = int(scores.argmax())
    return best, scores, temperature(outputs[best], rest) if classify else float("nan")


def accuracy(outputs: NDArray[np.float64], rows: Rows) -> float:
    """Share of the weight whose class has the largest output."""
    right = rows.y[np.arange(len(rows)), outputs.argmax(1)]
    return float(np.average(right, weights=rows.weights))


def minus_squared_error(outputs: NDArray[np.float64], rows: Rows) -> float:
    """Mean over samples and outputs."""
    return -float(np.average(np.square(outputs - rows.y).mean(1), weights=rows.weights))


def temperature(outputs: NDArray[np.float64], rows: Rows) -> float:
    """T for which softmax(outputs / T) has the least cross-entropy.

    As in Platt scaling, every class is given one more sample spread over all rows, so that rows
    which are all right do not make probabilities of 0.
    """
    k, total = outputs.shape[1], rows.weights.sum()
    targets = (total * rows.y + 1) / (total + k)

    def cross_entropy(log_temperature: float) -> float:
        logs = log_softmax(outputs / np.exp(log_temperature), axis=1)
        return -float(np.average((targets * logs).sum(1), weights=rows.weights))

    found = minimize_scalar(cross_entropy, bounds=_LOG_TEMPERATURES, method="bounded")
    return float(np.exp(found.x))
