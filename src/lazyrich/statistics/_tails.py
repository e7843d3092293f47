"""Third- and fourth-order sums that say how heavy the tails of a cloud are, in O(n d)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ._centering import double, slabs, working


@dataclass(frozen=True, slots=True)
class Tail:
    """Sums over rows about their mean: |x|^2 x, |x|^4, and of each unit x^3 and x^4.

    Products of two sample covariances are biased by their own noise, and this is what it takes
    to say by how much.
    """

    cubic: Float[Tensor, " d"]
    quartic: Float[Tensor, ""]
    unit_cubic: Float[Tensor, " d"]
    unit_quartic: Float[Tensor, " d"]

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], mean: Float[Tensor, " d"]) -> "Tail":
        x = working(x)
        cubic, quartic = torch.zeros_like(mean), mean.new_zeros(())
        unit_cubic, unit_quartic = torch.zeros_like(mean), torch.zeros_like(mean)
        for at in slabs(x):
            rows = double(x[at]) - mean
            lengths = torch.linalg.vecdot(rows, rows)
            cubic += lengths @ rows
            quartic += lengths @ lengths
            squares = rows.square()
            unit_cubic += (squares * rows).sum(0)
            unit_quartic += squares.square().sum(0)
        return cls(cubic, quartic, unit_cubic, unit_quartic)

    def about(
        self,
        gap: Float[Tensor, " d"],
        n: Float[Tensor, ""],
        squares: Float[Tensor, " d"],
        along: Float[Tensor, " d"],
    ) -> "Tail":
        """The same sums about the mean plus a gap.

        Args:
            gap: from the old center to the new one.
            n: rows.
            squares: diagonal of their scatter.
            along: their scatter times the gap.
        """
        squared, trace = gap @ gap, squares.sum()
        cubic = self.cubic - 2 * along - (trace + n * squared) * gap
        bent = 4 * (gap @ (along - self.cubic)) + squared * (2 * trace + n * squared)
        unit_cubic = self.unit_cubic - 3 * gap * squares - n * gap**3
        unit_bent = 6 * gap**2 * squares - 4 * gap * self.unit_cubic + n * gap**4
        return Tail(cubic, self.quartic + bent, unit_cubic, self.unit_quartic + unit_bent)

    def __add__(self, other: "Tail") -> "Tail":
        """The sums over both, if both are about the same center."""
        return Tail(
            self.cubic + other.cubic,
            self.quartic + other.quartic,
            self.unit_cubic + other.unit_cubic,
            self.unit_quartic + other.unit_quartic,
        )
