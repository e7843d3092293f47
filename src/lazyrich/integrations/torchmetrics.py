"""Any measure of a statistic as a torchmetrics.Metric: synced, reset and logged as those are."""

import io
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from ..errors import LazyrichError
from ..measures import CATALOGUE, Measure
from ..statistics import Batch, Statistic, total


class MeasureMetric(Metric):
    """Holds one statistic; exact in float64 whatever the metric is cast to.

    In a MetricCollection, set `compute_groups=False`: groups are found by comparing states after
    one batch, and layers that agree there would share a state for good.

    Args:
        measure: by name or value; one that needs a statistic of single samples.
    """

    full_state_update = False

    def __init__(self, measure: Measure | str) -> None:
        super().__init__()
        self.measure = CATALOGUE[measure] if isinstance(measure, str) else measure
        m = self.measure
        more = m.takes_initial or m.takes_head or m.second_pass
        if not issubclass(m.needs, Statistic) or more:
            raise LazyrichError(f"{self.measure.name} is no function of one statistic of samples.")
        self.parts: list[Tensor]
        self.add_state("parts", default=[], dist_reduce_fx=None)  # statistics merge by their own +

    def update(
        self, x: Tensor, labels: Tensor | None = None, outputs: Tensor | None = None
    ) -> None:
        """Take in a batch of [n samples, d units], with labels and outputs if they are needed."""
        new = self.measure.needs.of(Batch(x, labels, outputs))
        self.parts = [_packed(total([*map(_unpacked, self.parts), new]))]

    def compute(self) -> Tensor:
        """The measure of all batches on all processes, float64."""
        return torch.tensor(self.measure(total(map(_unpacked, self.parts))), dtype=torch.float64)


def _packed(statistic: Statistic) -> Tensor:
    """As bytes, which no cast changes and which processes can gather at any length."""
    file = io.BytesIO()
    torch.save(statistic, file)
    return torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)


def _unpacked(state: Any) -> Any:
    # packed above, in this or a sibling process: nothing from outside is opened
    return torch.load(io.BytesIO(state.cpu().numpy().tobytes()), weights_only=False)
