"""First and second moments of a point cloud, and what unbiased products of them need."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ._base import Batch, Statistic
from ._centering import center, pooled_weight, share
from ._spectra import about_zero
from ._tails import Tail

EXACT = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Moments(Statistic):
    """Count, mean and centered scatter of n rows of d units, float64.

    `precision` is the relative spacing of the numbers that were multiplied: eigenvalues smaller
    than that, beside the largest, are rounding.

    Reference: merged by the pairwise update of Chan, Golub & LeVeque (1979).
    """

    count: Float[Tensor, ""]
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]
    precision: float = EXACT

    @classmethod
    def of(cls, batch: Batch) -> "Moments":
        x = center(batch.x)
        return cls(x.counts[0], x.means[0], x.scatter(), x.precision)

    def __add__(self, other: "Moments") -> "Moments":
        gap = other.mean - self.mean
        scatter = self.scatter + other.scatter
        return Moments(
            self.count + other.count,
            self.mean + gap * share(self.count, other.count),
            scatter.addr_(gap, gap * pooled_weight(self.count, other.count)),
            max(self.precision, other.precision),
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

    @cached_property
    def axes(self) -> Float[Tensor, "d d"]:
        """Eigenvectors of the covariance, as columns in the order of the eigenvalues."""
        directions: Tensor = torch.linalg.eigh(self.covariance)[1]
        return directions.flip(1)

    @cached_property
    def about_zero(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
        """Eigenvalues of the uncentered second moment, largest first, and its eigenvectors."""
        return about_zero(self.covariance, self.mean)

    def resolved(self, values: Float[Tensor, " d"], most: int) -> Float[Tensor, " r"]:
        """The eigenvalues above rounding, and no more than the samples can give."""
        floor = max(self.precision, len(values) * EXACT)
        kept = values > floor * torch.linalg.matrix_norm(self.covariance)
        return values[kept][:most]


@dataclass(frozen=True)
class FourthMoments(Statistic):
    """Moments with third- and fourth-order sums about the mean: what U-statistics need."""

    contains: ClassVar[dict[type[Statistic], str]] = {Moments: "moments"}

    moments: Moments
    tail: Tail

    @classmethod
    def of(cls, batch: Batch) -> "FourthMoments":
        moments = Moments.of(batch)
        return cls(moments, Tail.of(batch.x, moments.mean))

    def __add__(self, other: "FourthMoments") -> "FourthMoments":
        moments = self.moments + other.moments
        return FourthMoments(moments, self._about(moments.mean) + other._about(moments.mean))

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.moments.count

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return d * d + 4 * d + 1

    def _about(self, center: Float[Tensor, " d"]) -> Tail:
        m = self.moments
        gap = center - m.mean
        return self.tail.about(gap, m.count, m.scatter.diag(), m.scatter @ gap)
