"""Second moments of activations together with the model's outputs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ._base import Batch, Statistic, required_outputs, sum_of
from ._centering import center, double, pooled_weight
from ._tails import Tail
from .classes import ClassCounts, ClassMoments, by_label, members
from .moments import FourthMoments, Moments


@dataclass(frozen=True)
class JointMoments(Statistic):
    """Moments of features (d units), of outputs (c of them), and the scatter across.

    Outputs are taken in float64: which of their directions count as noise is decided by variances
    ten orders apart, which products in float32 would drown.

    Attributes:
        features: with their tail.
        cross: scatter of features with outputs.
        resolution: relative spacing of the outputs as the model gave them.
        labels: how often each was seen, where the data brings labels.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"outputs"})
    contains: ClassVar[dict[type[Statistic], str]] = {
        Moments: "pooled",
        FourthMoments: "features",
    }

    features: FourthMoments
    outputs: Moments
    cross: Float[Tensor, "d c"]
    resolution: float
    labels: ClassCounts | None = None

    @classmethod
    def of(cls, batch: Batch) -> "JointMoments":
        outputs = required_outputs(batch)
        x, f = center(batch.x), center(double(outputs))
        features = Moments(x.counts[0], x.means[0], x.scatter(), x.precision)
        return cls(
            FourthMoments(features, Tail.of(batch.x, features.mean)),
            Moments(f.counts[0], f.means[0], f.scatter()),
            x.product(f),
            torch.finfo(outputs.dtype).eps,
            ClassCounts.of(batch),
        )

    def __add__(self, other: "JointMoments") -> "JointMoments":
        gap = other.pooled.mean - self.pooled.mean
        output_gap = other.outputs.mean - self.outputs.mean
        return JointMoments(
            self.features + other.features,
            self.outputs + other.outputs,
            (self.cross + other.cross).addr_(gap, output_gap * pooled_weight(self.n, other.n)),
            max(self.resolution, other.resolution),
            sum_of(self.labels, other.labels),
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.features.n

    @property
    def pooled(self) -> Moments:
        """Moments of the features."""
        return self.features.moments

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return d * (d + 2) + c * (d + c + 1) + 2 * k


@dataclass(frozen=True)
class JointClassMoments(Statistic):
    """Features and outputs about the means of their classes: all other moments from one product.

    `unlabelled` holds the rows without a label, if there are any; the other fields know nothing
    of them.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"labels", "outputs"})
    contains: ClassVar[dict[type[Statistic], str]] = {
        Moments: "pooled",
        FourthMoments: "fourth",
        ClassMoments: "by_class",
        JointMoments: "joint",
    }

    features: ClassMoments
    outputs: ClassMoments
    within: Float[Tensor, "d c"]
    resolution: float
    unlabelled: JointMoments | None = None

    @classmethod
    def of(cls, batch: Batch) -> "JointClassMoments":
        batch, rest = by_label(batch)
        outputs = required_outputs(batch)
        classes, member = members(batch)
        x = center(batch.x, member, len(classes))
        f = center(double(outputs), member, len(classes))
        return cls(
            ClassMoments.within_groups(batch.x, x, classes, member),
            ClassMoments.within_groups(outputs, f, classes, member),
            x.product(f),
            torch.finfo(outputs.dtype).eps,
            None if rest is None else JointMoments.of(rest),
        )

    def __add__(self, other: "JointClassMoments") -> "JointClassMoments":
        features, outputs = self.features + other.features, self.outputs + other.outputs
        a, b = self.features.on(features.classes), other.features.on(features.classes)
        weight = pooled_weight(a.counts, b.counts)
        shared = weight > 0
        gap = (b.means - a.means)[shared] * weight[shared, None]
        a, b = self.outputs.on(features.classes), other.outputs.on(features.classes)
        return JointClassMoments(
            features,
            outputs,
            (self.within + other.within).addmm_(gap.T, (b.means - a.means)[shared]),
            max(self.resolution, other.resolution),
            sum_of(self.unlabelled, other.unlabelled),
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        """Rows with and without a label."""
        labelled = self.features.labelled
        return labelled if self.unlabelled is None else labelled + self.unlabelled.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return (d + c) * (d + k + 2) + c * c + 3 * k

    @cached_property
    def by_class(self) -> ClassMoments:
        """Moments of the features by class."""
        if self.unlabelled is None:
            return self.features  # and what it has worked out already
        return replace(self.features, unlabelled=self.unlabelled.features)

    @property
    def pooled(self) -> Moments:
        """Moments of the features of all rows."""
        return self.joint.pooled

    @property
    def fourth(self) -> FourthMoments:
        """Moments of the features of all rows, with their tail."""
        return self.joint.features

    @cached_property
    def joint(self) -> JointMoments:
        """Features with outputs of all rows."""
        x, f = self.features, self.outputs
        gap = (x.means - x.mean) * x.counts[:, None]
        known = JointMoments(
            FourthMoments(x.known, x.tail),
            f.known,
            self.within + gap.T @ (f.means - f.mean),
            self.resolution,
            ClassCounts(x.classes, x.counts),
        )
        return known if self.unlabelled is None else known + self.unlabelled
