"""How often the nearest class mean is the class of the largest output."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import MissingInput
from ._base import Batch, Statistic, required_outputs
from ._centering import double
from .classes import NO_LABEL, ClassMoments, has_label
from .predictions import Predictions


@dataclass(frozen=True)
class NearestMeans(Statistic):
    """Counts over rows of a second reading, once a first one has found the class means.

    Attributes:
        predictions: of the same rows.
        decided: rows with a label and a nearest class mean.
        agreeing: those of them whose largest output is at the class of that mean.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels", "outputs"})

    predictions: Predictions
    decided: Float[Tensor, ""]
    agreeing: Float[Tensor, ""]

    @classmethod
    def of(cls, batch: Batch) -> "NearestMeans":
        predictions = Predictions.of(batch)
        if batch.nearest is None:
            raise MissingInput(
                "nearest class means are known from a first reading of the data: "
                "give batches that `beside_means` returns."
            )
        decided = has_label(batch) & (batch.nearest != NO_LABEL)
        agreeing = decided & (required_outputs(batch).argmax(1) == batch.nearest)
        count = predictions.count
        return cls(predictions, decided.sum().to(count), agreeing.sum().to(count))

    def __add__(self, other: "NearestMeans") -> "NearestMeans":
        return NearestMeans(
            self.predictions + other.predictions,
            self.decided + other.decided,
            self.agreeing + other.agreeing,
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.predictions.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return Predictions.size(d, c, k) + 2


def beside_means(batch: Batch, classes: ClassMoments) -> Batch:
    """The same rows, each with the class of the mean that is nearest to it.

    Of means that are equally near, the first; none where there are no two that differ by more than
    rounding.
    """
    means = classes.means
    center = means.mean(0)
    gaps = means - center
    rounding = classes.precision * means.norm(dim=1).amax() if len(means) else 0.0
    if len(means) < 2 or not bool(gaps.norm(dim=1).amax() > rounding):
        unknown = torch.full((len(batch),), NO_LABEL, device=batch.x.device)
        return replace(batch, nearest=unknown)
    # |x - m|^2 less the |x - center|^2 that all means share, about the center for its digits
    rows = double(batch.x) - center
    distances = gaps.square().sum(1) / 2 - rows @ gaps.T
    nearest = classes.classes.to(distances.device)[distances.argmin(1)]
    return replace(batch, nearest=nearest.to(batch.x.device))
