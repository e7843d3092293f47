"""S_init: how much of the initial kernel the features have kept."""

from ..errors import Undefined
from ..statistics import Points
from ._kernel_alignment import Alignment, align
from ._published import Estimate, published

_SOURCE = "S_init of Nam et al., ICLR 2026, arXiv:2410.04264; CKA of Kornblith et al. 2019"


@published(
    f"{_SOURCE}, debiased after Song et al. 2012",
    bounds=(-1, float("inf")),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="debiased",
)
def initial_similarity(x: Points, initial: Points) -> Estimate:
    r"""CKA of the features with themselves at the start of training, debiased.

    $\operatorname{HSIC}_1(K, K_0) /
    \sqrt{\operatorname{HSIC}_1(K, K)\operatorname{HSIC}_1(K_0, K_0)}$

    1 where the kernel has kept its shape (lazy), near 0 where nothing of it is left.
    """
    found = _aligned(x, initial)
    if found.n < 4:
        raise Undefined(f"the debiased estimate needs 4 samples or more, got {found.n}")
    return _defined(found.debiased(), null=0.0)


@published(
    f"{_SOURCE}, plain",
    bounds=(0, 1),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
)
def initial_similarity_plain(x: Points, initial: Points) -> Estimate:
    r"""CKA of the features with themselves at the start of training, plain.

    $\langle K, K_0 \rangle / (\lVert K \rVert_F \lVert K_0 \rVert_F)$ of the centered kernels

    Biased up where samples are few beside units; the null level says how far.
    """
    found = _aligned(x, initial)
    return _defined(found.plain(), null=found.null())


def _aligned(x: Points, initial: Points) -> Alignment:
    now, start = x.beside(initial)
    if len(now) < 2:
        raise Undefined("fewer than two samples were seen at the start, too")
    return align(now, start)


def _defined(value: float, null: float) -> Estimate:
    if value != value:
        raise Undefined("the features do not vary, now or at the start")
    return Estimate(value, null=null)
