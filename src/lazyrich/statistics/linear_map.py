"""One linear map inside a network: its weights, and the gradients of the outputs at it."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from .gradients import GradientMoments

_SILENT = (
    "no output depends on this layer: all gradients are zero, or the model cuts them off "
    "(detach, torch.no_grad)"
)
_ROUNDING = 1e-12  # eigenvalues below so much of the largest


@dataclass(frozen=True)
class LinearMap:
    """z = W h, wherever a network does that.

    Attributes:
        weight: W.
        gradients: of the network's outputs with respect to z where w <= d, else to h.
        initial: W at the start of training, where it is known.
        trivial: whether the outputs are z itself, up to a shift.
        probes: random mixtures of outputs that stand for all of them; 0 where none do.
    """

    weight: Float[Tensor, "w d"]
    gradients: GradientMoments
    initial: Float[Tensor, "w d"] | None = None
    trivial: bool = False
    probes: int = 0

    def weights(self, change: bool) -> Float[Tensor, "w d"]:
        """W, or how far training has moved it.

        Raises:
            Undefined: the start of training is not known, or nothing has moved.
        """
        if not change:
            return self.weight
        if self.initial is None:
            raise Undefined("the weights at the start of training are not known: pass initial=...")
        return self.weight - self.initial

    def factor(self, power: float, center: bool = False) -> Float[Tensor, "m d"]:
        """F with F'F = AGOP^power and no more rows than min(w, d): no matrix of d x d is made.

        Raises:
            Undefined: the gradients vanish, or are to be centered and come from random mixtures.
        """
        root = self._centered if center else self._plain
        if power == 1:
            return root
        values, directions = torch.linalg.eigh(root @ root.T)
        kept = values > _ROUNDING * values[-1]
        values, directions = values[kept], directions[:, kept]
        powered: Tensor = (values ** ((power - 1) / 2))[:, None] * (directions.T @ root)
        return powered

    @property
    def agop_diagonal(self) -> Float[Tensor, " d"]:
        """Of the AGOP, without its factor.

        Raises:
            Undefined: the gradients vanish.
        """
        moments = self.gradients.mean
        if self._on_outputs(moments):
            diagonal = (self.weight * (moments @ self.weight)).sum(0)
        else:
            diagonal = moments.diagonal()
        if not bool((diagonal > 0).any()):
            raise Undefined(_SILENT)
        return diagonal.clamp(min=0)

    def halves(self) -> list[Float[Tensor, "m d"]]:
        """Factors of the two independent estimates, where the gradients are of random mixtures."""
        moments = self.gradients
        return [self._root(outer / moments.n) for outer in moments.outer]

    @cached_property
    def _plain(self) -> Float[Tensor, "m d"]:
        return self._root(self.gradients.mean)

    @cached_property
    def _centered(self) -> Float[Tensor, "m d"]:
        if self.probes:
            raise Undefined("means of single outputs are not known from random mixtures of them")
        rounding = _ROUNDING * float(self.gradients.mean.trace())
        if float(self.gradients.centered.trace()) <= rounding:
            raise Undefined("the gradients are the same for every sample")
        return self._root(self.gradients.centered)

    def _root(self, moments: Float[Tensor, "m m"]) -> Float[Tensor, "k d"]:
        values, directions = torch.linalg.eigh(moments)
        kept = values > _ROUNDING * values[-1].clamp(min=0)
        if not bool(kept.any()) or not float(values[-1]) > 0:
            raise Undefined(_SILENT)
        root: Tensor = values[kept].sqrt()[:, None] * directions[:, kept].T
        return root @ self.weight if self._on_outputs(moments) else root

    def _on_outputs(self, moments: Float[Tensor, "m m"]) -> bool:
        return len(moments) == len(self.weight) <= self.weight.shape[1]


def top_directions(
    factor: Float[Tensor, "m d"], k: int
) -> tuple[Float[Tensor, " k"], Float[Tensor, "k d"]]:
    """The k largest eigenvalues of F'F, and their directions in rows; fewer where the rank is less.

    Signs are chosen so that the largest entry is positive.
    """
    _, sizes, directions = torch.linalg.svd(factor, full_matrices=False)
    directions = directions[:k]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    return sizes[:k].square(), directions * largest.sign()
