"""A number that may mislead says so, and one that does not is left in peace."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

import lazyrich as lz
from lazyrich import Records

X = torch.randn(400, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = np.arange(400) % 4


def one(measure: str, x: torch.Tensor = X, **options: object) -> lz.Record:
    return lz.measure_arrays({"a": x}, measure, **options)[0]


def steps(n: int) -> torch.Tensor:
    """All equal but the last: blocks without it do not vary."""
    x = torch.ones(n, 2, dtype=torch.float64)
    x[-1] = 2
    return x


CAUTIONS = {
    "few samples": (lambda: one("effective_dimension", X[:40]), r"n = 40 is .*ten times"),
    "wide outputs": (lambda: one("low_rank_richness", X, outputs=X[:, :4]), "half of 6 units"),
    "lone samples": (lambda: one("nc1", labels=np.minimum(np.arange(400), 2)), "single sample"),
    "weak outputs": (
        lambda: one("output_rank", outputs=X[:, :2] * torch.tensor([1.0, 1e-3])),
        "under 1e-4 of the strongest",
    ),
    "no interval": (
        lambda: one("effective_dimension", steps(40), interval=4),
        "no interval: undefined with some block left out",
    ),
    "wide interval": (
        lambda: one("nc1", X[:24], labels=Y[:24], interval=6),
        "interval is wider than the value",
    ),
}
QUIET = {
    "effective_dimension": lambda: one("effective_dimension"),
    "low_rank_richness": lambda: one("low_rank_richness", outputs=X[:, :2] + 0.1),
    "nc1": lambda: one("nc1", labels=Y, interval=0),
    "output_rank": lambda: one("output_rank", outputs=X[:, :2] + 0.1),
}


@pytest.mark.parametrize("case", CAUTIONS)
def test_a_number_that_may_mislead_says_so(case: str) -> None:
    make, note = CAUTIONS[case]
    record = make()
    assert record.status == "caution", record
    assert re.search(note, record.note), record.note


@pytest.mark.parametrize("measure", QUIET)
def test_a_number_that_does_not_is_left_in_peace(measure: str) -> None:
    record = QUIET[measure]()
    assert (record.status, record.note) == ("ok", "")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 2))


def compression(**options: object) -> Records:
    return lz.measure(net().double(), [(X, torch.as_tensor(Y))], "total_compression", **options)


def test_compression_ends_at_the_penultimate_features() -> None:
    (whole,) = compression()
    assert whole.layer == "0 -> penultimate"
    dimension = lz.measure(net().double(), [X], "effective_dimension")
    first, last = (dimension.where(layer=name)[0].value for name in ("0", "penultimate"))
    assert whole.value == pytest.approx(math.log(first / last), rel=1e-9)


def test_compression_without_them_leaves_the_outputs_out() -> None:
    (part,) = compression(layers=["0", "2", "outputs"])
    assert part.layer == "0 -> 2"


def test_one_layer_compresses_nothing() -> None:
    (row,) = compression(layers="0")
    assert row.status == "failed" and "no two layers" in row.note


def test_the_memory_foretold_counts_layers_blocks_and_units() -> None:
    from lazyrich._sums import check_memory
    from lazyrich.errors import MemoryRefused
    from lazyrich.statistics import Batch, Moments

    layers = {"a": Batch(torch.zeros(9, 100)), "b": Batch(torch.zeros(9, 50))}
    numbers = Moments.size(100, 0, 0) + Moments.size(50, 0, 0)
    need = 8 * (5 * numbers + (5 + 2) * Moments.size(100, 0, 0)) / 2**30
    check_memory(layers, [Moments], 5, need * 1.01)
    with pytest.raises(MemoryRefused, match="2 layers would hold .* widest is 'a' with 100 units"):
        check_memory(layers, [Moments], 5, need * 0.99)
