"""Kernel-target alignment: how much the features' kernel looks like that of the labels."""

from math import sqrt
from typing import NamedTuple

from ..errors import Undefined
from ..statistics import ClassMoments, FourthMoments
from ._classes import several
from ._kernel_alignment import unbiased
from ._published import Estimate, published
from ._spectra import varying
from ._unbiased import squared_norm


@published(
    "Cristianini et al., NIPS 2001; centered as in Cortes, Mohri & Rostamizadeh, JMLR 2012",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order"},
)
def kernel_target_alignment(classes: ClassMoments, *, centered: bool = True) -> Estimate:
    r"""Cosine between the linear kernel of the features and the kernel of the labels.

    $\langle K, L \rangle_F / (\lVert K \rVert_F \lVert L \rVert_F)$, with $K = X X^\top$ and
    $L_{ij}$ 1 where i and j have the same label, both centered

    The null level is the exact mean over all ways to deal the labels to the samples.

    Args:
        classes: moments by class; samples without a label do not count.
        centered: whether both kernels are. Raw, unrelated labels score 0.6 and more where one
            class is frequent or the features share a mean.
    """
    x = varying(several(classes).known)
    n, labels = int(x.n), _Labels.of(classes)
    gaps = classes.means - x.mean
    if centered:
        cross = float((classes.counts / n).square() @ gaps.square().sum(1))
        norms = float(x.scatter.norm()) / n * sqrt(labels.centered_square)
        null = float(x.covariance.trace()) * labels.trace / (n - 1)
        return Estimate(cross / norms, null=null / norms)
    cross = float((classes.counts / n).square() @ classes.means.square().sum(1))
    second = x.covariance + x.mean.outer(x.mean)
    norms = float(second.norm()) * sqrt(labels.square)
    diagonal, everything = float(second.trace()), float(x.mean.square().sum())
    pairs = (n * everything - diagonal) * (n * labels.square - 1) / (n - 1)
    return Estimate(cross / norms, null=(diagonal + pairs) / n / norms)


@published(
    "Cortes, Mohri & Rostamizadeh, JMLR 2012; debiased after Song et al., JMLR 2012",
    bounds=(-1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
    estimator="debiased",
)
def kernel_target_alignment_debiased(classes: ClassMoments) -> Estimate:
    r"""Kernel-target alignment of all samples there could be, of which n were drawn.

    $\operatorname{HSIC}_1(K, L) / \sqrt{\operatorname{HSIC}_1(K, K) \operatorname{HSIC}_1(L, L)}$

    0 on average for unrelated labels, where the plain value is not.
    """
    x, n = varying(several(classes).known), int(classes.labelled)
    kernel = squared_norm(FourthMoments(x, classes.tail))
    shares = classes.counts / n
    gaps = (classes.means - x.mean).square().sum(1)
    labels = _Labels.of(classes)
    own = 1 - 2 * shares + labels.square  # squared distance of a label from the mean label
    target = unbiased(
        n**2 * labels.centered_square,
        float(classes.counts @ own.square()),
        n * labels.trace,
        n * labels.trace,
        n,
    )
    cross = unbiased(
        float(classes.counts.square() @ gaps),
        float((classes.squares + classes.counts * gaps) @ own),
        float(x.scatter.trace()),
        n * labels.trace,
        n,
    )
    if target <= 0:
        raise Undefined(f"n = {n} is too few: the labels do not repeat enough")
    return Estimate(cross / sqrt(kernel * target), null=0.0)


class _Labels(NamedTuple):
    """The kernel of the labels over n samples, by powers of n."""

    square: float  # |L|^2 / n^2
    centered_square: float  # the same, centered
    trace: float  # of the centered kernel / n

    @classmethod
    def of(cls, classes: ClassMoments) -> "_Labels":
        shares = classes.counts / classes.labelled
        square, cube = float(shares.square().sum()), float((shares**3).sum())
        return cls(square, square - 2 * cube + square**2, 1 - square)
