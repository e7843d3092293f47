"""Dimension, radius and alignments of the anchor points of manifolds.

An anchor s_i is the point of manifold i that carries the projection of one target; it splits into
its mean over draws, the center s0_i, and the axis s1_i = s_i - s0_i. Everything is computed from
inner products. As centers are means over draws, they move with every group of draws that a
jackknife leaves out.

Reference: Chou et al. 2025, arXiv:2503.18114, algorithm 2; Chou et al. 2026, arXiv:2603.01879,
appendix B.3, whose a, b and c are meant below.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import Undefined
from .conic_projection import Projections
from .conventions import Conventions
from .manifold_gram import Manifolds

_RANK = 1e-10  # eigenvalues below so much of the largest are rounding
_PIVOT = 1e-3  # with smaller ones a factorization may hide a dependence
_STILL = 1e-20  # squared length of an axis or center, in those of points, that counts as none


@dataclass(frozen=True)
class Anchors:
    """Anchors of p manifolds in n draws, as weights of their points.

    Attributes:
        mean: weights of the centers.
        moves: weights of the axes.
        counted: 1 where a manifold has an anchor, 0 where it has none.
        heights: t.x of every point.
        group: of each draw.
    """

    manifolds: Manifolds
    mean: Float[Tensor, " t"]
    moves: Float[Tensor, "n t"]
    counted: Float[Tensor, "n p"]
    heights: Float[Tensor, "n t"]
    group: Int[Tensor, " n"]


class Geometry(NamedTuple):
    """What the anchors say. Alignments are means over draws, NaN where nothing has a length."""

    dimension: float
    radius: float
    centers: Float[Tensor, "p p"]
    axes: Float[Tensor, "p p"]
    center_axes: Float[Tensor, "p p"]
    axes_absolute: Float[Tensor, "p p"]
    center_axes_absolute: Float[Tensor, "p p"]


def anchors(
    manifolds: Manifolds,
    found: Projections,
    heights: Float[Tensor, "n t"],
    group: Int[Tensor, " n"],
    conventions: Conventions,
) -> tuple[Anchors, Float[Tensor, " p"]]:
    """The anchors of the draws in which they are unique, and how often each manifold is inactive.

    Where a target lies inside its cone and there are more points than dimensions, infinitely many
    combinations of points give it.

    Args:
        heights: t.x of every point.

    Raises:
        Undefined: that is less than half of the draws.
    """
    unique = ~found.full | (found.rank >= len(manifolds.gram))
    if 2 * int(unique.sum()) < len(unique):
        raise Undefined(
            f"{int((~unique).sum())} of {len(unique)} targets lie inside their cone, where anchors "
            f"are not unique: {found.rank} dimensions are too few to separate so many points"
        )
    lengths = manifolds.gram.diagonal().sqrt()
    weights = found.multipliers[unique] / lengths
    sums = by_manifold(weights, manifolds)
    active = sums > 0
    weights = weights / torch.where(active, sums, 1)[:, manifolds.member]
    inactive = 1 - active.double().mean(0)
    counted = torch.ones_like(sums)
    if conventions.anchors == "support":
        weights = weights + _next_touched(manifolds, found.slack[unique] * lengths, active)
    elif conventions.anchors == "drop":
        counted = active.double()
    mean = weights.sum(0) / counted.sum(0).clamp(min=1)[manifolds.member]
    moves = (weights - mean) * counted[:, manifolds.member]
    left = Anchors(manifolds, mean, moves, counted, heights[unique], group[unique])
    return left, inactive


def by_manifold(values: Float[Tensor, "n t"], manifolds: Manifolds) -> Float[Tensor, "n p"]:
    """Sums over the points of each manifold."""
    sums = values.new_zeros(len(values), len(manifolds.classes))
    return sums.index_add_(1, manifolds.member, values)


def _next_touched(
    manifolds: Manifolds, slack: Float[Tensor, "n t"], active: Tensor
) -> Float[Tensor, "n t"]:
    """Weight one on the point nearest to its side's hyperplane, for inactive manifolds."""
    chosen = torch.zeros_like(slack)
    for p, at in enumerate(manifolds.bounds):
        rows = torch.nonzero(~active[:, p]).flatten()
        chosen[rows, at.start + slack[rows, at].argmax(1)] = 1
    return chosen


class AnchorProducts:
    """All inner products of anchors, computed once for the centers of any subset of draws."""

    def __init__(self, anchors: Anchors, conventions: Conventions) -> None:
        self.anchors = anchors
        self._conventions = conventions
        self._gram, self._bounds = anchors.manifolds.gram, anchors.manifolds.bounds
        self._axes = self._products(anchors.moves, anchors.moves)
        self._heights = by_manifold(anchors.moves * anchors.heights, anchors.manifolds)

    def geometry(self, without: int = -1) -> Geometry:
        """The geometry of all draws but those of a group, about the centers of just these.

        Raises:
            Undefined: the anchors of no manifold vary.
        """
        a = self.anchors
        kept = a.group != without
        moves, counted = a.moves[kept], a.counted[kept]
        shift = moves.sum(0) / counted.sum(0).clamp(min=1)[a.manifolds.member]
        axes, heights = self._about(shift, kept)
        center = a.mean + shift
        centers = self._products(center[None], center[None])[0]
        crossed = self._crossed(center, moves, counted, shift)
        b = _squared(axes, heights)
        c = _squared(axes + centers, heights)
        if not bool(b.mean() > _STILL):
            raise Undefined("the anchors are the same in every draw")
        own, moved = centers.diagonal(), axes.diagonal(dim1=1, dim2=2)
        axial = self._aligned(axes, moved, moved)
        mixed = self._aligned(crossed, own.expand_as(moved), moved)
        return Geometry(
            float(b.mean()) / len(own),
            _radius_of(b, c, self._conventions.radius),
            self._aligned(centers, own, own),
            axial.nanmean(0),
            mixed.nanmean(0),
            axial.abs().nanmean(0),
            mixed.abs().nanmean(0),
        )

    def _aligned(
        self,
        products: Float[Tensor, "*m p q"],
        left: Float[Tensor, "*m p"],
        right: Float[Tensor, "*m q"],
    ) -> Float[Tensor, "*m p q"]:
        """Products, over lengths if so agreed; NaN where a length is none."""
        present = (left > _STILL)[..., :, None] & (right > _STILL)[..., None, :]
        if self._conventions.alignment == "cosine":
            products = products / (left[..., :, None] * right[..., None, :]).clamp(min=0).sqrt()
        return torch.where(present, products, torch.nan)

    def _products(
        self, left: Float[Tensor, "m t"], right: Float[Tensor, "m t"]
    ) -> Float[Tensor, "m p p"]:
        """Inner products of the points that weights make, manifold by manifold."""
        rows = [
            by_manifold((left[:, at] @ self._gram[at]) * right, self.anchors.manifolds)
            for at in self._bounds
        ]
        return torch.stack(rows, 1)

    def _about(
        self, shift: Float[Tensor, " t"], kept: Tensor
    ) -> tuple[Float[Tensor, "m p p"], Float[Tensor, "m p"]]:
        """Inner products of the axes and their heights, once the centers have moved."""
        a = self.anchors
        moves, counted = a.moves[kept], a.counted[kept]
        mixed = self._against(shift, moves)
        moved = self._products(shift[None], shift[None])
        both = counted[:, :, None] * counted[:, None, :]
        axes = (self._axes[kept] - mixed - mixed.transpose(1, 2) + moved) * both
        lift = by_manifold(a.heights[kept] * shift, a.manifolds)
        return axes, self._heights[kept] - lift * counted

    def _against(
        self, point: Float[Tensor, " t"], moves: Float[Tensor, "m t"]
    ) -> Float[Tensor, "m p p"]:
        """Inner products of the axes (first) with fixed points of each manifold (second)."""
        images = torch.stack([point[at] @ self._gram[at] for at in self._bounds])
        return torch.stack([moves[:, at] @ images[:, at].T for at in self._bounds], 1)

    def _crossed(
        self,
        center: Float[Tensor, " t"],
        moves: Float[Tensor, "m t"],
        counted: Float[Tensor, "m p"],
        shift: Float[Tensor, " t"],
    ) -> Float[Tensor, "m p p"]:
        """Inner products of the centers (first) with the axes (second)."""
        fixed = self._products(center[None], shift[None])
        return (self._against(center, moves).transpose(1, 2) - fixed) * counted[:, None, :]


def _squared(gram: Float[Tensor, "m p p"], heights: Float[Tensor, "m p"]) -> Float[Tensor, " m"]:
    """h' G^+ h, the squared length of a vector's projection on vectors that it stands h over.

    Rows and columns are scaled to a unit diagonal first, which changes nothing where h is in the
    range of G, as it always is here.
    """
    sizes = gram.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    present = sizes.square() > _STILL
    scale = torch.where(present, 1 / sizes, 0)
    gram = gram * scale[:, :, None] * scale[:, None, :] + torch.diag_embed((~present).double())
    heights = heights * scale
    factor, info = torch.linalg.cholesky_ex(gram)
    along = torch.linalg.solve_triangular(factor, heights[:, :, None], upper=False)
    squared: Tensor = along.square().sum((1, 2))
    pivots = factor.diagonal(dim1=1, dim2=2).amin(1)
    doubtful = (info != 0) | ~(pivots > _PIVOT)
    if bool(doubtful.any()):
        squared[doubtful] = _squared_in_range(gram[doubtful], heights[doubtful])
    return squared


def _squared_in_range(
    gram: Float[Tensor, "m p p"], heights: Float[Tensor, "m p"]
) -> Float[Tensor, " m"]:
    """The same for vectors that nearly depend on each other."""
    values, directions = torch.linalg.eigh(gram)
    along = (heights[:, None, :] @ directions)[:, 0].square()
    kept = values > _RANK * values[:, -1:]
    return torch.where(kept, along / torch.where(kept, values, 1), 0).sum(1)


def _radius_of(b: Float[Tensor, " m"], c: Float[Tensor, " m"], kind: str) -> float:
    rest = b - c
    if kind == "ratio_of_means":
        return float((c.mean() / rest.mean()).sqrt())
    moving = b > _STILL
    return float((c[moving] / rest[moving]).mean().sqrt())
