"""Second moments of activations together with the model's outputs."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ._base import Batch, Statistic, required_outputs
from ._centering import center, double, pooled_weight
from .classes import ClassMoments, members
from .moments import Moments


@dataclass(frozen=True)
class JointMoments(Statistic):
    """Moments of features (d units), of outputs (c of them), and the scatter across.

    Outputs are taken in float64: which of their directions count as noise is decided by variances
    ten orders apart, which products in float32 would drown. `resolution` is the relative spacing
    of the outputs as the model gave them.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"outputs"})
    contains: ClassVar[dict[type[Statistic], str]] = {Moments: "features"}

    features: Moments
    outputs: Moments
    cross: Float[Tensor, "d c"]
    resolution: float

    @classmethod
    def of(cls, batch: Batch) -> "JointMoments":
        outputs = required_outputs(batch)
        x, f = center(batch.x), center(double(outputs))
        return cls(
            Moments(x.counts[0], x.means[0], x.product(x)),
            Moments(f.counts[0], f.means[0], f.product(f)),
            x.product(f),
            torch.finfo(outputs.dtype).eps,
        )

    def __add__(self, other: "JointMoments") -> "JointMoments":
        gap = other.features.mean - self.features.mean
        output_gap = other.outputs.mean - self.outputs.mean
        between = torch.outer(gap, output_gap * pooled_weight(self.n, other.n))
        return JointMoments(
            self.features + other.features,
            self.outputs + other.outputs,
            self.cross + other.cross + between,
            max(self.resolution, other.resolution),
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.features.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return d * d + c * d + c * c


@dataclass(frozen=True)
class JointClassMoments(Statistic):
    """Features and outputs about the means of their classes: all other moments from one product."""

    requires: ClassVar[frozenset[str]] = frozenset({"labels", "outputs"})
    contains: ClassVar[dict[type[Statistic], str]] = {
        Moments: "pooled",
        ClassMoments: "features",
        JointMoments: "joint",
    }

    features: ClassMoments
    outputs: ClassMoments
    within: Float[Tensor, "d c"]
    resolution: float

    @classmethod
    def of(cls, batch: Batch) -> "JointClassMoments":
        outputs = required_outputs(batch)
        classes, member = members(batch)
        x = center(batch.x, member, len(classes))
        f = center(double(outputs), member, len(classes))
        classes = classes.to(x.means.device)
        return cls(
            ClassMoments(classes, x.counts, x.means, x.product(x)),
            ClassMoments(classes, f.counts, f.means, f.product(f)),
            x.product(f),
            torch.finfo(outputs.dtype).eps,
        )

    def __add__(self, other: "JointClassMoments") -> "JointClassMoments":
        features, outputs = self.features + other.features, self.outputs + other.outputs
        a, b = self.features.on(features.classes), other.features.on(features.classes)
        gap = (b.means - a.means) * pooled_weight(a.counts, b.counts)[:, None]
        a, b = self.outputs.on(features.classes), other.outputs.on(features.classes)
        between = gap.T @ (b.means - a.means)
        return JointClassMoments(
            features,
            outputs,
            self.within + other.within + between,
            max(self.resolution, other.resolution),
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.features.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return (d + c) * (d + k) + c * c

    @property
    def pooled(self) -> Moments:
        """The moments of the features of all classes together."""
        return self.features.pooled

    @cached_property
    def joint(self) -> JointMoments:
        """Features with outputs of all classes together."""
        x, f = self.features.pooled, self.outputs.pooled
        gap = (self.features.means - x.mean) * self.features.counts[:, None]
        cross = self.within + gap.T @ (self.outputs.means - f.mean)
        return JointMoments(x, f, cross, self.resolution)
