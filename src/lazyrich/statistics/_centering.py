"""Rows about the mean of their group: the only way products are formed here.

Raw sums of squares lose all digits once the mean is a thousand times the spread. Rows are
therefore centered before they are multiplied, in their own precision, while means are float64.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

_SLAB = 1 << 17  # numbers that are copied to float64 at a time: they stay in the cache
_BLOCK = 128  # columns of a block of a scatter on the CPU, of which only the upper half is computed
_NEGLIGIBLE = 1e-9  # share of a group's squares that may come from the rounding of its mean
_SMALL, _LARGE = 1e-20, 1e30  # sums of squares that float32 holds with all digits
_WIDE_BLOCK = 2048  # elsewhere small blocks would leave the device idle


@dataclass(frozen=True, slots=True)
class Centered:
    """n rows of d units about the means of their g groups.

    Attributes:
        counts: rows in each group.
        means: group means, float64.
        rows: the rows less their group's mean.
        squares: squared lengths of the rows of each group, summed.
        precision: relative spacing of the numbers that are multiplied.
    """

    counts: Float[Tensor, " g"]
    means: Float[Tensor, "g d"]
    rows: Float[Tensor, "n d"]
    squares: Float[Tensor, " g"]
    precision: float

    def scatter(self) -> Float[Tensor, "d d"]:
        """Sum of the rows' products with themselves, in float64."""
        return outer_products(self.rows)

    def product(self, other: "Centered") -> Float[Tensor, "d e"]:
        """Scatter between two sets of columns of the same rows, in float64."""
        turned = self.means.new_zeros(other.rows.shape[1], self.rows.shape[1])
        for at in slabs(self.rows):
            turned.addmm_(double(other.rows[at]).T, double(self.rows[at]))
        return turned.T.contiguous()


def outer_products(rows: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """Sum of products of rows with themselves; half the blocks, the others by symmetry."""
    d = rows.shape[1]
    block = _BLOCK if rows.device.type == "cpu" else _WIDE_BLOCK
    found = double(rows[:0, :0]).new_empty(d, d)
    with _all_digits():
        for i in range(0, d, block):
            left = rows[:, i : i + block].T
            for j in range(i, d, block):
                product = left @ rows[:, j : j + block]
                found[i : i + block, j : j + block] = product
                found[j : j + block, i : i + block] = product.T
    return found


def in_range(rows: Float[Tensor, "n d"], squares: float) -> Float[Tensor, "n d"]:
    """The rows, in float64 where the sum of their squares would leave the range of float32."""
    small = rows.dtype == torch.float32 and not _SMALL < squares < _LARGE
    return double(rows) if small else rows


def center(
    x: Float[Tensor, "n d"], group: Int[Tensor, " n"] | None = None, groups: int = 1
) -> Centered:
    """Center rows about their group's mean (one group when none are given)."""
    x = working(x)
    counts, means = _means(x, group, groups)
    coarse = means.to(device=x.device, dtype=x.dtype)
    rows = torch.empty_like(x, memory_format=torch.contiguous_format)
    _subtract(x, coarse, group, rows)
    squares = _squares(rows, counts, group)
    left = means - double(coarse)
    # float32 may round a large mean by as much as a small spread
    if bool((counts * left.square().sum(1) > _NEGLIGIBLE * squares).any()):
        _subtract(rows, left.to(device=x.device, dtype=x.dtype), group, rows)
        squares = _squares(rows, counts, group)
    wide = in_range(rows, float(squares.sum()))
    if wide is not rows:
        rows, squares = wide, _squares(wide, counts, group)
    return Centered(counts, means, rows, squares, torch.finfo(x.dtype).eps)


def _subtract(
    x: Float[Tensor, "n d"],
    means: Float[Tensor, "g d"],
    group: Int[Tensor, " n"] | None,
    out: Float[Tensor, "n d"],
) -> None:
    for at in slabs(x):
        torch.sub(x[at], means if group is None else means[group[at]], out=out[at])


def _squares(
    rows: Float[Tensor, "n d"], counts: Float[Tensor, " g"], group: Int[Tensor, " n"] | None
) -> Float[Tensor, " g"]:
    lengths = double(torch.linalg.vecdot(rows, rows))
    if group is None:
        return lengths.sum()[None]
    return torch.zeros_like(counts).index_add_(0, group.to(lengths.device), lengths)


def _means(
    x: Float[Tensor, "n d"], group: Int[Tensor, " n"] | None, groups: int
) -> tuple[Float[Tensor, " g"], Float[Tensor, "g d"]]:
    counts = double(x[:0, 0]).new_full((groups,), len(x))
    sums = counts.new_zeros(groups, x.shape[1])
    if group is None:
        for at in slabs(x):
            sums += double(x[at]).sum(0)
    else:
        member = group.to(sums.device)
        counts = torch.bincount(member, minlength=groups).to(counts)
        for at in slabs(x):
            sums.index_add_(0, member[at], double(x[at]))
    return counts, sums / counts.clamp(min=1)[:, None]


@contextmanager
def _all_digits() -> Iterator[None]:
    """Multiply float32 as float32, even where training has been told to make do with less."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):  # torch up to 2.8
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    # these two are safe to read and set whichever of its two interfaces the user spoke to
    places = torch.backends.cuda.matmul, cast(Any, torch.backends.mkldnn).matmul
    found = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, precision in zip(places, found, strict=True):
            place.fp32_precision = precision


def slabs(x: Float[Tensor, "n d"]) -> Iterator[slice]:
    """Some rows at a time, so that copies in float64 stay small; all at once off the CPU."""
    rows = max(_SLAB // max(x.shape[1], 1), 1) if x.device.type == "cpu" else max(len(x), 1)
    for start in range(0, len(x), rows):
        yield slice(start, start + rows)


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
