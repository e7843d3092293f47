"""How one column goes with another among models, told so that siblings do not count as many."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite, nan

from .._records import Definition, Record, Records
from ..errors import LazyrichError, TooFewSamples
from ._bootstrap import ENOUGH, FEWEST, Resampled, resampled
from ._formulas import Columns, Formula, between, partial, plain, slope, variance_added, within
from ._models import Models

_FORMULAS: dict[str, Formula] = {
    "correlation": plain,
    "rank_correlation": lambda c: plain(c.ranked()),
    "partial_correlation": partial,
    "partial_rank_correlation": lambda c: partial(c.ranked()),
    "within_family_correlation": within,
    "between_family_correlation": between,
    "slope_per_deviation": slope,
    "variance_added": variance_added,
}
WITHOUT = "correlation_without_a_family"


def _definition(name: str, summary: str, formula: str, low: float, high: float) -> Definition:
    return Definition(name, summary, formula, "", "neither", (low, high))


DEFINITIONS = [
    _definition("correlation", "Pearson's correlation among models.", r"\rho(x, y)", -1, 1),
    _definition("rank_correlation", "Spearman's, of ranks.", r"\rho(R(x), R(y))", -1, 1),
    _definition(
        "partial_correlation",
        "Of what a linear fit of the controls leaves of both.",
        r"\rho(x - \hat x(z), y - \hat y(z))",
        -1,
        1,
    ),
    _definition(
        "partial_rank_correlation", "The same of ranks.", r"\rho(R(x), R(y) \mid R(z))", -1, 1
    ),
    _definition(
        "within_family_correlation",
        "The partial correlation beside the means of families: among siblings alone.",
        r"\rho(x, y \mid z, \text{family})",
        -1,
        1,
    ),
    _definition(
        "between_family_correlation",
        "Of the means of families, nothing controlled.",
        r"\rho(\bar x_f, \bar y_f)",
        -1,
        1,
    ),
    _definition(
        "slope_per_deviation",
        "By how much y goes up for one standard deviation of x, controls held.",
        r"\beta_x \operatorname{sd}(x), y = \beta_x x + \beta_z z + \text{const}",
        -inf,
        inf,
    ),
    _definition(
        "variance_added",
        "The share of y's variance that x alone explains; its interval never meets 0.",
        r"R^2(x, z) - R^2(z)",
        0,
        1,
    ),
    _definition(
        WITHOUT,
        "The partial correlation with one family left out.",
        r"\rho(x, y \mid z), f \text{ left out}",
        -1,
        1,
    ),
]


def correlate(
    models: Models,
    x: str | Sequence[str],
    y: str,
    *,
    controls: Sequence[str] = (),
    resamples: int = 2000,
    seed: int = 0,
    run: str = "models",
) -> Records:
    """How columns go with another, and whether that is more than a difference between families.

    Intervals are those of families drawn again, all siblings together: none with fewer than 6
    families, and too narrow a one, which a note says, with fewer than 12. There is no p-value: with
    siblings among the models none of the usual ones is right; see `partial_correlation` for it.

    Args:
        x: one column or several; if several are looked at, notes say what the interval of each is
            when all of them together are to be right in 95 % of cases (Bonferroni).
        y: what may go with them, such as accuracy.
        controls: columns to hold constant, such as the logarithm of the number of parameters.
        resamples: of families; 0 for no intervals.
        seed: of these.
        run: name for the records.

    Returns:
        For each x, as `layer` of the records: plain, partial, within-family and between-family
        correlations, effect sizes, and the partial correlation without each of the families.
        Notes say how many families there are.

    Raises:
        UnknownName: a column that does not exist.
        TooFewSamples: too few models for so many controls.
    """
    names = [x] if isinstance(x, str) else list(x)
    if not names:
        raise LazyrichError("x=[]: one column or more is needed.")
    if resamples < 0:
        raise LazyrichError(f"resamples={resamples}: 0 for no intervals, or more.")
    rows: list[Record] = []
    for name in names:
        columns = models.pick(name, y, controls)
        if len(columns.x) < 3 + len(controls):
            raise TooFewSamples(
                f"{len(columns.x)} models have {name!r}, {y!r} and controls: "
                f"{3 + len(controls)} or more are needed."
            )
        told = f"{y}, {', '.join(controls)} held" if controls else y
        base = Record(run, 0, name, "", "", None, told, nan, n=len(columns.x), seed=seed)
        found = resampled(columns, _FORMULAS, resamples, seed)
        rows += [
            _row(replace(base, measure=measure), each, columns, len(names))
            for measure, each in found.items()
        ]
        rows += _without_each(models, columns, base)
    missing = len(models.families)
    rows = [_noting_missing(r, missing) for r in rows]
    return Records(rows, DEFINITIONS)


def _row(record: Record, found: Resampled, columns: Columns, looked_at: int) -> Record:
    families = len(set(columns.family.tolist()))
    plain_ = record.measure in ("correlation", "rank_correlation", "between_family_correlation")
    if plain_:  # nothing is held in these
        record = replace(record, estimator=record.estimator.split(",")[0])
    if record.measure == "between_family_correlation":
        record = replace(record, n=families)
    record = replace(record, value=found.value, note=f"{families} families")
    if not isfinite(found.value):
        why = "a column does not vary, or not beside the controls"
        return replace(record, status="undefined", note=f"{record.note}; {why}")
    interval = found.interval() if len(found.replicates) else None
    if interval is None:
        if families < FEWEST:
            few = f"no interval: it takes {FEWEST} families or more"
            record = replace(record, status="caution", note=f"{record.note}; {few}")
        return record
    low, high = interval
    record = replace(record, standard_error=found.standard_error, low=low, high=high)
    if families < ENOUGH:
        note = f"{record.note}, which are few: the interval may be too narrow"
        record = replace(record, status="caution", note=note)
    together = found.interval(1 - 0.05 / looked_at)
    if looked_at > 1 and together is not None:
        note = f"one of {looked_at} columns: [{together[0]:.3g}, {together[1]:.3g}] for all at once"
        record = replace(record, note=f"{record.note}; {note}")
    return record


def _without_each(models: Models, columns: Columns, base: Record) -> list[Record]:
    names = list(dict.fromkeys(models.families))
    rows = []
    for number in dict.fromkeys(columns.family.tolist()):
        rest = columns.rows((columns.family != number).nonzero()[0])
        value = partial(rest) if len(rest.x) > 2 + columns.controls.shape[1] else nan
        estimator = f"{base.estimator}, without {names[number]}"
        status = "ok" if isfinite(value) else "undefined"
        note = "" if isfinite(value) else "too few models are left, or a column does not vary"
        rows.append(
            replace(
                base,
                measure=WITHOUT,
                estimator=estimator,
                value=value,
                n=len(rest.x),
                status=status,
                note=note,
            )
        )
    return rows


def _noting_missing(record: Record, models: int) -> Record:
    left_out = models - record.n
    counts = record.measure not in (WITHOUT, "between_family_correlation")
    if not (left_out and counts):
        return record
    note = f"{left_out} of {models} models left out: they have no value in some column"
    return replace(record, note="; ".join(filter(None, (record.note, note))))
