"""A few points of every class: what measures need that no moments can give."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._base import Batch, Statistic, required_labels
from ._centering import double, working
from .classes import has_label

KEPT = 256
"""Points of a class that are kept at most."""


@dataclass(frozen=True, eq=False)
class Clouds(Statistic):
    """At most 256 points of each class: those whose sample numbers hash lowest.

    The hash decides, not the order of arrival, so that any split into batches or processes keeps
    the same points, and all layers keep those of the same samples. Numbers must differ between
    batches. Rows that share a number within a batch (tokens) are told apart by their place; rows
    without numbers are known by their values. Rows without a label are counted, not kept.

    Points are stored as they came, in float32 at least.

    Attributes:
        rows: rows seen, with and without a label.
        classes: labels seen, sorted.
        counts: rows seen of each class.
        points: rows kept, by class and then by hash.
        labels: class of each row kept.
        priorities: hash of each row kept.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels"})

    rows: Float[Tensor, ""]
    classes: Int[Tensor, " k"]
    counts: Float[Tensor, " k"]
    points: Float[Tensor, "m d"]
    labels: Int[Tensor, " m"]
    priorities: Int[Tensor, " m"]

    @classmethod
    def of(cls, batch: Batch) -> "Clouds":
        rows = torch.tensor(len(batch), dtype=torch.float64)
        batch = batch.rows(has_label(batch))
        labels = required_labels(batch).to(batch.x.device).long()
        classes, counts = torch.unique(labels, return_counts=True)
        kept, priorities = _lowest(labels, _priorities(batch))
        points = working(batch.x[kept])
        return cls(rows, classes, double(counts), points, labels[kept], priorities)

    def __add__(self, other: "Clouds") -> "Clouds":
        classes, member = torch.unique(
            torch.cat([self.classes, other.classes]), return_inverse=True
        )
        seen = torch.cat([self.counts, other.counts])
        labels = torch.cat([self.labels, other.labels])
        kept, priorities = _lowest(labels, torch.cat([self.priorities, other.priorities]))
        return Clouds(
            self.rows + other.rows,
            classes,
            seen.new_zeros(len(classes)).index_add_(0, member.to(seen.device), seen),
            torch.cat([self.points, other.points])[kept],
            labels[kept],
            priorities,
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.rows

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        """With every class full, of float32 points; float64 ones take twice as much."""
        return k * (KEPT * (d // 2 + 2) + 2) + 1

    def cloud(self, label: int) -> Float[Tensor, "m d"]:
        """The points kept of one class, by hash."""
        return self.points[self.labels == label]


def scattered(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """A hash of each number: neighbors come out unrelated, the same number always the same.

    >>> scattered(torch.tensor([1, 2, 1])) >> 40
    tensor([-7271891, -6858699, -7271891])

    Reference: the finalizer of SplitMix64, Steele, Lea & Flood (2014).
    """
    z = numbers + -0x61C8864680B583EB
    z = (z ^ _shifted(z, 30)) * -0x40A7B892E31B1A47
    z = (z ^ _shifted(z, 27)) * -0x6B2FB644ECCEEE15
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & ((1 << (64 - bits)) - 1)  # the sign bit is a bit like any other


def _priorities(batch: Batch) -> Int[Tensor, " n"]:
    """A hash of each row's sample number and of its place among the rows of that sample."""
    if batch.samples is None:
        exact = double(working(batch.x)).view(torch.int64)
        column = torch.arange(exact.shape[1], device=exact.device)
        return scattered(scattered(exact + scattered(column)).sum(1)).to(batch.x.device)
    samples = batch.samples.to(batch.x.device).long()
    order = torch.argsort(samples, stable=True)
    _, repeats = torch.unique_consecutive(samples[order], return_counts=True)
    place = torch.empty_like(samples)
    first = (repeats.cumsum(0) - repeats).repeat_interleave(repeats)
    place[order] = torch.arange(len(samples), device=samples.device) - first
    return scattered(scattered(samples) + place)


def _lowest(
    labels: Int[Tensor, " n"], priorities: Int[Tensor, " n"]
) -> tuple[Int[Tensor, " m"], Int[Tensor, " m"]]:
    """Which rows to keep, by class and then by priority, and their priorities."""
    order = torch.argsort(priorities, stable=True)
    order = order[torch.argsort(labels[order], stable=True)]
    _, sizes = torch.unique_consecutive(labels[order], return_counts=True)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    kept = order[torch.arange(len(order), device=order.device) - first < KEPT]
    return kept, priorities[kept]
