"""The projections of one subsample of a layer, and all plain values that follow from them."""

from dataclasses import dataclass
from functools import cached_property
from math import inf, nan

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ...errors import LazyrichError
from ...statistics import Clouds
from .anchor_geometry import AnchorProducts, Anchors, Geometry, anchors
from .conic_projection import Projections, Rays, project, spans_itself
from .conventions import Conventions, Dichotomies
from .dichotomies import Draws, draw
from .jackknife import Values
from .manifold_gram import Manifolds, manifolds

NULL_DRAWS = 60


@dataclass(frozen=True)
class Solution:
    """n targets and dichotomies of p manifolds, and where the targets meet their cones.

    Attributes:
        targets: vectors of the span.
        signs: side of each manifold.
        group: of each draw, for the jackknife.
    """

    conventions: Conventions
    manifolds: Manifolds
    rays: Rays
    targets: Float[Tensor, "n r"]
    signs: Float[Tensor, "n p"]
    group: Int[Tensor, " n"]
    found: Projections

    @property
    def p(self) -> int:
        return len(self.manifolds.classes)

    @cached_property
    def subspace(self) -> Bool[Tensor, " n"]:
        """Where the cone is a linear subspace: nothing separates such a dichotomy."""
        flat = self.found.full.clone()
        if bool(flat.any()):
            signs = self.signs[flat][:, self.manifolds.member]
            flat[flat.clone()] = spans_itself(self.rays, signs)
        return flat

    @cached_property
    def geometry(self) -> Geometry:
        """Of all draws.

        Raises:
            Undefined: anchors are not unique, or do not vary.
        """
        return self._products.geometry()

    @property
    def inactive(self) -> Float[Tensor, " p"]:
        """How often no point of a manifold is touched, where anchors are unique."""
        return self._anchors[1]

    @cached_property
    def _anchors(self) -> tuple[Anchors, Float[Tensor, " p"]]:
        lengths = self.manifolds.gram.diagonal().sqrt()
        heights = self.targets @ self.rays.coordinates.T * lengths
        return anchors(self.manifolds, self.found, heights, self.group, self.conventions)

    @cached_property
    def _products(self) -> AnchorProducts:
        return AnchorProducts(self._anchors[0], self.conventions)

    @cached_property
    def self_check(self) -> float:
        """Mean of |p|^2 less the support count in standard errors: both expect the same."""
        gap = self.found.squared_norm - self.found.support
        error = float(gap.std()) / len(gap) ** 0.5
        return float(gap.mean()) / error if error > 1e-9 else 0.0

    def capacities(self, without: int = -1) -> Values:
        """Capacities from all draws but those of a group."""
        kept = self.group != without
        delta = float(self.found.support[kept].mean())
        proper = float((~self.subspace[kept]).double().mean())
        return {
            "capacity": self.p / delta,
            "by_norm": self.p / float(self.found.squared_norm[kept].mean()),
            "simulated": self.p / (delta - proper / 2) if delta > proper / 2 else inf,
        }

    def shapes(self, without: int = -1) -> Values:
        """Geometry from all draws but those of a group.

        Raises:
            Undefined: anchors are not unique, or do not vary.
        """
        g = self._products.geometry(without) if without >= 0 else self.geometry
        return {
            "dimension": g.dimension,
            "radius": g.radius,
            "approximate": approximation(g.dimension, g.radius),
            "center": over_pairs(g.centers.abs()),
            "axis": over_pairs(g.axes_absolute),
            "center_axis": over_pairs(g.center_axes_absolute),
            "center_signed": over_pairs(g.centers),
            "axis_signed": over_pairs(g.axes),
            "center_axis_signed": over_pairs(g.center_axes),
        }

    def alone(self, place: int) -> "Solution":
        """One manifold by itself, against the same targets."""
        at = self.manifolds.bounds[place]
        one = slice(place, place + 1)
        gram = self.manifolds.gram[at, at]
        member = torch.zeros_like(self.manifolds.member[at])
        manifold = Manifolds(
            gram, member, self.manifolds.classes[one], self.manifolds.sizes[one], dropped=0
        )
        rays = Rays.of(gram)
        targets = rays.spanned(self.targets @ self.rays.coordinates[at].T)
        signs = torch.ones_like(self.signs[:, one])
        found = project(rays, targets, signs.expand(-1, len(gram)))
        return Solution(self.conventions, manifold, rays, targets, signs, self.group, found)


def solution(clouds: Clouds, conventions: Conventions, seed: int, repeat: int = 0) -> Solution:
    """Draw dichotomies and targets for a subsample, and project.

    Raises:
        Undefined: data without manifolds to speak of, see `manifolds`.
    """
    points = manifolds(clouds, conventions, repeat)
    rng = _generator(seed, repeat, 0)
    return _solved(points, conventions, conventions.draws, rng)


def shuffled(s: Solution, seed: int) -> Solution:
    """The same points with their labels shuffled, under the same conventions."""
    m = s.manifolds
    rng = _generator(seed, 0, 1)
    order = torch.from_numpy(rng.permutation(len(m.gram))).to(m.gram.device)
    mixed = Manifolds(m.gram[order][:, order], m.member, m.classes, m.sizes, m.dropped)
    return _solved(mixed, s.conventions, min(s.conventions.draws, NULL_DRAWS), rng)


def approximation(dimension: float, radius: float) -> float:
    """(1 + R^-2) / D, NaN for manifolds without size."""
    return (1 + radius**-2) / dimension if radius > 0 and dimension > 0 else nan


def over_pairs(matrix: Float[Tensor, "p p"]) -> float:
    """Mean over pairs of different manifolds that have a value."""
    apart = ~torch.eye(len(matrix), dtype=torch.bool, device=matrix.device)
    return float(matrix[apart].nanmean())


def _solved(
    points: Manifolds, conventions: Conventions, draws: int, rng: np.random.Generator
) -> Solution:
    rays = Rays.of(points.gram)
    drawn = _draws(points, conventions, draws, rng)
    device = points.gram.device
    targets = rays.targets(drawn.normals.to(device))
    signs = drawn.signs.to(device)
    found = project(rays, targets, signs[:, points.member])
    return Solution(conventions, points, rays, targets, signs, drawn.group.to(device), found)


def _draws(
    points: Manifolds, conventions: Conventions, draws: int, rng: np.random.Generator
) -> Draws:
    law = conventions.labels
    if not isinstance(law, str):  # given for classes by label, wanted by place
        order = torch.argsort(torch.argsort(points.classes)).tolist()
        return draw(_columns(law, order), len(order), len(points.gram), draws, rng)
    return draw(law, len(points.classes), len(points.gram), draws, rng)


def _columns(rows: Dichotomies, order: list[int]) -> Float[np.ndarray, "l p"]:
    given = np.array(rows, dtype=np.float64)
    if given.shape[1] != len(order):
        raise LazyrichError(
            f"labels: each dichotomy has {given.shape[1]} sides, and there are {len(order)} "
            "classes. Give one side for each class, in the order of the labels."
        )
    return given[:, order]


def _generator(seed: int, repeat: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([seed & (2**63 - 1), repeat, purpose])
