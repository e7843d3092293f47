"""Two representations of the same samples: moments of each, and what is across them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import MissingInput
from ._base import Batch, Statistic
from ._centering import center, double, pooled_weight, share, slabs, working
from .moments import FourthMoments


def required_other(batch: Batch) -> Float[Tensor, "n e"]:
    """The second representation in a batch.

    Raises:
        MissingInput: it carries none.
    """
    if batch.other is None:
        raise MissingInput(
            "a similarity needs two representations of the same samples, and this data brings one. "
            "Ask for it with lz.compare(first, second, data), or with arrays by name."
        )
    return batch.other


@dataclass(frozen=True)
class CrossMoments(Statistic):
    """Scatter of x (d units) with y (e units), and the mixed sums of third and fourth order.

    The last three are what an unbiased estimate of the product of two kernels needs beside the
    tails of x and y alone; all sums are about the means.

    Attributes:
        cross: sum of x y'.
        x_squares, y_squares: sums of |x|^2 and |y|^2.
        x_bends_y: sum of |x|^2 y.
        y_bends_x: sum of |y|^2 x.
        quartic: sum of |x|^2 |y|^2.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"other"})

    count: Float[Tensor, ""]
    x_mean: Float[Tensor, " d"]
    y_mean: Float[Tensor, " e"]
    cross: Float[Tensor, "d e"]
    x_squares: Float[Tensor, ""]
    y_squares: Float[Tensor, ""]
    x_bends_y: Float[Tensor, " e"]
    y_bends_x: Float[Tensor, " d"]
    quartic: Float[Tensor, ""]

    @classmethod
    def of(cls, batch: Batch) -> "CrossMoments":
        other = required_other(batch)
        x, y = center(batch.x), center(other)
        means = x.means[0], y.means[0]
        mixed = _mixed(batch.x, other, *means)
        return cls(x.counts[0], *means, x.product(y), *mixed)

    def __add__(self, other: "CrossMoments") -> "CrossMoments":
        weight = pooled_weight(self.count, other.count)
        x_gap, y_gap = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        part = share(self.count, other.count)
        means = self.x_mean + x_gap * part, self.y_mean + y_gap * part
        mixed = map(torch.add, self._about(*means), other._about(*means))
        cross = (self.cross + other.cross).addr_(x_gap, y_gap * weight)
        return CrossMoments(self.count + other.count, *means, cross, *mixed)

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.count

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        """Of d and c units."""
        return d * c + 2 * (d + c) + 4

    @property
    def swapped(self) -> "CrossMoments":
        """The same with x and y in each other's place."""
        return CrossMoments(
            self.count,
            self.y_mean,
            self.x_mean,
            self.cross.T,
            self.y_squares,
            self.x_squares,
            self.y_bends_x,
            self.x_bends_y,
            self.quartic,
        )

    def _about(self, x_center: Float[Tensor, " d"], y_center: Float[Tensor, " e"]) -> list[Tensor]:
        """The mixed sums about other centers than the means, by expanding each square."""
        n, a, b = self.count, x_center - self.x_mean, y_center - self.y_mean
        aa, bb = a @ a, b @ b
        back, forth = a @ self.cross, self.cross @ b
        bent = 4 * (a @ forth) - 2 * (b @ self.x_bends_y) - 2 * (a @ self.y_bends_x)
        return [
            self.x_squares + n * aa,
            self.y_squares + n * bb,
            self.x_bends_y - 2 * back - (self.x_squares + n * aa) * b,
            self.y_bends_x - 2 * forth - (self.y_squares + n * bb) * a,
            self.quartic + bent + bb * self.x_squares + aa * self.y_squares + n * aa * bb,
        ]


def _mixed(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n e"],
    x_mean: Float[Tensor, " d"],
    y_mean: Float[Tensor, " e"],
) -> list[Tensor]:
    """The mixed sums about the means, in the order of the fields."""
    x, y = working(x), working(y)
    zero = x_mean.new_zeros(())
    sums = [zero, zero, torch.zeros_like(y_mean), torch.zeros_like(x_mean), zero]
    for at in slabs(x if x.shape[1] > y.shape[1] else y):
        left, right = double(x[at]) - x_mean, double(y[at]) - y_mean
        a, b = torch.linalg.vecdot(left, left), torch.linalg.vecdot(right, right)
        sums = list(map(torch.add, sums, [a.sum(), b.sum(), a @ right, b @ left, a @ b]))
    return sums


@dataclass(frozen=True)
class PairMoments(Statistic):
    """Two representations of the same samples, x and y: all that linear similarities need.

    In three parts, so that one layer compared with many others is summed up once.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"other"})

    x: FourthMoments
    y: FourthMoments
    across: CrossMoments

    @classmethod
    def of(cls, batch: Batch) -> "PairMoments":
        other = Batch(required_other(batch))
        return cls(FourthMoments.of(batch), FourthMoments.of(other), CrossMoments.of(batch))

    def __add__(self, other: "PairMoments") -> "PairMoments":
        return PairMoments(self.x + other.x, self.y + other.y, self.across + other.across)

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.across.count

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        """Of d and c units."""
        alone = FourthMoments.size(d, 0, 0) + FourthMoments.size(c, 0, 0)
        return alone + CrossMoments.size(d, c, 0)

    @property
    def swapped(self) -> "PairMoments":
        """The same with x and y in each other's place."""
        return PairMoments(self.y, self.x, self.across.swapped)
