"""How far training has moved the tangent kernel: by size, by direction, and towards the labels."""

from math import acos, log

from ..errors import LazyrichError, Undefined
from ..statistics import TangentKernel
from ._kernel_alignment import align_kernels, centered as without_mean
from ._published import Estimate, published

INF = float("inf")
_CHANGE = "Chizat, Oyallon & Bach 2019, arXiv:1812.07956; relative change of the tangent kernel"
_DISTANCE = "Fort et al. 2020, arXiv:2010.15110, kernel distance"


@published(_CHANGE, bounds=(0, INF), richer="high", invariant={"rotation", "order"})
def ntk_change(kernel: TangentKernel) -> float:
    r"""Size of the change of the kernel beside the size of the kernel at the start.

    $\lVert K_t - K_0 \rVert_F / \lVert K_0 \rVert_F$

    Growth without any change of direction counts: `ntk_growth` and `ntk_rotation` tell the two
    apart. Beside 0, no value says lazy by itself: how it falls with width does, or a lazy control.
    """
    start = kernel.start()
    return float((kernel.matrix - start).norm() / start.norm())


@published(_CHANGE + ", its part along the kernel", invariant={"rotation", "order"})
def ntk_growth(kernel: TangentKernel) -> float:
    r"""Logarithm of how much the kernel at the start has grown within the kernel now.

    $\ln \frac{\langle K_t, K_0 \rangle}{\lVert K_0 \rVert_F^2}$
    """
    start = kernel.start()
    share = float((kernel.nonzero() * start).sum() / start.square().sum())
    if share <= 0:
        raise Undefined("nothing of the kernel at the start is left")
    return log(share)


@published(
    _CHANGE + ", its part across the kernel",
    bounds=(0, 1),
    richer="high",
    invariant={"rotation", "order", "scale"},
)
def ntk_rotation(kernel: TangentKernel) -> float:
    r"""Share of the kernel that is not the kernel at the start, whatever its size.

    $\lVert K_t - a K_0 \rVert_F / \lVert K_t \rVert_F$ with
    $a = \langle K_t, K_0 \rangle / \lVert K_0 \rVert_F^2$: the sine of the angle between them
    """
    start, now = kernel.start(), kernel.nonzero()
    a = (now * start).sum() / start.square().sum()
    return min(1.0, float((now - a * start).norm() / now.norm()))


@published(_DISTANCE, bounds=(0, 1), richer="high", invariant={"rotation", "order", "scale"})
def ntk_distance(kernel: TangentKernel, *, centered: bool = False) -> Estimate:
    r"""One less the cosine of the kernel now with the kernel at the start.

    $1 - \langle K_t, K_0 \rangle / (\lVert K_t \rVert_F \lVert K_0 \rVert_F)$

    About half the square of `ntk_rotation`. A mean that all samples share hides what moves beside
    it: centered, it is one less the CKA of the two kernels.

    Args:
        kernel: now, and at the start.
        centered: whether H K H is compared.
    """
    pair = kernel.nonzero(), kernel.start()
    if centered:
        pair = without_mean(pair[0]), without_mean(pair[1])
        if not (pair[0].any() and pair[1].any()):
            raise Undefined("a centered kernel is zero: it is the same for every sample")
    distance = float((pair[0] / pair[0].norm() - pair[1] / pair[1].norm()).square().sum()) / 2
    distance = min(distance, 1.0)
    return Estimate(distance, f"an angle of {acos(1 - distance):.4g}")


def ntk_velocity(kernel: TangentKernel, duration: float, *, centered: bool = False) -> float:
    r"""Kernel distance for a unit of time: $S(K_t, K_{t + \Delta}) / \Delta$.

    Reference: Fort et al. 2020, arXiv:2010.15110.

    Args:
        kernel: now, with the kernel that much earlier as `initial`.
        duration: in epochs, or in steps times learning rate.
        centered: as in `ntk_distance`.

    Raises:
        LazyrichError: no duration above zero.
    """
    if not duration > 0:
        raise LazyrichError(f"duration={duration}: a time above zero.")
    found: Estimate = ntk_distance.function(kernel, centered=centered)
    return found.value / duration


@published(
    "Cristianini et al., NIPS 2001; centered as in Cortes, Mohri & Rostamizadeh, JMLR 2012; of "
    "tangent kernels as in Baratin et al. 2021, arXiv:2008.00938",
    bounds=(-1, 1),
    richer="high",
    invariant={"shift", "rotation", "scale", "order"},
)
def ntk_alignment(kernel: TangentKernel) -> Estimate:
    r"""Cosine of the kernel with that of the targets, both centered.

    $\langle HKH, YY^\top \rangle / (\lVert HKH \rVert_F \lVert YY^\top \rVert_F)$, Y centered

    The null level is the exact mean over all ways to deal the targets to the samples.
    """
    aims = kernel.aims()
    found = align_kernels(kernel.nonzero(), aims @ aims.T)
    if not found.left > 0:
        raise Undefined("the centered kernel is zero: it is the same for every sample")
    return Estimate(found.plain(), null=found.null())


@published(
    "Ortiz-Jimenez, Moosavi-Dezfooli & Frossard 2021, arXiv:2110.14531, target alignment",
    bounds=(0, 1),
    richer="high",
    invariant={"rotation", "scale", "order"},
)
def ntk_target_share(kernel: TangentKernel) -> Estimate:
    r"""Mean of the kernel along the targets beside its trace.

    $\sum_c y_c^\top K y_c / (\sum_c \lVert y_c \rVert^2 \operatorname{tr} K)$, y centered

    1 where the targets are all that the kernel has. The null level is the mean over all ways to
    deal the targets to the samples.
    """
    aims, k = kernel.aims(), kernel.nonzero()
    share = (aims * (k @ aims)).sum() / aims.square().sum() / k.trace()
    null = float(without_mean(k).trace() / k.trace()) / (len(k) - 1)
    return Estimate(float(share), null=null)


@published(
    "Jacot, Gabriel & Hongler 2018, arXiv:1806.07572: the kernel is a sum over layers",
    bounds=(0, 1),
    invariant={"rotation", "order"},
)
def ntk_share(kernel: TangentKernel) -> float:
    r"""How much of the model's kernel is that of a layer.

    $\operatorname{tr} K_l / \sum_k \operatorname{tr} K_k$
    """
    whole = kernel.whole or kernel
    return float(kernel.matrix.trace() / whole.nonzero().trace())


@published(
    _CHANGE + ", layer by layer",
    bounds=(0, INF),
    richer="high",
    invariant={"rotation", "order"},
)
def ntk_layer_change(kernel: TangentKernel) -> float:
    r"""Size of the change of a layer's part beside the size of the model's kernel at the start.

    $\lVert K_{l,t} - K_{l,0} \rVert_F / \lVert K_0 \rVert_F$
    """
    whole = (kernel.whole or kernel).start()
    if kernel.initial is None:
        raise Undefined("the layer's kernel at the start of training is not known: keep its terms")
    return float((kernel.matrix - kernel.initial).norm() / whole.norm())
