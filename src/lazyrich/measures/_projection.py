"""The projection onto what the outputs span, from moments: the other half of D_LR."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import JointMoments

Kind = Literal["literal", "span", "gauge"]
_WEAK = 1e-4  # of the strongest output direction's variance


class Outputs(NamedTuple):
    """The outputs as one reading of D_LR takes them.

    Attributes:
        spread: covariance of the outputs.
        mean: of the outputs.
        cross: covariance of features with outputs.
        noise: share of the strongest direction's variance below which a direction is rounding.
        raw: whether the span is that of the raw outputs, or of the centered ones.
    """

    spread: Float[Tensor, "c c"]
    mean: Float[Tensor, " c"]
    cross: Float[Tensor, "d c"]
    noise: float
    raw: bool

    @classmethod
    def of(cls, j: JointMoments, kind: Kind) -> "Outputs":
        spread, mean, cross = j.outputs.covariance, j.outputs.mean, j.cross / j.n
        noise = max(1e-10, (8 * j.resolution) ** 2)
        if kind != "gauge":
            return cls(spread, mean, cross, noise, kind == "literal")
        if len(mean) < 2:
            raise Undefined("one output has no gauge: subtracting its mean leaves nothing")
        spread = spread - spread.mean(0)
        spread = spread - spread.mean(1, keepdim=True)
        return cls(spread, mean - mean.mean(), cross - cross.mean(1, keepdim=True), noise, False)

    def weak(self) -> tuple[int, "Outputs"]:
        """How many directions carry next to no variance, and the outputs without them."""
        variances, axes = torch.linalg.eigh(self.spread)
        above = variances > self.noise * variances[-1]
        weak = above & (variances < _WEAK * variances[-1])
        rest = axes[:, ~weak]
        without = self._replace(
            spread=rest.T @ self.spread @ rest,
            mean=self.mean @ rest,
            cross=self.cross @ rest,
        )
        return int(weak.sum()), without


class Projection(NamedTuple):
    """P on the outputs, centered to H P H: what it explains of the features, and its own size.

    Attributes:
        explained: tr(P S), with S the features' covariance.
        trace: of H P H.
        rank: squared Frobenius norm of H P H, the rank r of D_LR.
        singular: its singular values: so many ones, then one fraction.
    """

    explained: float
    trace: float
    rank: float
    singular: tuple[int, float]

    @classmethod
    def on(cls, outputs: Outputs) -> "Projection":
        spread, mean = outputs.spread, outputs.mean
        if float(spread.trace()) <= 1e-12 * float(mean.square().sum()):
            raise Undefined("the outputs are the same for every sample")
        product = spread + torch.outer(mean, mean) if outputs.raw else spread
        variances, directions = torch.linalg.eigh(product)
        kept = variances > outputs.noise * variances[-1]
        whitening = directions[:, kept] / variances[kept].sqrt()
        explained = (outputs.cross @ whitening).square().sum().item()
        whole = int(kept.sum())
        # share of the constant function inside the span; centering takes that much of one direction
        constant = min((mean @ whitening).square().sum().item(), 1.0) if outputs.raw else 0.0
        fraction = 1.0 - constant
        rank = whole - 1 + fraction**2
        if rank <= 1e-12 * whole:
            raise Undefined("the outputs are the same for every sample")
        return cls(explained, whole - constant, rank, (whole - 1, fraction))


def imbalance(j: JointMoments) -> float:
    """D_LR of perfectly collapsed features with one-hot outputs, at these class sizes; or 0."""
    if j.labels is None or not 2 <= len(j.labels.classes) <= j.cross.shape[1]:
        return 0.0
    shares = j.labels.counts / j.labels.counts.sum()
    square, cube = float(shares.square().sum()), float((shares**3).sum())
    dimension = (1 - square) ** 2 / (square - 2 * cube + square**2)
    return 1 - float((dimension / (len(shares) - 1)) ** 0.5)
