"""Third- and fourth-order sums that say how heavy the tails of a cloud are, in O(n d)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ._centering import double, slabs, working


@dataclass(frozen=True, slots=True)
class Tail:
    """Sums over rows about their mean: |x|^2 x, and |x|^4.

    Products of two sample covariances are biased by their own noise, and this is what it takes
    to say by how much.
    """

    cubic: Float[Tensor, " d"]
    quartic: Float[Tensor, ""]

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], mean: Float[Tensor, " d"]) -> "Tail":
        x = working(x)
        cubic, quartic = torch.zeros_like(mean), mean.new_zeros(())
        for at in slabs(x):
            rows = double(x[at]) - mean
            lengths = torch.linalg.vecdot(rows, rows)
            cubic += lengths @ rows
            quartic += lengths @ lengths
        return cls(cubic, quartic)

    def about(
        self,
        gap: Float[Tensor, " d"],
        n: Float[Tensor, ""],
        trace: Float[Tensor, ""],
        along: Float[Tensor, " d"],
    ) -> "Tail":
        """The same sums about the mean plus a gap.

        Args:
            gap: from the old center to the new one.
            n: rows.
            trace: of their scatter.
            along: their scatter times the gap.
        """
        squared = gap @ gap
        cubic = self.cubic - 2 * along - (trace + n * squared) * gap
        bent = 4 * (gap @ (along - self.cubic)) + squared * (2 * trace + n * squared)
        return Tail(cubic, self.quartic + bent)

    def __add__(self, other: "Tail") -> "Tail":
        """The sums over both, if both are about the same center."""
        return Tail(self.cubic + other.cubic, self.quartic + other.quartic)
