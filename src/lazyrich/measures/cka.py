"""CKA: how alike the similarity structures of two representations of the same samples are."""

from typing import Literal

from ..errors import Undefined
from ..statistics import PairMoments
from ._kernel_alignment import Alignment
from ._published import Estimate, published


@published(
    "Kornblith et al. 2019, arXiv:1905.00414; debiased after Song et al. 2012, JMLR 13",
    bounds=(-1, 1),
    invariant={"shift", "rotation", "scale", "order", "swap"},
    estimator="linear kernel",
)
def cka(pair: PairMoments, kind: Literal["debiased", "plain"] = "debiased") -> Estimate:
    r"""Centered kernel alignment of two representations, with linear kernels.

    $\langle K, L \rangle / (\lVert K \rVert \lVert L \rVert)$

    `debiased` takes the three products from unbiased estimates (HSIC_1 of Song et al. 2012),
    whose mean over unrelated data is 0 at any number of samples. `plain` takes those of the
    centered kernels (Kornblith et al. 2019), which grow towards 1 where samples are few beside
    units; its null level is the exact mean over all ways of shuffling one side.

    Both are cosines, between -1 and 1 by construction: rounding past that is cut off.

    Args:
        kind: `debiased` or `plain`.
    """
    found = _alignment(pair)
    if kind == "plain":
        return _defined(found.plain(), found.null())
    if found.n < 4:
        raise Undefined(f"the debiased estimate needs 4 samples or more, got {found.n}")
    return _defined(found.debiased(), 0.0)


def _alignment(pair: PairMoments) -> Alignment:
    x, y = pair.x.moments.scatter, pair.y.moments.scatter
    sums = (
        pair.across.cross.square().sum(),
        x.square().sum(),
        y.square().sum(),
        x.trace(),
        y.trace(),
        pair.across.quartic,
        pair.x.tail.quartic,
        pair.y.tail.quartic,
    )
    return Alignment(int(pair.n), *map(float, sums))


def _defined(value: float, null: float) -> Estimate:
    if value != value:
        raise Undefined("one of the two representations does not vary")
    return Estimate(min(max(value, -1.0), 1.0), null=null)
