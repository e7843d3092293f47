"""Second moments of gradients at one linear map, from any number of samples and outputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class GradientMoments:
    """Sums over samples, positions and outputs of the outer products of gradients.

    The laws are those of a `Statistic`: `of(a ++ b) == of(a) + of(b)`, and `+` is associative.

    Attributes:
        n: samples.
        rows: samples times positions: tokens, places of a kernel, calls.
        sums: of the gradients of each output, or mixture of outputs, over rows.
        outer: sums of outer products over rows and outputs. Where random mixtures stand for the
            outputs there are two, from every other mixture each: estimates of the same sum that
            know nothing of each other.
    """

    n: Float[Tensor, ""]
    rows: Float[Tensor, ""]
    sums: Float[Tensor, "c w"]
    outer: Float[Tensor, "halves w w"]

    @classmethod
    def of(cls, gradients: Float[Tensor, "n p w"]) -> "GradientMoments":
        """Of one output: n samples and p positions. No mean is taken off; it is part of it."""
        n, p, w = gradients.shape
        rows = gradients.reshape(n * p, w)
        counts = torch.tensor([n, n * p], dtype=torch.float64, device=rows.device)
        outer = (rows.T @ rows).double()
        return cls(counts[0], counts[1], rows.double().sum(0, keepdim=True), outer[None])

    @classmethod
    def over_outputs(
        cls, each: "Sequence[GradientMoments]", *, mixtures: bool = False
    ) -> "GradientMoments":
        """Of all outputs of the same samples, or of an even number of mixtures of them."""
        outer = torch.cat([m.outer for m in each])
        if mixtures:
            halves = torch.stack([outer[half::2].mean(0) for half in (0, 1)])
        else:
            halves = outer.sum(0, keepdim=True)
        return cls(each[0].n, each[0].rows, torch.cat([m.sums for m in each]), halves)

    def __add__(self, other: "GradientMoments") -> "GradientMoments":
        return GradientMoments(
            self.n + other.n,
            self.rows + other.rows,
            self.sums + other.sums,
            self.outer + other.outer,
        )

    @property
    def mean(self) -> Float[Tensor, "w w"]:
        """The sum of outer products, a sample."""
        return self.outer.mean(0) / self.n

    @property
    def centered(self) -> Float[Tensor, "w w"]:
        """The same with the mean gradient of each output taken off; not of mixtures."""
        return (self.outer[0] - self.sums.T @ self.sums / self.rows) / self.n
