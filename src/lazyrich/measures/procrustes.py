"""Orthogonal Procrustes: how well one representation can be rotated onto another."""

from math import sqrt
from statistics import fmean, stdev
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import Moments, PairMoments
from ._published import Estimate, published
from ._spectra import eigenvalues

_ACCURACY, _DRAWS = 0.003, 400  # of the null level, relative; and draws at most


@published(
    "Williams et al. 2021, arXiv:2110.14739; Ding, Denain & Steinhardt 2021, arXiv:2108.01661",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order", "swap"},
    estimator="plug-in",
)
def procrustes(
    pair: PairMoments, *, kind: Literal["similarity", "distance"] = "similarity", seed: int = 0
) -> Estimate:
    r"""Orthogonal Procrustes similarity of two centered representations of unit Frobenius norm.

    $\lVert X^\top Y \rVert_* / (\lVert X \rVert_F \lVert Y \rVert_F)$

    X and Y are centered; narrower ones are padded with zeros. `similarity` is 1 where they differ
    by shift, rotation and scale. `distance` is $\sqrt{1 - \text{similarity}}$: the least
    $\lVert X - Y R \rVert_F / \sqrt 2$ over rotations R of the normalized ones, a metric between
    0 and 1. Ding et al. report twice its square; the angle of Williams et al. is the arc cosine of
    the similarity. Unrelated data do not give 0, the less so the fewer samples there are: the null
    level is the mean over random rotations of one side's samples that keep their mean, simulated:
    within a percent of the mean over shuffles, or 6 % for a dozen samples.

    Args:
        kind: `similarity` or `distance`.
        seed: of the null level.
    """
    size = sqrt(float(pair.x.moments.scatter.trace()) * float(pair.y.moments.scatter.trace()))
    if not size > 0:
        raise Undefined("one of the two representations does not vary")
    overlap = float(torch.linalg.svdvals(pair.across.cross).sum()) / size
    found, null = min(overlap, 1.0), min(_unrelated(pair, seed), 1.0)  # rounding
    if kind == "similarity":
        return Estimate(found, null=null)
    return Estimate(sqrt(1 - found), null=sqrt(1 - null))


def _unrelated(pair: PairMoments, seed: int) -> float:
    """Mean similarity of the two spectra, were their samples turned at random.

    Singular vectors of the two sides then meet in a corner of a random orthogonal matrix of n - 1
    dimensions, which needs no matrix of n rows: it is A of the QR of A over B.
    """
    sides = (_shares(side) for side in (pair.x.moments, pair.y.moments))
    y, x = sorted(sides, key=len)
    random = np.random.default_rng(seed)
    overlaps: list[float] = []
    while len(overlaps) < 2 or (len(overlaps) < _DRAWS and stdev(overlaps) > _error(overlaps)):
        a = random.standard_normal((len(x), len(y)))
        b = _root_of_wishart(len(y), int(pair.n) - 1 - len(x), random)
        rows = torch.from_numpy(np.concatenate([a, b])).to(x)
        corner = torch.linalg.qr(rows).Q[: len(x)]
        overlap = torch.linalg.svdvals(x.sqrt()[:, None] * corner * y.sqrt()).sum()
        overlaps.append(float(overlap))
    return fmean(overlaps)


def _error(overlaps: list[float]) -> float:
    """The deviation of single draws at which the mean is accurate enough."""
    return _ACCURACY * fmean(overlaps) * sqrt(len(overlaps))


def _shares(side: Moments) -> Float[Tensor, " r"]:
    """The share of each direction in the variance, where there is any."""
    values = eigenvalues(side, centered=True)
    return values / values.sum()


def _root_of_wishart(
    size: int, freedom: int, random: np.random.Generator
) -> Float[np.ndarray, "m r"]:
    """B with B'B as that of `freedom` rows of normals, in no more rows than columns (Bartlett)."""
    b = random.standard_normal((min(size, freedom), size))
    if freedom <= size:
        return b
    root: np.ndarray = np.triu(b, 1)
    np.fill_diagonal(root, np.sqrt(random.chisquare(freedom - np.arange(size))))
    return root
