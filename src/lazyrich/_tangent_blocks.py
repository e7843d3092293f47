"""A tangent kernel in blocks of samples, where the memory is too little for all of them at once."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
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
        one = compute(sides)
        return Blocks(one.matrix, one.terms, one.engines, one.certificate)
    shape = {"all": (n * r, m * r), "sum": (n, m), "each": (r, n, m)}[pairs]
    found = Blocks(torch.zeros(shape, dtype=torch.double, device=network.device), {}, {}, None)
    other = left if right is None else right
    for rows, columns in product(_cuts(n, size), _cuts(m, size)):
        if right is None and columns < rows:
            continue
        same = right is None and rows == columns
        second = None if same else network.some(other, *columns)
        part = compute((network.some(left, *rows), second))
        mirrored = right is None and not same
        for whole, of_part in _matrices(found, part):
            _put(whole, of_part, r if pairs == "all" else 1, (rows, columns), mirrored)
        found.engines.update({k: e for k, e in part.engines.items() if _tells(e, found.engines, k)})
        errors = [e for e in (found.certificate, part.certificate) if e is not None]
        found = found._replace(certificate=max(errors, default=None))
    return found


def _matrices(found: Blocks, part: TangentSum) -> Iterator[tuple[Tensor, Tensor]]:
    """Each whole matrix, with what a block has for it."""
    yield found.matrix, part.matrix
    for name, term in part.terms.items():
        yield found.terms.setdefault(name, torch.zeros_like(found.matrix)), term


def _tells(engine: str, known: Mapping[str, str], name: str) -> bool:
    """Whether it says more than other blocks did: what one does not use another may."""
    return name not in known or engine != "unused"


def _cuts(n: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n, size):
        yield start, min(start + size, n)


def _put(
    whole: Tensor,
    part: Tensor,
    wide: int,
    at: tuple[tuple[int, int], tuple[int, int]],
    mirrored: bool,
) -> None:
    """Write a block in its place, and where it is mirrored in a symmetric kernel.

    Args:
        wide: rows of a sample.
    """
    rows, columns = (slice(start * wide, stop * wide) for start, stop in at)
    whole[..., rows, columns] = part
    if mirrored:
        whole[..., columns, rows] = part.mT
