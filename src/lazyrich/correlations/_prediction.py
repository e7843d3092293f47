"""Does a number early in training say how training will end?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from .._records import Definition, Record, Records
from ..errors import LazyrichError
from ._associations import correlate
from ._models import Models, Where

_MEASURES = {
    "correlation": (
        "early_correlation",
        "Of x at a step with y at the end of training, among runs.",
        r"\rho(x_t, y_T)",
    ),
    "partial_correlation": (
        "early_correlation_beyond",
        "The same with y at that step held: what x says that y does not say yet.",
        r"\rho(x_t, y_T \mid y_t)",
    ),
}
_BASELINE = Definition(
    "early_baseline",
    "Of y at a step with y at the end of training: what is to be beaten.",
    r"\rho(y_t, y_T)",
    "",
    "neither",
    (-1, 1),
)


def predict_early(
    records: Records,
    family: Callable[[str], str] | Mapping[str, str],
    x: Where,
    y: Where,
    *,
    resamples: int = 2000,
    seed: int = 0,
    run: str = "models",
) -> Records:
    """How x at each step goes with y at the end of training, beside what y itself says then.

    Args:
        records: of many runs, with both at several steps.
        family: of a run, by its name.
        x, y: what to look for among the records, such as `{"measure": "accuracy"}`.
        resamples, seed: as for `correlate`; intervals are those of families drawn again.
        run: name for the records.

    Returns:
        At each step that some runs have both at: the correlation of x with the final y, that of
        x with y at that step held, and that of y itself, which is the baseline. Runs whose last
        step it is count in none of them.

    Raises:
        LazyrichError: no step before the last.
    """
    names = {"early x": x, "early y": y}
    final = Models.of(records, family, {"final y": y})
    steps = sorted({r.step for r in records.where(**x)} & {r.step for r in records.where(**y)})
    last = _last_steps(records, records.where(**y))
    rows: list[Record] = []
    for step in steps:
        early = Models.of(records, family, names, step=step)
        ended = np.array(last) <= step
        columns = {n: np.where(ended, np.nan, c) for n, c in early.columns.items()}
        models = Models(final.families, {**columns, **final.columns})
        if np.isfinite(columns["early x"]).sum() >= 5:
            rows += _at(models, step, resamples, seed, run)
    if not rows:
        raise LazyrichError("no step before the last at which five runs or more have x and y.")
    told = [Definition(n, s, f, "", "neither", (-1, 1)) for n, s, f in _MEASURES.values()]
    return Records(rows, [*told, _BASELINE])


def _at(models: Models, step: int, resamples: int, seed: int, run: str) -> list[Record]:
    found = correlate(
        models, "early x", "final y", controls=["early y"], resamples=resamples, seed=seed, run=run
    )
    baseline = correlate(models, "early y", "final y", resamples=resamples, seed=seed, run=run)
    rows = [
        replace(row, measure=_MEASURES[row.measure][0]) for row in found if row.measure in _MEASURES
    ]
    rows += [replace(r, measure="early_baseline") for r in baseline.where(measure="correlation")]
    return [replace(row, step=step) for row in rows]


def _last_steps(records: Records, rows: Records) -> Sequence[int]:
    """Of each run, in their order."""
    last = dict.fromkeys(records.unique("run"), -1)
    for row in rows:
        last[row.run] = max(last[row.run], row.step)
    return list(last.values())
