"""How often the largest output stands at the label."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._base import Batch, Statistic, required_labels, required_outputs


@dataclass(frozen=True)
class Predictions(Statistic):
    """Rows seen, rows whose largest output is at their label, and the range of the labels."""

    requires: ClassVar[frozenset[str]] = frozenset({"labels", "outputs"})

    count: Float[Tensor, ""]
    correct: Float[Tensor, ""]
    lowest: Int[Tensor, ""]
    highest: Int[Tensor, ""]
    outputs: int

    @classmethod
    def of(cls, batch: Batch) -> "Predictions":
        labels, outputs = required_labels(batch), required_outputs(batch)
        hits = outputs.argmax(1) == labels
        count = torch.tensor(len(batch), dtype=torch.float64, device=hits.device)
        return cls(count, hits.sum().to(count), labels.min(), labels.max(), outputs.shape[1])

    def __add__(self, other: "Predictions") -> "Predictions":
        return Predictions(
            self.count + other.count,
            self.correct + other.correct,
            torch.minimum(self.lowest, other.lowest),
            torch.maximum(self.highest, other.highest),
            self.outputs,
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.count

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return 5
