"""The rows themselves, for measures that compare samples one by one."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ._base import Batch, Statistic


@dataclass(frozen=True)
class Points(Statistic):
    """All rows, in the order of their sample numbers: meant for a probe, not for a data set."""

    x: Float[Tensor, "n d"]
    samples: Int[Tensor, " n"]

    @classmethod
    def of(cls, batch: Batch) -> "Points":
        samples = batch.samples
        if samples is None:
            samples = torch.arange(len(batch), device=batch.x.device)
        order = samples.argsort(stable=True)
        return cls(batch.x[order], samples[order])

    def __add__(self, other: "Points") -> "Points":
        both = Batch(torch.cat([self.x, other.x]), samples=torch.cat([self.samples, other.samples]))
        return Points.of(both)

    @property
    def n(self) -> Float[Tensor, ""]:
        return torch.tensor(len(self.x), dtype=torch.float64)

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        return 1024 * d  # a probe of usual size: how many rows will come is not known

    def beside(self, other: "Points") -> tuple[Float[Tensor, "m d"], Float[Tensor, "m e"]]:
        """The rows of the samples that both have, side by side, in float64."""
        mine = torch.isin(self.samples, other.samples)
        theirs = torch.isin(other.samples, self.samples)
        return self.x[mine].double(), other.x[theirs].double().to(self.x.device)
