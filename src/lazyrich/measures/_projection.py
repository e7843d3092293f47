"""The projection onto what the outputs span, from moments: the other half of D_LR."""

from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import Batch, JointMoments
from ..statistics._base import required_outputs
from ..statistics._centering import double

Kind = Literal["literal", "span", "gauge"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_WEAK = 1e-4  # of the strongest output direction's variance
_FITTED = 1e-9  # share of its noise that a residual keeps where the row alone decides a direction


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

    def whitening(self) -> Float[Tensor, "c k"]:
        """Takes outputs to coordinates in which P is the identity: P = U U' / n.

        Raises:
            Undefined: they do not vary.
        """
        if float(self.spread.trace()) <= 1e-12 * float(self.mean.square().sum()):
            raise Undefined("the outputs are the same for every sample")
        product = self.spread + torch.outer(self.mean, self.mean) if self.raw else self.spread
        variances, directions = torch.linalg.eigh(product)
        kept = variances > self.noise * variances[-1]
        whitening: Tensor = directions[:, kept] / variances[kept].sqrt()
        return whitening

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
        whitening = outputs.whitening()
        explained = (outputs.cross @ whitening).square().sum().item()
        whole = whitening.shape[1]
        # share of the constant function inside the span; centering takes that much of one direction
        mean = outputs.mean @ whitening
        constant = min(mean.square().sum().item(), 1.0) if outputs.raw else 0.0
        fraction = 1.0 - constant
        rank = whole - 1 + fraction**2
        if rank <= 1e-12 * whole:
            raise Undefined("the outputs are the same for every sample")
        return cls(explained, whole - constant, rank, (whole - 1, fraction))


def beside_outputs(batch: Batch, j: JointMoments) -> Batch:
    """The same rows with what the outputs leave unexplained of each, once all moments are known.

    Noise of equal size in every row leaves a residual e_i with |e_i|^2 = (1 - P_ii -
    (1 - (P 1)_i)^2 / n) sigma^2 on average, e = (I - P) H x: the squares are over that share, which
    is HC2 of MacKinnon & White 1985, doi:10.1016/0304-4076(85)90158-7, with the mean fitted too.
    NaN where nothing is left, or the outputs have no such reading.
    """
    return replace(batch, residuals=torch.stack([_residuals(batch, j, k) for k in KINDS], 1))


def _residuals(batch: Batch, j: JointMoments, kind: Kind) -> Float[Tensor, " n"]:
    try:
        outputs = Outputs.of(j, kind)
        whitening = outputs.whitening()
    except Undefined:
        return torch.full((len(batch),), float("nan"), dtype=torch.float64, device=batch.x.device)
    rows = double(required_outputs(batch))
    if kind == "gauge":
        rows = rows - rows.mean(1, keepdim=True)
    u = (rows if outputs.raw else rows - outputs.mean) @ whitening
    constant = u @ (outputs.mean @ whitening) if outputs.raw else 0.0
    kept = 1 - u.square().sum(1) / j.n - (1 - constant) ** 2 / j.n
    left = double(batch.x) - j.pooled.mean - u @ (outputs.cross @ whitening).T
    residuals: Tensor = (left.square().sum(1) / kept).where(kept > _FITTED, float("nan"))
    return residuals


def imbalance(j: JointMoments) -> float:
    """D_LR of perfectly collapsed features with one-hot outputs, at these class sizes; or 0."""
    if j.labels is None or not 2 <= len(j.labels.classes) <= j.cross.shape[1]:
        return 0.0
    shares = j.labels.counts / j.labels.counts.sum()
    square, cube = float(shares.square().sum()), float((shares**3).sum())
    dimension = (1 - square) ** 2 / (square - 2 * cube + square**2)
    return 1 - float((dimension / (len(shares) - 1)) ** 0.5)
