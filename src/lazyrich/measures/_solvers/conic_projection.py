"""Nearest points of polyhedral cones, for many targets and sign patterns of one set of rays.

The cone of signs y is all nonnegative combinations of the rays y_m x_m. A target t splits into
its nearest point p in the cone and the rest v, with y_m x_m.v <= 0 for every ray and p.v = 0.
Nothing but the Gram matrix of the rays is needed: its size is the number of rays, not of units.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import nnls
from torch import Tensor

from ...errors import Undefined
from .alternating_directions import alternating_directions
from .block_pivoting import dependent_solutions, pivot_each, pivot_together

RANK = 1e-12  # eigenvalues below so much of the largest are rounding
_OUTSIDE, _INSIDE = (5.0, 40), (0.02, 100)  # step of ADMM beside the median eigenvalue, and steps
_MARGIN = 0.01  # of the multipliers to look for, beside their typical size
_ACCURATE = 1e-10  # multipliers that break a condition by more are solved anew
_DEPENDENT = (0.02, 400)  # step and steps once more
_SHIFT = 1e-10  # of the Gram matrix of unit rays, where rays depend on each other
_RIDGE = 1e-7
_FULL = 1e-8  # a rest shorter than so much of the target is none


@dataclass(frozen=True)
class Rays:
    """t rays of length one in r dimensions.

    Attributes:
        gram: their inner products.
        directions: eigenvectors of the Gram matrix, where its eigenvalues are not rounding.
        values: those eigenvalues.
    """

    gram: Float[Tensor, "t t"]
    directions: Float[Tensor, "t r"]
    values: Float[Tensor, " r"]

    @classmethod
    def of(cls, gram: Float[Tensor, "t t"]) -> "Rays":
        """From inner products of vectors of any length but zero."""
        lengths = gram.diagonal().sqrt()
        gram = gram / lengths / lengths[:, None]
        values, directions = torch.linalg.eigh(gram)
        kept = values > RANK * values[-1]
        return cls(gram, directions[:, kept], values[kept])

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
        lengths: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return vectors * (sqrt(self.rank) / lengths)

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

    Where rays outnumber dimensions, most targets may lie inside their cone, and are proved to.
    For the others a few steps of ADMM find most of the support, and pivoting makes it exact. What
    is left, if anything, is for the active sets of Lawson and Hanson.

    Raises:
        Undefined: the last resort did not converge.
    """
    mu = torch.zeros_like(signs)
    solved = torch.zeros_like(signs[:, 0], dtype=torch.bool)
    independent = torch.ones_like(solved)
    if rays.rank < len(mu.T) - 1:
        mu, solved = _inside(rays, targets, signs)
    rest = torch.nonzero(~solved).flatten()
    if len(rest):
        mu[rest], solved[rest] = _outside(rays, targets[rest], signs[rest])
    rest = torch.nonzero(~solved).flatten()
    if len(rest) and rays.rank < len(mu.T):
        mu[rest], independent[rest] = _dependent(rays, targets[rest], signs[rest])
    broken = _broken(rays, targets, signs, mu)
    rest = torch.nonzero(broken > _ACCURATE).flatten()
    if len(rest):
        mu[rest] = _active_sets(rays.coordinates, targets[rest], signs[rest])
        independent[rest] = rays.rank == len(mu.T)
        broken = _broken(rays, targets, signs, mu)
    support = _face_dimensions(rays, mu, independent)
    return _projections(rays, targets, signs, (mu, support), (float(broken.max()), len(rest)))


def spans_itself(rays: Rays, signs: Float[Tensor, "n t"]) -> Bool[Tensor, " n"]:
    """Whether each cone is a linear subspace: then, and only then, it holds minus all its rays."""
    return project(rays, -signs @ rays.coordinates, signs).full


def _inside(
    rays: Rays, targets: Float[Tensor, "n r"], signs: Float[Tensor, "n t"]
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """Targets well inside their cone, with multipliers that give them exactly.

    Nothing changes when rays and targets are whitened together, and then ADMM is quick. It looks
    for multipliers that keep a margin; what they miss of the target is made up for by all rays
    alike, and where none turns negative, nothing is left to prove.
    """
    across = rays.directions
    white = targets / rays.values.sqrt()
    length = torch.linalg.vector_norm(white, dim=1, keepdim=True)
    margin = signs * length * (_MARGIN / sqrt(len(across)))
    heights = (white - margin @ across) @ across.T
    mu = margin + alternating_directions(
        across, torch.ones_like(rays.values), heights, signs, *_INSIDE
    )
    mu = mu + (white - mu @ across) @ across.T
    proved = ((signs * mu) >= 0).all(1)
    return torch.where(proved[:, None], mu, 0), proved


def _outside(
    rays: Rays, targets: Float[Tensor, "n r"], signs: Float[Tensor, "n t"]
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """Exact signed multipliers from a first guess at their support, and where that worked."""
    heights = targets @ rays.coordinates.T
    start = alternating_directions(rays.directions, rays.values, heights, signs, *_OUTSIDE) != 0
    return _pivoted(rays.gram, heights, signs, start)


def _dependent(
    rays: Rays, targets: Float[Tensor, "n r"], signs: Float[Tensor, "n t"]
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """Signed multipliers where rays of the support may depend on each other.

    Pivoting cannot pass through such supports. With a little added to the diagonal of the Gram
    matrix it can, from a better guess, and what it finds is close enough to be made exact.

    Returns:
        The multipliers, and where they are of independent rays.
    """
    heights = targets @ rays.coordinates.T
    start = alternating_directions(rays.directions, rays.values, heights, signs, *_DEPENDENT) != 0
    ridge = rays.gram + _SHIFT * torch.eye(len(rays.gram), dtype=signs.dtype, device=signs.device)
    near, _ = _pivoted(ridge, heights, signs, start)
    mu, independent = dependent_solutions(rays.gram, heights, (_SHIFT, near))
    return signs * (signs * mu).clamp(min=0), independent


def _pivoted(
    gram: Float[Tensor, "t t"],
    heights: Float[Tensor, "n t"],
    signs: Float[Tensor, "n t"],
    start: Bool[Tensor, "n t"],
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """Pivoting, the way that is faster on the device."""
    if heights.device.type != "cpu":
        return pivot_together(gram, heights, signs, start)
    mu, solved = pivot_each(*(a.numpy() for a in (gram, heights, signs, start)))
    return torch.from_numpy(mu), torch.from_numpy(solved)


def _active_sets(
    rays: Float[Tensor, "t r"], targets: Float[Tensor, "n r"], signs: Float[Tensor, "n t"]
) -> Float[Tensor, "n t"]:
    """One after the other, on the CPU."""
    x, t, y = rays.cpu().numpy(), targets.cpu().numpy(), signs.cpu().numpy()
    mu = np.stack([y[k] * _active_set(x * y[k][:, None], t[k]) for k in range(len(t))])
    return torch.from_numpy(mu).to(rays.device)


def _active_set(
    rays: Float[np.ndarray, "t r"], target: Float[np.ndarray, " r"]
) -> Float[np.ndarray, " t"]:
    """Multipliers by the method of Lawson and Hanson.

    A ray and its opposite in one cone can drive it to huge multipliers; a touch of ridge, too
    small to break a condition, prevents that.
    """
    try:
        found: np.ndarray = nnls(rays.T, target, maxiter=100 * len(rays))[0]
        slack = rays @ (target - found @ rays)
        if max(slack.max(), abs(found @ slack)) > _ACCURATE * np.linalg.norm(target):
            ridge = np.vstack([rays.T, _RIDGE * np.eye(len(rays))])
            padded = np.concatenate([target, np.zeros(len(rays))])
            found = nnls(ridge, padded, maxiter=100 * len(rays))[0]
    except RuntimeError as error:
        raise Undefined(f"a projection on the cone did not converge: {error}") from error
    return found


def _broken(
    rays: Rays,
    targets: Float[Tensor, "n r"],
    signs: Float[Tensor, "n t"],
    mu: Float[Tensor, "n t"],
) -> Float[Tensor, " n"]:
    """By how much each solution breaks a condition: the rest's height over a ray, or over p."""
    rest = targets - mu @ rays.coordinates
    slack = signs * (rest @ rays.coordinates.T)
    length = torch.linalg.vector_norm(targets, dim=1)
    overlap = (signs * mu * slack).sum(1).abs() / length
    worst: Tensor = torch.maximum(slack.amax(1).clamp(min=0), overlap) / length
    return worst


def _face_dimensions(
    rays: Rays, mu: Float[Tensor, "n t"], independent: Bool[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Dimensions that the rays in use span: their number, where they are independent."""
    count = (mu.abs() > RANK * mu.abs().amax(1, keepdim=True)).sum(1).double()
    for k in torch.nonzero(~independent).flatten().tolist():
        used = mu[k] != 0
        values = torch.linalg.eigvalsh(rays.gram[used][:, used])
        count[k] = (values > RANK * values.amax()).sum() if len(values) else 0
    return count


def _projections(
    rays: Rays,
    targets: Float[Tensor, "n r"],
    signs: Float[Tensor, "n t"],
    solved: tuple[Float[Tensor, "n t"], Float[Tensor, " n"]],
    checks: tuple[float, int],
) -> Projections:
    mu, support = solved
    near = mu @ rays.coordinates
    rest = targets - near
    length = torch.linalg.vector_norm(targets, dim=1)
    full = torch.linalg.vector_norm(rest, dim=1) <= _FULL * length
    support = torch.where(full, rays.rank, support.clamp(max=rays.rank))
    slack = signs * (rest @ rays.coordinates.T)
    norm = near.square().sum(1)
    return Projections(signs * mu, slack, norm, support, full, rays.rank, *checks)
