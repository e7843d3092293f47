"""From points by class to the one Gram matrix in which manifolds are studied."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import Undefined
from ...statistics import Clouds
from ...statistics._centering import double
from ...statistics.clouds import scattered
from .conventions import Conventions

_COLUMNS = 8192  # units in float64 at a time
_ALIKE = 1e-13  # squared distance, beside the squared lengths, below which points are the same
_DIGITS = 9  # of lengths, to put points in an order that rounding does not change


@dataclass(frozen=True)
class Manifolds:
    """The points of p manifolds, in an order that depends on nothing but their geometry.

    Manifolds go by their mean squared length and points by their length, so that values change
    neither with the order of the samples nor with the names of the classes.

    Attributes:
        gram: inner products of the points, the mean squared length being one.
        member: manifold of each point, from 0, in order.
        classes: label of each manifold.
        sizes: points of each manifold, before those that count for nothing are dropped.
        dropped: points that repeat another of their manifold, and points at the origin.
    """

    gram: Float[Tensor, "t t"]
    member: Int[Tensor, " t"]
    classes: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]
    dropped: int

    @property
    def bounds(self) -> list[slice]:
        """Where the points of each manifold are."""
        ends = torch.bincount(self.member).cumsum(0).tolist()
        return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def manifolds(clouds: Clouds, conventions: Conventions, repeat: int = 0) -> Manifolds:
    """The manifolds of a subsample of classes and points, centered and biased as agreed.

    Raises:
        Undefined: fewer than two classes, too few points for the repeats, points that do not
            differ, or a class with all its points at the origin.
    """
    classes = _classes(clouds, conventions.classes, repeat)
    rows = [_rows(clouds, label, conventions, repeat) for label in classes.tolist()]
    sizes = torch.tensor([len(r) for r in rows], device=classes.device)
    member = torch.arange(len(classes), device=classes.device).repeat_interleave(sizes)
    gram = _gram(clouds.points[torch.cat(rows)], conventions.center)
    lengths = gram.diagonal().clamp(min=0).sqrt()
    gram = gram + (conventions.constant * lengths.mean()) ** 2
    gram = gram / gram.diagonal().mean()
    places, order = _canonical(gram.diagonal(), member.to(gram.device), len(classes))
    gram = gram[order][:, order]
    member = torch.argsort(places)[member.to(gram.device)][order]
    classes, sizes = classes.to(gram.device)[places], sizes.to(gram.device)[places]
    kept = ~(_repeated(gram, member) | (gram.diagonal() <= _ALIKE**2))
    left = torch.bincount(member[kept], minlength=len(classes))
    if not bool(left.all()):
        raise Undefined(f"all points of class {int(classes[left == 0][0])} are at the origin")
    dropped = int((~kept).sum())
    return Manifolds(gram[kept][:, kept], member[kept], classes, sizes, dropped)


def _classes(clouds: Clouds, most: int, repeat: int) -> Int[Tensor, " p"]:
    classes = clouds.classes
    if len(classes) < 2:
        raise Undefined(f"needs two classes or more, saw {len(classes)}")
    if len(classes) <= most:
        return classes
    chosen = classes[torch.argsort(scattered(classes))].roll(-repeat * most)[:most]
    return chosen.sort().values


def _rows(clouds: Clouds, label: int, conventions: Conventions, repeat: int) -> Int[Tensor, " m"]:
    rows = torch.nonzero(clouds.labels == label).flatten()
    points = conventions.points
    if conventions.repeats > 1 and len(rows) < conventions.repeats * points:
        raise Undefined(
            f"{conventions.repeats} repeats of {points} points are asked for, and class {label} "
            f"has {len(rows)} points"
        )
    return rows[repeat * points : (repeat + 1) * points]


def _gram(points: Float[Tensor, "t d"], center: bool) -> Float[Tensor, "t t"]:
    """Inner products in float64, about the mean of the points or about the origin."""
    gram = double(points[:, :0]) @ double(points[:, :0]).T
    spread = squares = 0.0
    for start in range(0, points.shape[1], _COLUMNS):
        columns = double(points[:, start : start + _COLUMNS])
        centered = columns - columns.mean(0)
        squares += float(columns.square().sum())
        spread += float(centered.square().sum())
        used = centered if center else columns
        gram.addmm_(used, used.T)
    if spread <= 1e-28 * squares:
        raise Undefined("the activations are the same for every sample")
    return gram


def _canonical(
    squares: Float[Tensor, " t"], member: Int[Tensor, " t"], p: int
) -> tuple[Int[Tensor, " p"], Int[Tensor, " t"]]:
    """The order of the manifolds and of the points: by length, alike ones as they came."""
    sums = squares.new_zeros(p).index_add_(0, member, squares)
    means = sums / torch.bincount(member, minlength=p)
    places = torch.argsort(means.round(decimals=_DIGITS), stable=True)
    order = torch.argsort(squares.round(decimals=_DIGITS), stable=True)
    rank = torch.argsort(places)[member]
    return places, order[torch.argsort(rank[order], stable=True)]


def _repeated(gram: Float[Tensor, "t t"], member: Int[Tensor, " t"]) -> Tensor:
    """Points that stand where an earlier point of their manifold does."""
    squares = gram.diagonal()
    both = squares + squares[:, None]
    same = (both - 2 * gram <= _ALIKE * both) & (member == member[:, None])
    return same.triu(1).any(0)
