"""Rows about the mean of their group: the only way products are formed here.

Raw sums of squares lose all digits once the mean is a thousand times the spread. Rows are
therefore centered before they are multiplied, in their own precision, while means are float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Centered:
    """n rows of d units about the means of their g groups.

    Attributes:
        counts: rows in each group.
        means: group means, float64.
        rows: the rows less their group's mean as rounded to the rows' precision.
        excess: what that rounding left in each group's mean, float64.
    """

    counts: Float[Tensor, " g"]
    means: Float[Tensor, "g d"]
    rows: Float[Tensor, "n d"]
    excess: Float[Tensor, "g d"]

    def product(self, other: "Centered") -> Float[Tensor, "d e"]:
        """Scatter between two sets of columns of the same rows, in the finer precision."""
        if self.rows.dtype == other.rows.dtype:
            scatter = double(self.rows.T @ other.rows)
        else:
            scatter = double(self.rows).T @ double(other.rows)
        if torch.float64 in (self.rows.dtype, other.rows.dtype):
            return scatter  # one side left no excess behind
        return scatter - (self.excess * self.counts[:, None]).T @ other.excess


def center(
    x: Float[Tensor, "n d"], group: Int[Tensor, " n"] | None = None, groups: int = 1
) -> Centered:
    """Center rows about their group's mean (one group when none are given)."""
    x = working(x)
    exact = double(x)
    if group is None:
        counts = exact.new_full((1,), len(x))
        sums = exact.sum(0, keepdim=True)
    else:
        group = group.to(exact.device)
        counts = torch.bincount(group, minlength=groups).to(exact.dtype)
        sums = exact.new_zeros(groups, x.shape[1]).index_add_(0, group, exact)
    means = sums / counts.clamp(min=1)[:, None]
    rounded = means.to(device=x.device, dtype=x.dtype)
    rows = x - (rounded if group is None else rounded[group.to(x.device)])
    return Centered(counts, means, rows, means - double(rounded))


def working(x: Tensor) -> Tensor:
    """In the precision of products: the tensor's own, but at least float32."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def double(x: Tensor) -> Tensor:
    """In float64, on the CPU where the device knows no float64."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def pooled_weight(a: Tensor, b: Tensor) -> Tensor:
    """n_a n_b / (n_a + n_b), by which the gap of two means adds to a scatter; 0 if one is empty."""
    return a * b / (a + b).clamp(min=1)


def share(a: Tensor, b: Tensor) -> Tensor:
    """n_b / (n_a + n_b), and 0 where both are empty."""
    return b / (a + b).clamp(min=1)
