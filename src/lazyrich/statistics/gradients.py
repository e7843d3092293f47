"""Second moments of gradients at one linear map, from any number of samples and outputs."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ._centering import double, in_range, outer_products, working


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
    def of(
        cls, gradients: Iterable[Float[Tensor, "n p w"]], *, mixtures: bool = False
    ) -> "GradientMoments":
        """Of one batch: n samples and p positions, output after output, or mixture after mixture.

        No mean is taken off; it is part of it. Mixtures are even in number.
        """
        running = OutputByOutput(mixtures)
        for each in gradients:
            running.add(each)
        return running.moments()

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


class OutputByOutput:
    """Gathers the moments of one batch while its gradients come, in the memory of one output.

    Args:
        mixtures: whether random mixtures stand for the outputs.
    """

    def __init__(self, mixtures: bool = False) -> None:
        self._mixtures = mixtures
        self._counts = (0, 0)
        self._sums: list[Tensor] = []
        self._outer: list[Tensor] = []

    def add(self, gradients: Float[Tensor, "n p w"]) -> None:
        """The next output, at the same samples."""
        n, p, w = gradients.shape
        rows = working(gradients).reshape(n * p, w)
        outer = outer_products(rows)
        if (wide := in_range(rows, float(outer.trace()))) is not rows:
            outer = outer_products(wide)
        half = len(self._sums) % (1 + self._mixtures)
        if half == len(self._outer):
            self._outer.append(outer)
        else:
            self._outer[half] += outer
        self._counts = (n, n * p)
        self._sums.append(double(rows).sum(0))

    def moments(self) -> GradientMoments:
        """What was added."""
        outer, sums = torch.stack(self._outer), torch.stack(self._sums)
        if self._mixtures:
            outer /= len(sums) // 2
        counts = torch.tensor(self._counts, dtype=torch.float64, device=outer.device)
        return GradientMoments(counts[0], counts[1], sums, outer)
