"""Moments of a labelled point cloud, split into between and within classes."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._base import Batch, Statistic, required_labels
from ._centering import center, pooled_weight, share
from .moments import Moments


@dataclass(frozen=True)
class ClassMoments(Statistic):
    """Count and mean of each of the k classes seen, and the scatter within them: one pass.

    The scatter within is a sum of squares about each class's own mean, never a difference of
    larger numbers, so that it keeps its digits when a network collapses.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels"})
    contains: ClassVar[dict[type[Statistic], str]] = {Moments: "pooled"}

    classes: Int[Tensor, " k"]
    counts: Float[Tensor, " k"]
    means: Float[Tensor, "k d"]
    within: Float[Tensor, "d d"]

    @classmethod
    def of(cls, batch: Batch) -> "ClassMoments":
        classes, member = members(batch)
        x = center(batch.x, member, len(classes))
        return cls(classes.to(x.means.device), x.counts, x.means, x.product(x))

    def __add__(self, other: "ClassMoments") -> "ClassMoments":
        classes = torch.unique(torch.cat([self.classes, other.classes]))
        a, b = self.on(classes), other.on(classes)
        gap = b.means - a.means
        between = gap.T @ (gap * pooled_weight(a.counts, b.counts)[:, None])
        return ClassMoments(
            classes,
            a.counts + b.counts,
            a.means + gap * share(a.counts, b.counts)[:, None],
            a.within + b.within + between,
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.counts.sum()

    @cached_property
    def pooled(self) -> Moments:
        """The moments of all classes together."""
        mean = self.counts @ self.means / self.n.clamp(min=1)
        gap = self.means - mean
        return Moments(self.n, mean, self.within + gap.T @ (gap * self.counts[:, None]))

    def on(self, classes: Int[Tensor, " m"]) -> "ClassMoments":
        """The same on a larger, sorted set of classes; the new ones are empty."""
        if len(classes) == len(self.classes):
            return self
        at = torch.searchsorted(classes, self.classes)
        counts = self.counts.new_zeros(len(classes)).index_copy(0, at, self.counts)
        means = self.means.new_zeros(len(classes), self.means.shape[1])
        return ClassMoments(classes, counts, means.index_copy(0, at, self.means), self.within)


def members(batch: Batch) -> tuple[Int[Tensor, " k"], Int[Tensor, " n"]]:
    """The classes of a batch, sorted, and which of them each row belongs to."""
    classes, member = torch.unique(required_labels(batch), return_inverse=True)
    return classes, member
