"""How fast a network learns beside how fast its kernel moves."""

from math import inf, log
from typing import Any

import numpy as np
import pytest

from lazyrich import kernel
from lazyrich.errors import LazyrichError


def test_curves_whose_times_are_known() -> None:
    losses = {step: float(np.exp(-step / 50)) for step in range(500)}
    changes = {step: step / 1000 for step in range(500)}
    found = kernel.time_scales(losses, changes, 0.1)
    assert found.optimization == pytest.approx(0.1 * 50 * log(100), rel=1e-3)
    assert found.kernel == inf
    assert found.first_kernel == pytest.approx(100.0)
    assert found.ratio == pytest.approx(found.optimization / 100)
    assert kernel.time_scales(losses, changes, 0.1, moved=0.2).kernel == pytest.approx(20.0)
    assert kernel.time_scales({0: 1.0, 9: 0.9}, {4: 0.0}, 1.0) == (inf, inf, inf, inf)
    assert kernel.time_scales({0: 1.0, 10: 0.0}, {5: 0.1}, 1.0, share=0.5).optimization == 5.0


@pytest.mark.parametrize(
    "options",
    [
        {"losses": {1: 1.0}},
        {"losses": {0: 0.0}},
        {"losses": {0: 1.0, 1: float("nan")}},
        {"changes": {}},
        {"changes": {0: 0.0}},
        {"changes": {1: -1.0}},
        {"rate": 0.0},
        {"share": 1.0},
        {"moved": 0.0},
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any]) -> None:
    told = {"losses": {0: 1.0}, "changes": {1: 0.1}, "rate": 1.0} | options
    with pytest.raises(LazyrichError, match=next(iter(options))):
        kernel.time_scales(told.pop("losses"), told.pop("changes"), told.pop("rate"), **told)
