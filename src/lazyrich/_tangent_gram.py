"""What one parameter adds to a tangent kernel, from the gradients of single samples."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ._sample_gradients import Products, SampleGradients

Pairs = Literal["all", "sum", "each"]
"""Which of the r x r pairs of outputs a kernel holds: all of them, or those of an output with
itself, summed or each."""
_BLOCK = 256  # rows of a symmetric product that are made at once


class Term(NamedTuple):
    """What one parameter adds, and how that was computed.

    The matrix is [n r, m r] where pairs are `all`, [n, m] as `sum`, and [r, n, m] for `each`.
    """

    matrix: Tensor
    engine: str


def gram(
    left: Sequence[SampleGradients],
    right: Sequence[SampleGradients] | None,
    pairs: Pairs,
    limit: int,
) -> Term:
    """The products of the gradients of two sets of samples with respect to one parameter.

    Each set comes as the calls that the parameter was used in, whose gradients add up. Where
    samples have one position, the product of two gradients is that of the inputs times that of
    the gradients at the outputs, and no gradient is made; with more positions that holds for
    pairs of them, which is worth it for very few.

    Args:
        right: None for the same as left.
        limit: numbers to hold at a time, beside the kernel.
    """
    left, other = _joined(left), None if right is None else _joined(right)
    pair = left, left if other is None else other
    if all(len(side) == 1 and isinstance(side[0], Products) for side in pair):
        a, b = pair[0][0], pair[1][0]
        assert isinstance(a, Products)
        assert isinstance(b, Products)
        if a.dense and a.transposed == b.transposed and _few_positions(a, b, pairs):
            one = a.x.shape[1] == b.x.shape[1] == 1
            matrix = _by_positions(a, b, pairs, limit, other is None)
            return Term(matrix, "outer" if one else "positions")
    return Term(_by_gradients(left, other, pairs, limit), "gradients")


def product(
    left: Float[Tensor, "n r p"], right: Float[Tensor, "m r p"] | None, pairs: Pairs
) -> Tensor:
    """The inner products over p, for the pairs of outputs that are wanted; right None for left."""
    if pairs == "each":
        other = left if right is None else right
        return left.movedim(1, 0) @ other.permute(1, 2, 0)
    last = 2 if pairs == "all" else 1
    a = left.flatten(0, 1) if last == 2 else left.flatten(1)
    if right is None:
        return _symmetric(a)
    b = right.flatten(0, 1) if last == 2 else right.flatten(1)
    return a @ b.T


def _symmetric(a: Float[Tensor, "n p"]) -> Float[Tensor, "n n"]:
    """a a', whose lower half is not computed."""
    if len(a) <= _BLOCK:
        return a @ a.T
    found = a.new_empty(len(a), len(a))
    for start in range(0, len(a), _BLOCK):
        stop = start + _BLOCK
        torch.mm(a[start:stop], a[start:].T, out=found[start:stop, start:])
        found[stop:, start:stop] = found[start:stop, stop:].T
    return found


def _joined(calls: Sequence[SampleGradients]) -> list[SampleGradients]:
    """Calls of a matrix with further inputs are further positions."""
    if len(calls) > 1 and all(isinstance(c, Products) and c.dense for c in calls):
        made = [c for c in calls if isinstance(c, Products)]
        if len({c.transposed for c in made}) == 1:
            x, g = torch.cat([c.x for c in made], 1), torch.cat([c.g for c in made], 2)
            return [replace(made[0], x=x, g=g)]
    return list(calls)


def _few_positions(a: Products, b: Products, pairs: Pairs) -> bool:
    """Whether pairs of positions are fewer operations than whole gradients."""
    (n, t, d), (m, s, _) = a.x.shape, b.x.shape
    r, o = a.g.shape[0], a.g.shape[-1]
    if t == s == 1:
        return True
    of_outputs = r * r if pairs == "all" else r
    by_positions = n * m * t * s * (d + of_outputs * o)
    by_gradients = r * (n * t + m * s) * d * o + n * m * of_outputs * d * o
    return by_positions < by_gradients


def _by_positions(a: Products, b: Products, pairs: Pairs, limit: int, symmetric: bool) -> Tensor:
    """Products of inputs times products of gradients, summed over pairs of positions."""
    (n, t, _), (m, s, _) = a.x.shape, b.x.shape
    r = a.g.shape[0]
    if t == s == 1:
        inputs = product(a.x, None if symmetric else b.x, "sum")
        outputs = product(
            a.g[:, :, 0].movedim(0, 1), None if symmetric else b.g[:, :, 0].movedim(0, 1), pairs
        )
        if pairs == "all":
            outputs.view(n, r, m, r).mul_(inputs[:, None, :, None])
            return outputs
        return outputs.mul_(inputs)
    squared = r * r if pairs == "all" else r
    at_once = max(1, limit // (squared * t * m * s))
    rows = []
    for start in range(0, n, at_once):
        x, g = a.x[start : start + at_once], a.g[:, start : start + at_once]
        inputs = torch.einsum("itd,jsd->itjs", x, b.x)
        if pairs == "all":
            outputs = torch.einsum("citp,djsp->cidjts", g, b.g)
            rows.append(torch.einsum("itjs,cidjts->icjd", inputs, outputs).reshape(-1, m * r))
        else:
            outputs = torch.einsum("citp,cjsp->citjs", g, b.g)
            found = torch.einsum("itjs,citjs->cij", inputs, outputs)
            rows.append(found if pairs == "each" else found.sum(0))
    return torch.cat(rows, 1 if pairs == "each" else 0)


def _by_gradients(
    left: Sequence[SampleGradients],
    right: Sequence[SampleGradients] | None,
    pairs: Pairs,
    limit: int,
) -> Tensor:
    """Whole gradients, for as many rows of the parameter at a time as may be held."""
    support = torch.unique(torch.cat([c.support() for c in (*left, *(right or ()))]))
    held = sum(prod(side[0].shape) for side in (left, right) if side is not None)
    at_once = max(1, limit // max(2 * held, 1))
    total: Tensor | None = None
    for start in range(0, max(len(support), 1), at_once):
        index = support[start : start + at_once]
        b = None if right is None else _rows(right, index)
        found = product(_rows(left, index), b, pairs)
        total = found if total is None else total.add_(found)
    assert total is not None
    return total


def _rows(calls: Sequence[SampleGradients], index: Tensor) -> Float[Tensor, "n r p"]:
    found = calls[0].rows(index)
    for call in calls[1:]:
        found = found + call.rows(index)
    return found
