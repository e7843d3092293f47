"""A kernel over samples, with what it was before and what it is to explain."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined


@dataclass(frozen=True)
class TangentKernel:
    """A symmetric kernel in float64; over samples, or over samples and outputs side by side.

    Attributes:
        matrix: K.
        initial: K at the start of training, where it is known.
        targets: what is to be learned, as columns, where that is known.
        whole: the kernel of the whole model, where this is a layer's part of it.
        precision: of the numbers it was made of, as the distance from 1 to the next one.
    """

    matrix: Float[Tensor, "n n"]
    initial: Float[Tensor, "n n"] | None = None
    targets: Float[Tensor, "n c"] | None = None
    whole: "TangentKernel | None" = None
    precision: float = 2.0**-52

    def nonzero(self) -> Float[Tensor, "n n"]:
        """K.

        Raises:
            Undefined: all of it is zero.
        """
        if not self.matrix.any():
            raise Undefined("the kernel is zero: no output depends on these parameters")
        return self.matrix

    def start(self) -> Float[Tensor, "n n"]:
        """K at the start of training.

        Raises:
            Undefined: it is not known, or zero.
        """
        if self.initial is None:
            raise Undefined("the kernel at the start of training is not known: pass initial=...")
        if not self.initial.any():
            raise Undefined("the kernel at the start of training is zero")
        return self.initial

    def aims(self) -> Float[Tensor, "n c"]:
        """The targets, centered.

        Raises:
            Undefined: they are not known, or do not vary.
        """
        if self.targets is None:
            raise Undefined("what is to be learned is not known: pass labels=...")
        aims = self.targets - self.targets.mean(0)
        if not aims.any():
            raise Undefined("the targets are the same for every sample")
        return aims

    @cached_property
    def principal(self) -> tuple[Float[Tensor, " r"], Float[Tensor, "n r"]]:
        """Eigenvalues above rounding, from the largest, and their directions as columns.

        Raises:
            Undefined: all of it is zero.
        """
        values, axes = torch.linalg.eigh(self.nonzero())
        kept = values.flip(0) > len(values) * self.precision * values[-1]
        return values.flip(0)[kept], axes.flip(1)[:, kept]
