"""A fitted machine: a metric that was learned, and a function that is a sum of kernels in it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ._kernel import Kernel, blocks, squared_distances
from ._outer_products import Expansion

Normalization = Literal["trace", "max"] | None


@dataclass(frozen=True)
class Metric:
    """M of the distance sqrt((x - y)' M (x - y)), in float64.

    Attributes:
        matrix: M, or its diagonal where that is all of it.
        root: the symmetric root of M, likewise.
    """

    matrix: Float[Tensor, "*rows d"]
    root: Float[Tensor, "*rows d"]

    @classmethod
    def euclidean(cls, d: int, *, diagonal: bool, device: torch.device) -> "Metric":
        ones = torch.ones(d, dtype=torch.float64, device=device)
        start = ones if diagonal else ones.diag()
        return cls(start, start)

    @classmethod
    def of(cls, matrix: Float[Tensor, "*rows d"]) -> "Metric":
        return cls(matrix, _root(matrix))

    def cpu(self) -> "Metric":
        return Metric(self.matrix.cpu(), self.root.cpu())

    def coordinates(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Whose Euclidean distance is the distance of this metric."""
        root = self.root.to(x.dtype)
        return x * root if root.ndim == 1 else x @ root

    def following(self, agop: Float[Tensor, "*rows d"], rule: Normalization) -> "Metric":
        """The metric that an AGOP in these coordinates makes.

        A function without slopes says nothing of a better metric, and leaves this one.
        """
        if self.root.ndim == 1:
            matrix = self.matrix * agop
            trace, largest = matrix.sum(), matrix.max()
        else:
            matrix = self.root @ agop @ self.root
            trace, largest = matrix.trace(), matrix.max()
        if not float(trace) > 0:
            return self
        if rule is not None:
            matrix = matrix * (len(matrix) / trace) if rule == "trace" else matrix / largest
        return Metric.of(matrix)


def _root(matrix: Tensor) -> Tensor:
    if matrix.ndim == 1:
        return matrix.clamp(min=0).sqrt()
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    return root


@dataclass(frozen=True)
class Machine:
    """f(x) = offset + sum_i alpha_i K(x, x_i).

    Attributes:
        mean: taken off x before anything else, which changes no distance and keeps the digits.
        metric: where distances are measured.
        kernel: of the distance.
        expansion: centers, in the coordinates of the metric, and their coefficients.
        offset: [c].
    """

    mean: NDArray[np.float64]
    metric: Metric
    kernel: Kernel
    expansion: Expansion
    offset: NDArray[np.float64]

    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """[n, c], of any number of rows at no more memory than some millions of numbers."""
        centers, coefficients = self.expansion.centers, self.expansion.coefficients
        found = np.empty((len(x), coefficients.shape[1]))
        for start, stop in blocks(len(x), max(1, 2**22 // len(centers))):
            rows = torch.from_numpy(x[start:stop] - self.mean).to(centers)
            squared = squared_distances(self.metric.coordinates(rows), centers)
            found[start:stop] = (self.kernel.values(squared) @ coefficients).double().cpu()
        return found + self.offset
