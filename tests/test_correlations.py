"""What goes with what among models: formulas by other ways, siblings, and the published tables."""

import csv
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

import lazyrich as lz
from lazyrich.correlations import (
    Models,
    adjusted,
    correlate,
    partial_correlation,
    predict_early,
)
from lazyrich.errors import LazyrichError, TooFewSamples, UnknownName
from oracles import correlations as oracle


def table(seed: int = 0, families: int = 7, each: int = 5) -> Models:
    """Families differ in all columns, and siblings in y by x and z."""
    rng = np.random.default_rng(seed)
    level = rng.normal(size=(3, families)).repeat(each, 1)
    x, z, noise = level + rng.normal(size=(3, families * each))
    y = x - 0.7 * z + noise
    names = [f"f{number}" for number in range(families) for _ in range(each)]
    return Models(names, {"x": x, "y": y, "z": z, "z²": z**2})


def values(records: lz.Records) -> dict[str, float]:
    return {r.measure: r.value for r in records if "without" not in r.measure}


def test_formulas_agree_with_other_ways_to_them() -> None:
    models = table()
    x, y, z, square = (np.asarray(models.columns[name]) for name in ("x", "y", "z", "z²"))
    found = values(correlate(models, "x", "y", controls=["z", "z²"], resamples=0))
    family = list(models.families)
    ranks = [oracle.ranks(column) for column in (x, y, z, square)]
    means = [
        [column[[f == name for f in family]].mean() for name in sorted(set(family))]
        for column in (x, y)
    ]
    coefficients, explained = oracle.fit(y, z, square, x)
    wanted = {
        "correlation": stats.pearsonr(x, y).statistic,
        "rank_correlation": stats.spearmanr(x, y).statistic,
        "partial_correlation": oracle.partial(x, y, z, square),
        "partial_rank_correlation": oracle.partial(*ranks),
        "within_family_correlation": oracle.within(x, y, family, z, square),
        "between_family_correlation": stats.pearsonr(*means).statistic,
        "slope_per_deviation": coefficients[3] * x.std(ddof=1),
        "variance_added": explained - oracle.fit(y, z, square)[1],
    }
    assert found == pytest.approx(wanted, rel=1e-9)


@given(st.integers(0, 10**6), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_partial_correlations_and_their_p(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, *controls = rng.normal(size=(2 + k, 12))
    found = partial_correlation(x, y, *controls)
    assert found.value == pytest.approx(oracle.partial(x, y, *controls), abs=1e-9)
    assert found.freedom == 10 - k
    if not k:
        assert found.p_if_independent == pytest.approx(stats.pearsonr(x, y).pvalue, rel=1e-6)
    # the t-test of a coefficient is that of the partial correlation
    (*_, slope), explained = oracle.fit(y, *controls, x)
    rest = 1 - oracle.fit(x, *controls)[1] if k else 1.0
    spread = (1 - explained) * ((y - y.mean()) ** 2).sum() / (rest * ((x - x.mean()) ** 2).sum())
    t = slope / math.sqrt(spread / found.freedom)
    assert found.p_if_independent == pytest.approx(2 * stats.t.sf(abs(t), found.freedom), rel=1e-6)
    scaled = partial_correlation(3 * x + 1, -y, *[5 * c for c in controls])
    assert scaled.value == pytest.approx(-found.value, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_several_questions_at_once(p: list[float]) -> None:
    assert adjusted(p) == pytest.approx(oracle.holm(p))
    assert adjusted(p, "benjamini-hochberg") == pytest.approx(oracle.benjamini_hochberg(p))


def test_leaving_a_family_out_is_the_correlation_of_the_rest() -> None:
    models = table()
    rows = correlate(models, "x", "y", controls=["z"], resamples=0).where(
        measure="correlation_without_a_family"
    )
    assert len(rows) == 7 and {r.n for r in rows} == {30}
    rest = models.without("f3")
    wanted = partial_correlation(*(rest.columns[name] for name in ("x", "y", "z"))).value
    assert rows[3].estimator.endswith("without f3")
    assert rows[3].value == pytest.approx(wanted)


def test_siblings_that_repeat_each_other_do_not_narrow_the_interval() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 14))
    one = Models([str(at) for at in range(14)], {"x": x, "y": y})
    twenty = Models(
        [str(at) for at in range(14) for _ in range(20)], {"x": x.repeat(20), "y": y.repeat(20)}
    )
    a, b = (
        correlate(m, "x", "y", resamples=300).where(measure="correlation")[0] for m in (one, twenty)
    )
    assert (a.low, a.high) == pytest.approx((b.low, b.high))
    assert (a.n, b.n) == (14, 280) and a.note == b.note == "14 families"
    naive, right = (partial_correlation(m.columns["x"], m.columns["y"]) for m in (twenty, one))
    assert naive.p_if_independent < 1e-3 < 0.1 < right.p_if_independent


def test_intervals_cover_where_families_decide_everything() -> None:
    """x and y have nothing to do with each other, and siblings share both but for a little."""
    covered = trusted = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 15)).repeat(8, 1) + 0.1 * rng.normal(size=(2, 120))
        models = Models([str(at // 8) for at in range(120)], {"x": x, "y": y})
        row = correlate(models, "x", "y", resamples=100).where(measure="correlation")[0]
        assert row.low is not None and row.high is not None
        covered += row.low < 0 < row.high
        trusted += partial_correlation(x, y).p_if_independent < 0.05
    assert covered >= 24  # of 28 that a perfect interval would give
    assert trusted >= 12  # where 1 would be right: the reason why families are drawn


def test_what_cannot_be_told_says_why() -> None:
    models = table(families=3)
    rows = correlate(models, "x", "y")
    assert all(r.low is None for r in rows)
    assert "no interval: it takes 6 families" in rows[0].note and rows[0].status == "caution"
    few = correlate(table(families=6), "x", "y", resamples=50)[0]
    assert few.low is not None and few.status == "caution"
    assert few.note == "6 families, which are few: the interval may be too narrow"
    single = Models([str(at) for at in range(9)], table(families=3, each=3).columns)
    (alone,) = correlate(single, "x", "y").where(measure="within_family_correlation")
    assert alone.status == "undefined" and "does not vary" in alone.note
    flat = Models(
        models.families, {**models.columns, "flat": [1.0] * 15, "2z": 2 * models.columns["z"]}
    )
    for x, controls in (("flat", []), ("2z", ["z"])):
        (row,) = correlate(flat, x, "y", controls=controls).where(measure="partial_correlation")
        assert math.isnan(row.value) and row.status == "undefined"


def test_models_without_a_value_are_left_out_and_told() -> None:
    models = table()
    x = np.asarray(models.columns["x"]).copy()
    x[[2, 9]] = np.nan
    lacking = Models(models.families, {**models.columns, "x": x})
    (row,) = correlate(lacking, "x", "y", resamples=0).where(measure="correlation")
    assert row.n == 33 and row.note.endswith(
        "2 of 35 models left out: they have no value in some column"
    )


def test_several_columns_are_told_to_be_several() -> None:
    rows = correlate(table(), ["x", "z"], "y", resamples=400)
    (x,) = rows.where(layer="x", measure="correlation")
    assert "one of 2 columns: [" in x.note and "for all at once" in x.note
    low, high = map(float, x.note.split("[")[1].split("]")[0].split(","))
    assert low < x.low and high > x.high  # type: ignore[operator]


def test_seed_and_page(tmp_path: Path) -> None:
    a, b, c = (correlate(table(), "x", "y", seed=seed, resamples=50) for seed in (0, 0, 1))
    assert a == b and a[0].low != c[0].low
    assert "within_family_correlation" in lz.report(a, tmp_path / "page.html").read_text()


def runs(steps: tuple[int, ...] = (1, 2, 8)) -> lz.Records:
    """The dimension says from step 2 on how training will end; accuracy says it only at the end."""
    rng = np.random.default_rng(0)
    rows = []
    base = lz.Record("", 0, "penultimate", "mean", "effective_dimension", None, "plug-in", 0.0)
    for number in range(24):
        end = rng.normal()
        for step in steps:
            told = {1: rng.normal(), 2: end + 0.1 * rng.normal(), 8: end}[step]
            accuracy = end if step == 8 else rng.normal()
            row = replace(base, run=f"family {number % 8}, {number}", step=step, value=told)
            rows += [row, replace(row, measure="accuracy", layer="model", value=accuracy)]
    return lz.Records(rows)


def family(run: str) -> str:
    return run.split(",")[0]


DIMENSION, ACCURACY = {"measure": "effective_dimension"}, {"measure": "accuracy"}


def test_early_prediction_beside_what_accuracy_says_then() -> None:
    found = predict_early(runs(), family, DIMENSION, ACCURACY, resamples=200)
    assert found.unique("step") == [1, 2]
    by = {(r.step, r.measure): r for r in found}
    assert by[2, "early_correlation"].value > 0.9 > abs(by[1, "early_correlation"].value)
    assert by[2, "early_correlation_beyond"].value > 0.9
    assert abs(by[2, "early_baseline"].value) < 0.6
    low = by[2, "early_correlation"].low
    assert low is not None and low > 0.8
    with pytest.raises(LazyrichError, match="no step before the last"):
        predict_early(runs((8,)), family, DIMENSION, ACCURACY)


def test_columns_of_records() -> None:
    models = Models.of(runs(), family, {"d": DIMENSION, "accuracy": ACCURACY})
    assert len(models.families) == 24 and models.families[0] == "family 0"
    assert models.columns["d"] == models.columns["accuracy"]  # at the last step
    early = Models.of(runs(), family, {"d": DIMENSION}, step=1)
    assert early.columns["d"] != models.columns["d"]
    with pytest.raises(LazyrichError, match="2 records of 'family 0, 0' at step 8"):
        Models.of(runs(), family, {"both": {}})


@pytest.mark.parametrize(
    "call, error, told",
    [
        (lambda: Models(["a"], {"x": [1.0, 2.0]}), LazyrichError, "'x' has 2 numbers for 1"),
        (lambda: table().without("f9"), UnknownName, "no family matches 'f9'"),
        (lambda: correlate(table(), "w", "y"), UnknownName, "no column matches 'w'"),
        (lambda: correlate(table(), [], "y"), LazyrichError, "one column or more"),
        (lambda: correlate(table(), "x", "y", resamples=-1), LazyrichError, "resamples=-1"),
        (
            lambda: correlate(
                Models("abc", {"x": [1, 2, 3], "y": [1, 3, 2], "z": [1, 0, 1]}),
                "x",
                "y",
                controls=["z"],
            ),
            TooFewSamples,
            "3 models have 'x', 'y' and controls: 4 or more",
        ),
        (lambda: partial_correlation([1, 2], [1, 2, 3]), LazyrichError, r"\(2,\), \(3,\)"),
        (lambda: partial_correlation([1, 2, math.nan], [1, 2, 3]), LazyrichError, "NaN"),
        (lambda: partial_correlation([1, 2], [1, 2]), TooFewSamples, "2 models with 0 controls"),
        (lambda: adjusted([0.5], "bonferroni"), UnknownName, "no adjustment"),  # type: ignore[arg-type]
        (lambda: adjusted([1.5]), LazyrichError, "from 0 to 1"),
    ],
)
def test_bad_input_is_told(call: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        call()


def test_no_torch_is_loaded() -> None:
    code = "import sys, lazyrich.correlations; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("LAZYRICH_DATA"), reason="LAZYRICH_DATA is not set")
def test_the_published_partial_correlations_of_52_models() -> None:
    path = Path(os.environ["LAZYRICH_DATA"]) / "seed004" / "table52.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    size = np.log([float(r["Params (M)"]) for r in rows])
    accuracy = [float(r["Accuracy (%)"]) for r in rows]
    for column, value, p in (
        ("Output Effective Dim", 0.746, 3.2e-10),
        ("Total Compression", -0.720, 2.6e-9),
    ):
        found = partial_correlation([float(r[column]) for r in rows], accuracy, size)
        assert round(found.value, 3) == value
        assert found.p_if_independent == pytest.approx(p, rel=0.02)
