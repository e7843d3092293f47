"""Nearest points of polyhedral cones, for many targets and sign patterns of one set of rays.

The cone of signs y is all nonnegative combinations of the rays y_m x_m. A target t splits into
its nearest point p in the cone and the rest v, with y_m x_m.v <= 0 for every ray and p.v = 0.
Nothing but the Gram matrix of the rays is needed: its size is the number of rays, not of units.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import nnls
from torch import Tensor

from ...errors import Undefined
from .block_pivoting import pivot_each, pivot_together

RANK = 1e-12  # eigenvalues below so much of the largest are rounding
_WARM, _STEP, _OVER = 40, 5.0, 1.6
_ACCURATE = 1e-10  # multipliers that break a condition by more are solved anew
_FULL = 1e-8  # a rest shorter than so much of the target is none


@dataclass(frozen=True)
class Rays:
    """t rays of length one in r dimensions.

    Attributes:
        gram: their inner products.
        directions: eigenvectors of the Gram matrix, where its eigenvalues are not rounding.
        values: those eigenvalues.
        median: of all t eigenvalues.
    """

    gram: Float[Tensor, "t t"]
    directions: Float[Tensor, "t r"]
    values: Float[Tensor, " r"]
    median: float

    @classmethod
    def of(cls, gram: Float[Tensor, "t t"]) -> "Rays":
        """From inner products of vectors of any length but zero."""
        lengths = gram.diagonal().sqrt()
        gram = gram / lengths / lengths[:, None]
        values, directions = torch.linalg.eigh(gram)
        kept = values > RANK * values[-1]
        return cls(gram, directions[:, kept], values[kept], float(values.median()))

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def coordinates(self) -> Float[Tensor, "t r"]:
        """The rays as vectors of their span."""
        return self.directions * self.values.sqrt()

    def targets(self, normals: Float[Tensor, "n t"]) -> Float[Tensor, "n r"]:
        """Vectors of the span, of length sqrt(r) and any direction alike.

        They follow the rays through every rotation: t = X' (X X')^(-1/2) z. Fixing the length
        takes out noise and changes no expectation of anything quadratic in t.
        """
        vectors = normals @ self.directions
        return vectors * (self.rank**0.5 / vectors.norm(dim=1, keepdim=True))

    def spanned(self, heights: Float[Tensor, "n t"]) -> Float[Tensor, "n r"]:
        """The vectors of the span that stand so high over the rays."""
        return heights @ self.directions / self.values.sqrt()


@dataclass(frozen=True)
class Projections:
    """Where n targets meet their cones.

    Attributes:
        multipliers: of the rays, never negative: p = sum_m multipliers_m y_m x_m.
        slack: y_m x_m.v, never positive up to rounding.
        squared_norm: |p|^2.
        support: dimension of the face of the cone that p lies inside of.
        full: whether p = t.
        rank: dimensions of the span of the rays.
        residual: by how much a condition is broken at most, relative to the target.
        fallbacks: targets that pivoting left to the slow method.
    """

    multipliers: Float[Tensor, "n t"]
    slack: Float[Tensor, "n t"]
    squared_norm: Float[Tensor, " n"]
    support: Float[Tensor, " n"]
    full: Bool[Tensor, " n"]
    rank: int
    residual: float
    fallbacks: int


def project(rays: Rays, targets: Float[Tensor, "n r"], signs: Float[Tensor, "n t"]) -> Projections:
    """Project each target on the cone of its signs, to rounding.

    A few steps of ADMM find most of the support, pivoting makes it exact; what that cannot do
    (rays in fewer dimensions than there are rays, where supports are not unique on the way) is
    left to the active sets of Lawson and Hanson.

    Raises:
        Undefined: the last resort did not converge.
    """
    x = rays.coordinates
    heights = targets @ x.T
    mu = torch.zeros_like(heights)
    solved = torch.zeros(len(heights), dtype=torch.bool, device=heights.device)
    if rays.rank >= len(x) - 1:
        start = _warm_start(rays, heights, signs)
        mu, solved = _pivoted(rays.gram, heights, signs, start)
    broken = _broken(rays, targets, signs, mu)
    rest = torch.nonzero(~solved | (broken > _ACCURATE)).flatten()
    for k in rest.tolist():
        mu[k] = signs[k] * _active_set(x * signs[k, :, None], targets[k])
    if len(rest):
        broken = _broken(rays, targets, signs, mu)
    return _projections(rays, targets, signs, mu, (float(broken.max()), len(rest)))


def spans_itself(rays: Rays, signs: Float[Tensor, "n t"]) -> Bool[Tensor, " n"]:
    """Whether each cone is a linear subspace: then, and only then, it holds minus all its rays."""
    return project(rays, -signs @ rays.coordinates, signs).full


def _warm_start(
    rays: Rays, heights: Float[Tensor, "n t"], signs: Float[Tensor, "n t"]
) -> Bool[Tensor, "n t"]:
    """Which multipliers will be positive, nearly: ADMM with one inverse for all targets.

    The inverse serves every sign pattern, as Y K Y + rho = Y (K + rho) Y. Single precision will
    do: only the set is used.
    """
    rho = _STEP * rays.median
    inner = 1 / (rays.values + rho) - 1 / rho
    inverse = (rays.directions * inner) @ rays.directions.T
    inverse.diagonal().add_(1 / rho)
    inverse, b, y = inverse.float(), heights.float(), signs.float()
    free = b @ inverse
    z, u = torch.zeros_like(b), torch.zeros_like(b)
    for _ in range(_WARM):
        x = torch.addmm(free, z - u, inverse, alpha=rho)
        u += _OVER * x + (1 - _OVER) * z
        z = (y * u).clamp_(min=0) * y
        u -= z
    return z != 0


def _pivoted(
    gram: Float[Tensor, "t t"],
    heights: Float[Tensor, "n t"],
    signs: Float[Tensor, "n t"],
    start: Bool[Tensor, "n t"],
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    if gram.device.type != "cpu":
        return pivot_together(gram, heights, signs, start)
    mu, solved = pivot_each(gram.numpy(), heights.numpy(), signs.numpy(), start.numpy())
    return torch.from_numpy(mu), torch.from_numpy(solved)


def _active_set(rays: Float[Tensor, "t r"], target: Float[Tensor, " r"]) -> Float[Tensor, " t"]:
    try:
        found, _ = nnls(rays.T.cpu().numpy(), target.cpu().numpy(), maxiter=100 * len(rays))
    except RuntimeError as error:
        raise Undefined(f"a projection on the cone did not converge: {error}") from error
    return torch.from_numpy(np.asarray(found, dtype=np.float64)).to(rays.device)


def _broken(
    rays: Rays,
    targets: Float[Tensor, "n r"],
    signs: Float[Tensor, "n t"],
    mu: Float[Tensor, "n t"],
) -> Float[Tensor, " n"]:
    """By how much each solution breaks a condition: the rest's height over a ray, or over p."""
    rest = targets - mu @ rays.coordinates
    slack = signs * (rest @ rays.coordinates.T)
    length = targets.norm(dim=1)
    overlap = (signs * mu * slack).sum(1).abs() / length
    return torch.maximum(slack.amax(1).clamp(min=0), overlap) / length


def _projections(
    rays: Rays,
    targets: Float[Tensor, "n r"],
    signs: Float[Tensor, "n t"],
    mu: Float[Tensor, "n t"],
    checks: tuple[float, int],
) -> Projections:
    near = mu @ rays.coordinates
    rest = targets - near
    length = targets.norm(dim=1)
    full = rest.norm(dim=1) <= _FULL * length
    positive = mu.abs() > RANK * length[:, None]
    support = torch.where(full, rays.rank, positive.sum(1).clamp(max=rays.rank)).double()
    slack = signs * (rest @ rays.coordinates.T)
    norm = near.square().sum(1)
    return Projections(signs * mu, slack, norm, support, full, rays.rank, *checks)
