"""Numbers picked out of records by seed and setting, and how they go together."""

from collections.abc import Mapping, Sequence

from scipy.stats import spearmanr

from lazyrich import Records


def by_seed(
    records: Records, measure: str, layer: str | None = None, step: int | None = None
) -> dict[int, dict[str, float]]:
    """Values by setting, for each seed; runs are named `<setting>, seed <seed>`.

    Args:
        layer: where the measure was taken in several.
        step: None for the last one of each run.
    """
    wanted = {"measure": measure, "index": None}
    wanted |= {} if layer is None else {"layer": layer}
    wanted |= {} if step is None else {"step": step}
    found: dict[int, dict[str, float]] = {}
    for r in sorted(records.where(**wanted), key=lambda r: r.step):
        setting, _, seed = r.run.rpartition(", seed ")
        found.setdefault(int(seed), {})[setting] = r.value
    return dict(sorted(found.items()))


def over_steps(records: Records, measure: str, layer: str | None = None) -> dict[int, float]:
    """Values of one run by step."""
    wanted = {"measure": measure} | ({} if layer is None else {"layer": layer})
    return dict(sorted((r.step, r.value) for r in records.where(**wanted)))


def trend(values: Mapping[str, float], settings: Sequence[str]) -> float:
    """Spearman's rank correlation of the values with the order of the settings."""
    return rank_correlation(range(len(settings)), [values[s] for s in settings])


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's; NaN where one of them does not vary."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return float("nan")
    return float(spearmanr(one, other).statistic)
