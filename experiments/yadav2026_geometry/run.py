"""The published tables of 52 networks, analyzed again with their families in mind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, log
from statistics import fmean

from experiments.data import geometry_tables, geometry_trainings
from experiments.harness import Cell, Size, told
from lazyrich import Record, Records
from lazyrich.correlations import Models, correlate, partial_correlation, predict_early

SETS = {  # by images that went through the networks: output dimension, total compression
    "CIFAR-10 images": ("Output Effective Dim", "Total Compression"),
    "ImageNet images": ("dout_in", "comp_in"),
}
SIZE, DIMENSION, COMPRESSION = "log parameters", "output dimension", "total compression"
ONE_LAYER = ("shufflenet", "squeezenet")  # whose compression is zero: one layer was measured


def cells(size: Size) -> Mapping[str, Cell]:
    resamples = 200 if size == "quick" else 2000
    tables: dict[str, Cell] = {
        name: partial(_table, name, *columns, resamples) for name, columns in SETS.items()
    }
    return tables | {"training": partial(_training, resamples)}


def _table(run: str, dimension: str, compression: str, resamples: int) -> Records:
    table = geometry_tables()
    columns = {
        DIMENSION: [float(v) for v in table[dimension]],
        COMPRESSION: [float(v) for v in table[compression]],
        "accuracy": [float(v) for v in table["Accuracy (%)"]],
        SIZE: [log(float(v)) for v in table["Params (M)"]],
    }
    models = Models(table["family"], columns)
    found = correlate(
        models, [DIMENSION, COMPRESSION], "accuracy", controls=[SIZE], resamples=resamples, run=run
    )
    several = correlate(
        models.without(*ONE_LAYER),
        [DIMENSION, COMPRESSION],
        "accuracy",
        controls=[SIZE],
        resamples=0,
        run=run,
    ).where(measure="partial_correlation")
    found += Records(
        replace(r, measure="partial_correlation_of_several_layers", note=f"without {ONE_LAYER}")
        for r in several
    )
    rows: list[Record] = []
    for name in (DIMENSION, COMPRESSION):
        r = partial_correlation(columns[name], columns["accuracy"], columns[SIZE])
        row = told(run, "p_if_independent", r.p_if_independent, layer=name, n=r.n)
        rows.append(replace(row, note="52 models as if none were siblings"))
    pairs = list(zip(columns[DIMENSION], columns[COMPRESSION], strict=True))
    least = [out * exp(c) for out, c in pairs]  # d_in, if C = ln(d_in / d_out)
    other = [out / exp(c) for out, c in pairs]  # d_in, if C = ln(d_out / d_in)
    share = fmean(c > 0 for _, c in pairs)
    for measure, value in (
        ("largest_input_dimension", max(least)),
        ("largest_input_dimension_under_the_other_sign", max(other)),
        ("share_that_compresses", share),
    ):
        rows.append(told(run, measure, value, layer=COMPRESSION, n=len(pairs)))
    return found + Records(rows)


def _training(resamples: int) -> Records:
    rows = [
        told(name, measure, value, layer="penultimate", step=epoch)
        for name, run in geometry_trainings().items()
        for measure in ("accuracy", "effective_dimension")
        for epoch, value in zip(run["epoch"], run[measure], strict=True)
    ]
    found = predict_early(
        Records(rows),
        lambda name: name.split("-")[0],
        {"measure": "effective_dimension"},
        {"measure": "accuracy"},
        resamples=resamples,
        run="training",
    )
    runs = geometry_trainings().values()
    final = [run["accuracy"][-1] for run in runs]
    for place, epoch in enumerate(next(iter(runs))["epoch"][:-1]):
        r = partial_correlation([run["effective_dimension"][place] for run in runs], final)
        p = r.p_if_independent
        rows.append(told("training", "p_if_independent", p, layer="early x", step=epoch, n=r.n))
    return Records(rows) + found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    cifar, imagenet = (records.where(run=name) for name in SETS)
    training = records.where(run="training")
    if not (len(cifar) and len(imagenet) and len(training)):
        return {}

    def one(among: Records, measure: str, layer: str = DIMENSION) -> Record:
        return among.where(measure=measure, layer=layer)[0]

    left_out = cifar.where(measure="correlation_without_a_family", layer=DIMENSION).values()
    partials = {
        "dimension": one(cifar, "partial_correlation"),
        "compression": one(cifar, "partial_correlation", COMPRESSION),
    }
    among = {
        "dimension": one(cifar, "within_family_correlation"),
        "compression": one(cifar, "within_family_correlation", COMPRESSION),
    }
    early, accuracy = (
        training.where(step=30, measure=measure)[0].value
        for measure in ("early_correlation", "early_baseline")
    )
    return {
        "dimension_partial": [partials["dimension"].value],
        "dimension_p": [one(cifar, "p_if_independent").value],
        "compression_partial": [partials["compression"].value],
        "compression_p": [one(cifar, "p_if_independent", COMPRESSION).value],
        "dimension_over_families": [_end(partials["dimension"], "low")],
        "compression_over_families": [_end(partials["compression"], "high")],
        "dimension_among_siblings": [_end(among["dimension"], "low")],
        "compression_among_siblings": [_end(among["compression"], "high")],
        "dimension_without_any_family": [min(left_out)],
        "dimension_on_imagenet_images": [one(imagenet, "partial_correlation").value],
        "better_networks_compress": [one(cifar, "share_that_compresses", COMPRESSION).value],
        "early_p_at_epoch_20": [training.where(step=20, measure="p_if_independent")[0].value],
        "early_more_than_accuracy": [early - accuracy],
    }


def _end(record: Record, which: str) -> float:
    """One end of an interval over families."""
    value = getattr(record, which)
    assert value is not None, f"{record.measure} of {record.layer} has no interval"
    return float(value)
