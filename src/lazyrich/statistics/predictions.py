"""How often the largest output stands at the label."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._base import Batch, Statistic, required_labels, required_outputs
from .classes import has_label

_NONE = torch.iinfo(torch.int64)


@dataclass(frozen=True)
class Predictions(Statistic):
    """How many rows have a label and their largest output at it, and the range of the labels.

    Attributes:
        count: rows, with or without a label.
        labelled: rows with one.
        correct: rows whose largest output is at their label.
        lowest, highest: labels seen.
        outputs: how many there are.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels", "outputs"})

    count: Float[Tensor, ""]
    labelled: Float[Tensor, ""]
    correct: Float[Tensor, ""]
    lowest: Int[Tensor, ""]
    highest: Int[Tensor, ""]
    outputs: int

    @classmethod
    def of(cls, batch: Batch) -> "Predictions":
        labels, outputs = required_labels(batch).long(), required_outputs(batch)
        known = has_label(batch)
        hits = known & (outputs.argmax(1) == labels)
        count = torch.tensor(len(batch), dtype=torch.float64, device=hits.device)
        return cls(
            count,
            known.sum().to(count),
            hits.sum().to(count),
            labels.where(known, _NONE.max).amin(),
            labels.where(known, _NONE.min).amax(),
            outputs.shape[1],
        )

    def __add__(self, other: "Predictions") -> "Predictions":
        return Predictions(
            self.count + other.count,
            self.labelled + other.labelled,
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
        return 6
