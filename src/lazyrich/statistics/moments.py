"""First and second moments of a point cloud."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ._base import Batch, Statistic
from ._centering import center, pooled_weight, share


@dataclass(frozen=True)
class Moments(Statistic):
    """Count, mean and centered scatter of n rows of d units, float64.

    Reference: merged by the pairwise update of Chan, Golub & LeVeque (1979).
    """

    count: Float[Tensor, ""]
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]

    @classmethod
    def of(cls, batch: Batch) -> "Moments":
        x = center(batch.x)
        return cls(x.counts[0], x.means[0], x.product(x))

    def __add__(self, other: "Moments") -> "Moments":
        gap = other.mean - self.mean
        between = torch.outer(gap, gap * pooled_weight(self.count, other.count))
        return Moments(
            self.count + other.count,
            self.mean + gap * share(self.count, other.count),
            self.scatter + other.scatter + between,
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.count

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return d * d + d

    @cached_property
    def covariance(self) -> Float[Tensor, "d d"]:
        """Population covariance, scatter / n."""
        return self.scatter / self.count

    @cached_property
    def eigenvalues(self) -> Float[Tensor, " d"]:
        """Of the covariance, largest first; rounding below zero is cut off."""
        values: Tensor = torch.linalg.eigvalsh(self.covariance)
        return values.flip(0).clamp(min=0)
