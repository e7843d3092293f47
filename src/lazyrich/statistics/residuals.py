"""What the outputs leave unexplained of each row, from a second reading of the data."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ..errors import MissingInput
from ._base import Batch, Statistic
from .joint import JointMoments


@dataclass(frozen=True)
class Residuals(Statistic):
    """Moments of a second reading, with the squared residuals of its rows.

    Attributes:
        joint: moments of the same rows.
        squared: sum over rows of the squared residual, over the share of the noise that it keeps;
            by reading of the outputs.
        counted: rows in each sum: those that the outputs do not fit whatever they are.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"outputs"})
    contains: ClassVar[dict[type[Statistic], str]] = {JointMoments: "joint"}

    joint: JointMoments
    squared: Float[Tensor, " kinds"]
    counted: Float[Tensor, " kinds"]

    @classmethod
    def of(cls, batch: Batch) -> "Residuals":
        joint = JointMoments.of(batch)
        if batch.residuals is None:
            raise MissingInput(
                "residuals are known from a first reading of the data: "
                "give batches that `beside_outputs` returns."
            )
        known = ~batch.residuals.isnan()
        return cls(joint, batch.residuals.nansum(0), known.sum(0).to(batch.residuals))

    def __add__(self, other: "Residuals") -> "Residuals":
        return Residuals(
            self.joint + other.joint, self.squared + other.squared, self.counted + other.counted
        )

    @property
    def n(self) -> Float[Tensor, ""]:
        return self.joint.n

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return JointMoments.size(d, c, k) + 6
