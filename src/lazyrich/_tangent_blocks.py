"""A tangent kernel in blocks of samples, where the memory is too little for all of them at once."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._network import Network
from ._tangent_gram import Pairs
from ._tangent_sum import Sides, TangentSum


class Blocks(NamedTuple):
    """All blocks together; attributes as in `Kernel`."""

    matrix: Tensor
    terms: dict[str, Tensor]
    engines: dict[str, str]
    certificate: float | None


def in_blocks(
    network: Network,
    sides: Sides,
    pairs: Pairs,
    r: int,
    size: int,
    compute: Callable[[Sides], TangentSum],
) -> Blocks:
    """Compute a kernel block by block, and no block of a symmetric one twice.

    Args:
        r: mixtures of outputs.
        size: samples on a side of a block.
        compute: the kernel of two sets of samples, the second None for the first.
    """
    left, right = sides
    n = left.samples(network.axis)
    m = n if right is None else right.samples(network.axis)
    if max(n, m) <= size:
        whole = compute(sides)
        return Blocks(whole.matrix, whole.terms, whole.engines, whole.certificate)
    shape = {"all": (n * r, m * r), "sum": (n, m), "each": (r, n, m)}[pairs]
    found = Blocks(torch.zeros(shape, dtype=torch.double, device=network.device), {}, {}, None)
    for rows in _cuts(n, size):
        for columns in _cuts(m, size):
            if right is None and columns[0] < rows[0]:
                continue
            other = left if right is None else right
            same = right is None and rows == columns
            part = compute(
                (network.some(left, *rows), None if same else network.some(other, *columns))
            )
            mirrored = right is None and not same
            _put(found.matrix, part.matrix, pairs, r, (rows, columns), mirrored)
            for name, term in part.terms.items():
                kept = found.terms.setdefault(name, torch.zeros_like(found.matrix))
                _put(kept, term, pairs, r, (rows, columns), mirrored)
            for name, engine in part.engines.items():
                if engine != "unused":  # by these samples; by others it may be
                    found.engines[name] = engine
                found.engines.setdefault(name, engine)
            if part.certificate is not None:
                found = found._replace(certificate=max(found.certificate or 0, part.certificate))
    return found


def _cuts(n: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, size):
        yield start, min(start + size, n)


def _put(
    whole: Tensor,
    part: Tensor,
    pairs: Pairs,
    r: int,
    at: tuple[tuple[int, int], tuple[int, int]],
    mirrored: bool,
) -> None:
    """Write a block in its place, and where it is mirrored in a symmetric kernel."""
    wide = r if pairs == "all" else 1
    rows, columns = (slice(start * wide, stop * wide) for start, stop in at)
    whole[..., rows, columns] = part
    if mirrored:
        whole[..., columns, rows] = part.mT
