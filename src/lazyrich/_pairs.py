"""Sums over every pair of layers: each layer alone once, and what is across each two of them."""

from collections.abc import Iterator, Mapping

import torch

from ._sums import LayerSums, check_memory
from .errors import NonFinite, ShapeError
from .statistics import Batch, CrossMoments, FourthMoments, PairMoments

Layers = Mapping[str, Batch]


class Pairs:
    """The sums of all layers on one side beside all on the other, or of one side with itself.

    Args:
        blocks: of samples, to be kept apart for a jackknife; 1 for none.
        dtype: of products; None for the activations' own.
        limit: GiB of memory; None for half of what is free.

    Attributes:
        within: whether there is only one side.
        problems: pairs that cannot be compared, with the reason.
    """

    def __init__(self, blocks: int, dtype: torch.dtype | None, limit: float | None) -> None:
        self.within = False
        self.problems: dict[str, str] = {}
        self._blocks, self._dtype, self._limit = blocks, dtype, limit
        self._sides: list[dict[str, LayerSums]] = []
        self._across: dict[tuple[str, str], LayerSums] = {}

    def add(self, left: Layers, right: Layers | None, number: int) -> None:
        """Take in one batch of all layers; of one side alone without the right.

        Raises:
            NonFinite, ShapeError: with the layer and the number of the batch.
            MemoryRefused: the sums would not fit, as the first batch shows.
        """
        if number == 0:
            self._begin(left, right)
        right = left if right is None else right
        for sums, layers in zip(self._sides, (left, right), strict=False):
            for name, layer in sums.items():
                _take(layer, layers[name], f"layer {name!r}, batch {number}")
        for (a, b), pair in self._across.items():
            if not _aligned(left[a], right[b]):
                raise ShapeError(f"batch {number}: {_mismatch(left[a], right[b])} ({a} ~ {b})")
            _take(pair, _beside(left[a], right[b]), f"pair '{a} ~ {b}', batch {number}")

    def sums(self, *, swapped: bool = False) -> dict[str, LayerSums]:
        """By `a ~ b` the sums of each pair; or by `b ~ a`, of those that are not the same layer."""
        first, second = self._sides[0], self._sides[-1]
        if swapped:
            return {
                label(b, a): _Pair(first[a], second[b], across, turned=True)
                for (a, b), across in self._across.items()
                if a != b
            }
        pairs = self._across.items()
        return {label(a, b): _Pair(first[a], second[b], across) for (a, b), across in pairs}

    def widths(self, *units: Mapping[str, int]) -> None:
        """State how many units the layers of each side have, where they came in fewer."""
        for side, known in zip(self._sides, units, strict=False):
            for name, layer in side.items():
                layer.d = known[name]

    def units(self) -> dict[str, tuple[int, int]]:
        """How many units both layers of each pair have, in the order of its name."""
        first, second = self._sides[0], self._sides[-1]
        forth = {label(a, b): (first[a].d, second[b].d) for a, b in self._across}
        back = {label(b, a): (second[b].d, first[a].d) for a, b in self._across}
        return back | forth if self.within else forth

    def compared(self) -> Iterator[tuple[str, str]]:
        """The layers of each pair; of one side alone in both orders."""
        for a, b in self._across:
            yield a, b
            if self.within and a != b:
                yield b, a

    def _begin(self, left: Layers, right: Layers | None) -> None:
        self.within = right is None
        others = left if right is None else right
        place = {name: i for i, name in enumerate(left)}
        chosen: dict[str, Batch] = {}
        for a in left:
            for b in others:
                if self.within and place[b] < place[a]:
                    continue
                if not _aligned(left[a], others[b]):
                    self.problems[label(a, b)] = _mismatch(left[a], others[b])
                    continue
                chosen[label(a, b)] = _beside(left[a], others[b])
                self._across[a, b] = self._empty(CrossMoments)
        sides = [left] if right is None else [left, right]
        alone = {f"{n} ({i})": _beside(b, b) for i, s in enumerate(sides) for n, b in s.items()}
        check_memory(chosen | alone, [CrossMoments], self._blocks, self._limit)
        self._sides = [{name: self._empty(FourthMoments) for name in side} for side in sides]

    def _empty(self, kind: type[CrossMoments] | type[FourthMoments]) -> LayerSums:
        return LayerSums([kind], self._blocks, self._dtype, rotate=False)


class _Pair(LayerSums):
    """Two layers and what is across them, put together block by block when they are read."""

    def __init__(
        self, first: LayerSums, second: LayerSums, across: LayerSums, *, turned: bool = False
    ) -> None:
        super().__init__([PairMoments], 1, None, rotate=False)
        across.finish()
        self.rows, self.samples, self.dtype = across.rows, across.samples, across.dtype
        self.d = second.d if turned else first.d
        self._parts, self._turned = (first, second, across), turned

    def blocks(self) -> list[dict[type, PairMoments]]:
        each = zip(*(part.blocks() for part in self._parts), strict=True)
        pairs = (
            PairMoments(x[FourthMoments], y[FourthMoments], c[CrossMoments]) for x, y, c in each
        )
        return [{PairMoments: pair.swapped if self._turned else pair} for pair in pairs]


def label(a: str, b: str) -> str:
    """What a pair is called, the first side's layer first."""
    return f"{a} ~ {b}"


def _take(sums: LayerSums, batch: Batch, where: str) -> None:
    try:
        sums.add(batch)
    except (NonFinite, ShapeError) as error:
        raise type(error)(
            f"{where}: {error}. Mend the model or data, or leave out the layer (layers)."
        ) from error


def _beside(left: Batch, right: Batch) -> Batch:
    return Batch(left.x, samples=left.samples, other=right.x.to(left.x.device))


def _aligned(left: Batch, right: Batch) -> bool:
    """Whether row after row both are of the same sample."""
    if left.samples is None or right.samples is None:
        return len(left) == len(right)
    return torch.equal(left.samples, right.samples.to(left.samples.device))


def _mismatch(left: Batch, right: Batch) -> str:
    return (
        f"{len(left)} rows beside {len(right)} are not the same samples in the same order: "
        "choose a view that gives each sample one row (mean, flatten, last)"
    )
