"""Orthogonal Procrustes: how well one representation can be rotated onto another."""

from math import sqrt
from typing import Literal

import torch

from ..errors import Undefined
from ..statistics import PairMoments
from ._published import Estimate, published


@published(
    "Williams et al. 2021, arXiv:2110.14739; Ding, Denain & Steinhardt 2021, arXiv:2108.01661",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order", "swap"},
    estimator="plug-in",
)
def procrustes(
    pair: PairMoments, kind: Literal["similarity", "distance"] = "similarity"
) -> Estimate:
    r"""Orthogonal Procrustes similarity of two centered representations of unit Frobenius norm.

    $\lVert X^\top Y \rVert_* / (\lVert X \rVert_F \lVert Y \rVert_F)$

    X and Y are centered; narrower ones are padded with zeros. `similarity` is 1 where they differ
    by shift, rotation and scale. `distance` is $\sqrt{1 - \text{similarity}}$: the least
    $\lVert X - Y R \rVert_F / \sqrt 2$ over rotations R of the normalized ones, a metric between
    0 and 1. Ding et al. report twice its square; the angle of Williams et al. is the arc cosine of
    the similarity. Unrelated data do not give 0, the less so the fewer samples there are.

    Args:
        kind: `similarity` or `distance`.
    """
    size = sqrt(float(pair.x.moments.scatter.trace()) * float(pair.y.moments.scatter.trace()))
    if not size > 0:
        raise Undefined("one of the two representations does not vary")
    overlap = float(torch.linalg.svdvals(pair.across.cross).sum()) / size
    similarity = min(overlap, 1.0)  # rounding
    return Estimate(similarity if kind == "similarity" else sqrt(1 - similarity))
