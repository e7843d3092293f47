"""From a stream of batches to sums of statistics, one set for each layer and block of samples."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._memory import free_memory
from .errors import LazyrichError, MemoryRefused, NonFinite, ShapeError
from .statistics import (
    Batch,
    ClassMoments,
    JointClassMoments,
    JointMoments,
    Statistic,
    total,
)
from .statistics.clouds import scattered

Kind = type[Statistic]
_ROWS = 1024  # rows to gather before a product: small batches would spend their time on additions


class LayerSums:
    """The statistics of one layer, as sums over blocks of samples.

    Of every so many samples in a row each block gets one, in an order that a hash of their numbers
    decides: blocks are of equal size, and labels that come in turns do not gather in one of them.

    Args:
        kinds: statistics that will be read.
        blocks: how many blocks to keep apart for a jackknife; 1 for none.
        dtype: of products; None for the activations' own.
        rotate: whether the rows may be rotated together: no measure will notice, and
            no other process has rows of the same layer.
    """

    def __init__(
        self, kinds: Iterable[Kind], blocks: int, dtype: torch.dtype | None, *, rotate: bool
    ) -> None:
        self.kinds = covering(kinds)
        self.d = self.rows = self.samples = 0
        self.dtype = ""
        self._dtype, self._rotate = dtype, rotate
        self._waiting: list[Batch] = []
        self._sums: list[dict[Kind, Any]] = [{} for _ in range(blocks)]

    def add(self, batch: Batch) -> None:
        """Take in a batch.

        Raises:
            NonFinite: it holds NaN or infinity.
            ShapeError: it is wider or narrower than those before.
        """
        if not _finite(batch.x):
            raise NonFinite("its activations hold NaN or infinity")
        if self.rows and batch.x.shape[1] != self.d:
            raise ShapeError(
                f"it has {batch.x.shape[1]} units here and had {self.d} before; the views 'mean' "
                "and 'tokens' do not depend on how many places there are"
            )
        needs_outputs = any("outputs" in kind.requires for kind in self.kinds)
        if needs_outputs and batch.outputs is not None and not _finite(batch.outputs):
            raise NonFinite("the model's outputs beside it hold NaN or infinity")
        self.d = batch.x.shape[1]
        self.rows += len(batch)
        self.samples += len(torch.unique(numbers(batch)))
        # the last batch always waits: samplers repeat samples there, which `withdraw` takes out
        c = 0 if batch.outputs is None else batch.outputs.shape[1]
        if sum(map(len, self._waiting)) >= max(_ROWS, self.d, 4 * c):
            self._absorb()
        self._waiting.append(batch)

    def withdraw(self, samples: Tensor) -> None:
        """Take out samples that another process has, too.

        Raises:
            LazyrichError: they came earlier than the last batch.
        """
        kept = [b.rows(~torch.isin(numbers(b), samples.to(b.x.device))) for b in self._waiting]
        lost = sum(map(len, self._waiting)) - sum(map(len, kept))
        if lost < len(samples):
            raise LazyrichError(
                f"{len(samples)} samples came to several processes, {len(samples) - lost} of them "
                "before the last batch. Give each process samples of its own."
            )
        self._waiting, self.rows = kept, self.rows - lost
        self.samples -= len(samples)

    def merge(self, other: "LayerSums") -> None:
        """Take in all that another process has seen of this layer."""
        self.finish()
        self.rows += other.rows
        self.samples += other.samples
        for mine, theirs in zip(self._sums, other._sums, strict=True):
            for kind, new in theirs.items():
                mine[kind] = mine[kind] + new if kind in mine else new

    def beside(self, other: "LayerSums") -> None:
        """Take in other statistics of the same samples, from another reading of the data.

        Raises:
            LazyrichError: they are not the same samples.
        """
        mine, theirs = self.blocks(), other.blocks()
        if self.rows != other.rows or len(mine) != len(theirs):
            raise LazyrichError(
                f"the data gave {self.rows} rows when it was read first, and then {other.rows}: "
                "measures that read it twice need a loader that repeats itself"
            )
        self.kinds = [*self.kinds, *other.kinds]
        for block, more in zip(mine, theirs, strict=True):
            block.update(more)

    def finish(self) -> None:
        """Sum up what still waits; if that is all there is, in no more coordinates than rows."""
        if not any(map(len, self._waiting)):
            return
        if self._rotate and self.rows + 1 < self.d and not any(self._sums):
            whole = Batch.cat(self._waiting)
            self._waiting = [replace(whole, x=within_span(whole.x))]
        self._absorb()

    def blocks(self) -> list[dict[Kind, Any]]:
        """The sums by kind of each block that holds anything."""
        self.finish()
        return [block for block in self._sums if block]

    def whole(self, blocks: Sequence[dict[Kind, Any]]) -> dict[Kind, Any]:
        """The sums of all blocks, by kind."""
        return {kind: total(block[kind] for block in blocks) for kind in self.kinds}

    def _absorb(self) -> None:
        batch = Batch.cat(self._waiting)
        self._waiting = []
        given = torch.finfo(batch.x.dtype).eps if self._dtype == torch.float64 else 0.0
        if self._dtype is not None:
            other = None if batch.other is None else batch.other.to(self._dtype)
            batch = replace(batch, x=batch.x.to(self._dtype), other=other)
        self.dtype = str(torch.promote_types(batch.x.dtype, torch.float32)).removeprefix("torch.")
        block = dealt(numbers(batch), len(self._sums))
        for number, sums in enumerate(self._sums):
            part = batch
            if len(self._sums) > 1:
                part = batch.rows(block == number)
            if len(part):
                for kind in self.kinds:
                    new = coarsened(kind.of(part), given)
                    sums[kind] = sums[kind] + new if kind in sums else new


def within_span(x: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
    """The same cloud, rotated into n + 1 coordinates: for n rows of more units than that.

    The last coordinate is what the mean holds beside the span of the centered rows.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = x.mean(0, dtype=torch.float64)
    axes, triangle = torch.linalg.qr((x - mean.to(x.dtype)).T)
    inside = axes.T.double() @ mean
    outside = torch.linalg.vector_norm(mean - axes.double() @ inside)
    center = torch.cat([inside, outside[None]]).to(x.dtype)
    return torch.nn.functional.pad(triangle.T, (0, 1)) + center


def numbers(batch: Batch) -> Tensor:
    """The number of each row's sample; rows are samples where nothing is said."""
    if batch.samples is not None:
        return batch.samples
    return torch.arange(len(batch), device=batch.x.device)


def coarsened(statistic: Any, precision: float) -> Any:
    """A statistic that knows that its rows were no finer than that before they were converted."""
    changes: dict[str, Any] = {}
    for field in fields(statistic):
        part = getattr(statistic, field.name)
        if field.name == "precision":
            changes[field.name] = max(part, precision)
        elif is_dataclass(part):
            changes[field.name] = coarsened(part, precision)
    return replace(statistic, **changes) if changes and precision else statistic


def dealt(samples: Int[Tensor, " n"], blocks: int) -> Int[Tensor, " n"]:
    """The block of each sample.

    >>> [dealt(torch.arange(6), 3)[i : i + 3].sort().values.tolist() for i in (0, 3)]
    [[0, 1, 2], [0, 1, 2]]
    """
    first = samples - samples % blocks
    keys = scattered(first[:, None] + torch.arange(blocks, device=samples.device))
    return (keys < scattered(samples)[:, None]).sum(1)


def covering(kinds: Iterable[Kind]) -> list[Kind]:
    """The fewest statistics in which all these can be read: one product in place of three."""
    wanted = set(kinds)
    if {ClassMoments, JointMoments} <= wanted:
        wanted.add(JointClassMoments)
    return [k for k in sorted(wanted, key=str) if not any(k in other.contains for other in wanted)]


def read(kind: Kind, sums: dict[Kind, Statistic]) -> Statistic:
    """One kind out of sums of the kinds that cover it."""
    return next(s.read(kind) for k, s in sums.items() if k is kind or kind in k.contains)


def check_memory(
    layers: dict[str, Batch], kinds: Sequence[Kind], blocks: int, limit: float | None
) -> None:
    """Refuse, after the first batch and before the work, what would not fit.

    Args:
        layers: the first batch.
        limit: in GiB; None for half of what is free.

    Raises:
        MemoryRefused: with the estimate, the largest layer and what to do.
    """
    sizes = {name: 8 * sum(k.size(*_widths(b)) for k in kinds) for name, b in layers.items()}
    # every layer keeps its blocks; one at a time is summed up with each of its blocks left out
    need = blocks * sum(sizes.values()) + (blocks + 2) * max(sizes.values(), default=0)
    allowed = limit * 2**30 if limit is not None else free_memory() / 2
    if need > allowed:
        widest = max(sizes, key=lambda name: sizes[name])
        raise MemoryRefused(
            f"{len(sizes)} layers would hold {need / 2**30:.2f} GiB of moments, and "
            f"{allowed / 2**30:.2f} GiB are allowed. The widest is {widest!r} with "
            f"{layers[widest].x.shape[1]} units. Choose view='mean', fewer layers or no interval, "
            "or raise memory_limit (GiB)."
        )


def _finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x.sum(dtype=torch.float64)))


def _widths(batch: Batch) -> tuple[int, int, int]:
    beside = batch.outputs if batch.other is None else batch.other
    outputs = 0 if beside is None else beside.shape[1]
    classes = 0 if batch.labels is None else len(torch.unique(batch.labels))
    return batch.x.shape[1], outputs, classes
