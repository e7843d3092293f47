"""Moments of a labelled point cloud, split into between and within classes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ._base import Batch, Statistic, required_labels, sum_of
from ._centering import Centered, center, double, pooled_weight, share
from ._tails import Tail
from .moments import FourthMoments, Moments

NO_LABEL = -100
"""The label of rows that have none: the one that torch's losses ignore."""


@dataclass(frozen=True)
class ClassMoments(Statistic):
    """Count and mean of each of the k classes seen, and the scatter within them: one pass.

    The scatter within is a sum of squares about each class's own mean, never a difference of
    larger numbers, so that it keeps its digits when a network collapses. A class that no row
    belongs to does not exist. Rows without a label count among all rows and in no class.

    Attributes:
        classes: the labels seen, in order.
        squares: squared distances of each class's rows from its mean, summed.
        tail: of the labelled rows, about their common mean.
        precision: see `Moments`.
        unlabelled: the rows without a label, if there are any.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels"})
    contains: ClassVar[dict[type[Statistic], str]] = {Moments: "pooled", FourthMoments: "fourth"}

    classes: Int[Tensor, " k"]
    counts: Float[Tensor, " k"]
    means: Float[Tensor, "k d"]
    squares: Float[Tensor, " k"]
    within: Float[Tensor, "d d"]
    tail: Tail
    precision: float
    unlabelled: FourthMoments | None = None

    @classmethod
    def of(cls, batch: Batch) -> "ClassMoments":
        batch, rest = by_label(batch)
        classes, member = members(batch)
        found = cls.within_groups(batch.x, center(batch.x, member, len(classes)), classes, member)
        return found if rest is None else replace(found, unlabelled=FourthMoments.of(rest))

    @classmethod
    def within_groups(
        cls,
        x: Float[Tensor, "n d"],
        centered: Centered,
        classes: Int[Tensor, " k"],
        member: Int[Tensor, " n"],
    ) -> "ClassMoments":
        """From rows and the same about the means of their classes."""
        counts, means = centered.counts, centered.means
        common = counts @ means / counts.sum().clamp(min=1)
        return cls(
            classes.to(means.device),
            counts,
            means,
            centered.squares,
            centered.scatter(),
            Tail.of(x, common),
            centered.precision,
        )

    def __add__(self, other: "ClassMoments") -> "ClassMoments":
        classes = torch.unique(torch.cat([self.classes, other.classes]))
        a, b = self.on(classes), other.on(classes)
        weight, gap = pooled_weight(a.counts, b.counts), b.means - a.means
        shared = weight > 0
        counts = a.counts + b.counts
        means = a.means + gap * share(a.counts, b.counts)[:, None]
        common = counts @ means / counts.sum().clamp(min=1)
        return ClassMoments(
            classes,
            counts,
            means,
            a.squares + b.squares + weight * gap.square().sum(1),
            (a.within + b.within).addmm_(gap[shared].T, (gap * weight[:, None])[shared]),
            a._tail_about(common) + b._tail_about(common),
            max(a.precision, b.precision),
            sum_of(a.unlabelled, b.unlabelled),
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        """Rows with and without a label."""
        return self.labelled if self.unlabelled is None else self.labelled + self.unlabelled.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return d * d + k * (d + 3) + 3 * d

    @property
    def labelled(self) -> Float[Tensor, ""]:
        """Rows with a label."""
        return self.counts.sum()

    @property
    def mean(self) -> Float[Tensor, " d"]:
        """Of the rows with a label."""
        return self.counts @ self.means / self.labelled.clamp(min=1)

    @cached_property
    def known(self) -> Moments:
        """Moments of the rows with a label, of all classes together."""
        gaps = self.means - self.mean
        scatter = torch.addmm(self.within, gaps.T, gaps * self.counts[:, None])
        return Moments(self.labelled, self.mean, scatter, self.precision)

    @cached_property
    def pooled(self) -> Moments:
        """Moments of all rows."""
        return self.known if self.unlabelled is None else self.known + self.unlabelled.moments

    @cached_property
    def fourth(self) -> FourthMoments:
        """Moments of all rows, with their tail."""
        known = FourthMoments(self.known, self.tail)
        return known if self.unlabelled is None else known + self.unlabelled

    def on(self, classes: Int[Tensor, " m"]) -> "ClassMoments":
        """The same on a larger, sorted set of classes; the new ones are empty."""
        if len(classes) == len(self.classes):
            return self
        at = torch.searchsorted(classes, self.classes)
        counts, squares = self.counts.new_zeros(2, len(classes)).index_copy(
            1, at, torch.stack([self.counts, self.squares])
        )
        means = self.means.new_zeros(len(classes), self.means.shape[1])
        means = means.index_copy(0, at, self.means)
        return replace(self, classes=classes, counts=counts, means=means, squares=squares)

    def _tail_about(self, center: Float[Tensor, " d"]) -> Tail:
        gap, gaps = center - self.mean, self.means - self.mean
        along = self.within @ gap + (self.counts * (gaps @ gap)) @ gaps
        squares = self.within.diag() + self.counts @ gaps.square()
        return self.tail.about(gap, self.labelled, squares, along)


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How many rows carry each label; those without one are left out."""

    classes: Int[Tensor, " k"]
    counts: Float[Tensor, " k"]

    @classmethod
    def of(cls, batch: Batch) -> "ClassCounts | None":
        """None where the data brings no labels."""
        if batch.labels is None:
            return None
        classes, counts = torch.unique(batch.labels[has_label(batch)], return_counts=True)
        counts = double(counts)
        return cls(classes.to(counts.device), counts)

    def __add__(self, other: "ClassCounts") -> "ClassCounts":
        both = torch.cat([self.classes, other.classes])
        classes, at = torch.unique(both, return_inverse=True)
        counts = torch.cat([self.counts, other.counts])
        return ClassCounts(classes, counts.new_zeros(len(classes)).index_add(0, at, counts))


def members(batch: Batch) -> tuple[Int[Tensor, " k"], Int[Tensor, " n"]]:
    """The classes of a batch, sorted, and which of them each row belongs to."""
    classes, member = torch.unique(required_labels(batch), return_inverse=True)
    return classes, member


def has_label(batch: Batch) -> Bool[Tensor, " n"]:
    """Which rows have a label."""
    return required_labels(batch) != NO_LABEL


def by_label(batch: Batch) -> tuple[Batch, Batch | None]:
    """The rows with a label, and those without one if there are any."""
    known = has_label(batch)
    if bool(known.all()):
        return batch, None
    return batch.rows(known), batch.rows(~known)
