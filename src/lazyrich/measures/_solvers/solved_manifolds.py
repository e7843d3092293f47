"""All that one solve tells about a layer's manifolds, beyond single numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import Undefined
from ...statistics import Clouds
from .anchor_geometry import Geometry
from .conventions import STANDARD, Conventions
from .jackknife import Sampled, delete_groups
from .manifold_solution import Solution
from .shared_solves import alone, capacities, remarks, separability, shapes, solutions


@dataclass(frozen=True)
class SolvedManifolds:
    """Values with errors, p x p matrices and values of each manifold, by label.

    Attributes:
        conventions, seed: what it was solved under.
        classes: labels, in order; rows and columns of all matrices.
        sizes: points of each manifold.
        values: `capacity`, `by_norm`, `simulated`, and, where anchors are unique, `dimension`,
            `radius`, `approximate`, `utility`, and the alignments `center`, `axis` and
            `center_axis`, absolute and with `_signed`.
        centers: alignment of centers, with its sign.
        axes: alignment of axes, mean over draws.
        center_axes: alignment of the row's center with the column's axis, mean over draws.
        axes_absolute, center_axes_absolute: the same of absolute alignments.
        single: for each manifold by itself, `capacity`, `dimension` and `radius`.
        inactive: how often each manifold is not touched.
        separability: share of dichotomies separable after projection to 0, 1, 2, ... dimensions.
        support: dimensions of the faces that the targets project to, by draw.
        full: share of targets that lie inside their cone.
        residual: by how much a condition of the projections is broken at most.
        fallbacks: projections that needed the slow method.
        facts, cautions: as in the notes of records.
        missing: why there is no geometry, if there is none.

    Matrices, `inactive`, `single` and `support` are of the first subsample.
    """

    conventions: Conventions
    seed: int
    classes: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]
    values: dict[str, Sampled]
    centers: Float[Tensor, "p p"] | None
    axes: Float[Tensor, "p p"] | None
    center_axes: Float[Tensor, "p p"] | None
    axes_absolute: Float[Tensor, "p p"] | None
    center_axes_absolute: Float[Tensor, "p p"] | None
    single: list[dict[str, Sampled]]
    inactive: Float[Tensor, " p"] | None
    separability: Float[np.ndarray, " n"]
    support: Float[Tensor, " n_draws"]
    full: float
    residual: float
    fallbacks: int
    facts: list[str]
    cautions: list[str]
    missing: str = ""


def solve_manifolds(
    clouds: Clouds, *, conventions: Conventions = STANDARD, seed: int = 0
) -> SolvedManifolds:
    """Solve a layer's manifolds; measures of the same clouds, conventions and seed share it.

    Raises:
        Undefined: data without manifolds to speak of: fewer than two classes, no variation.
    """
    asked = (clouds, conventions, seed)
    first: Solution = solutions(*asked)[0]
    order = torch.argsort(first.manifolds.classes)
    values, missing = dict(capacities(*asked)), ""
    matrices: dict[str, Tensor | None] = dict.fromkeys(_MATRICES)
    inactive = None
    try:
        values |= shapes(*asked)
        matrices = {name: _sorted(first.geometry, name, order) for name in _MATRICES}
        inactive = first.inactive[order]
    except Undefined as reason:
        missing = str(reason)
    facts, cautions = remarks(*asked)
    return SolvedManifolds(
        conventions,
        seed,
        first.manifolds.classes[order],
        first.manifolds.sizes[order],
        values,
        **matrices,
        single=[_single(s) for s in alone(*asked)[0]],
        inactive=inactive,
        separability=separability(*asked),
        support=first.found.support,
        full=float(first.found.full.double().mean()),
        residual=first.found.residual,
        fallbacks=first.found.fallbacks,
        facts=facts,
        cautions=cautions,
        missing=missing,
    )


_MATRICES = ("centers", "axes", "center_axes", "axes_absolute", "center_axes_absolute")


def _sorted(geometry: Geometry, name: str, order: Int[Tensor, " p"]) -> Float[Tensor, "p p"]:
    matrix: Tensor = getattr(geometry, name)
    return matrix[order][:, order]


def _single(s: Solution) -> dict[str, Sampled]:
    found = {"capacity": delete_groups(s.capacities)["capacity"]}
    try:
        found |= {k: v for k, v in delete_groups(s.shapes).items() if k in ("dimension", "radius")}
    except Undefined:
        return found  # this manifold's anchors are not unique: it has a capacity and no shape
    return found
