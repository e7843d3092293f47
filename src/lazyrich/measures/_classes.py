"""What measures of class structure share."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import ClassMoments
from ._published import Estimate

_ROUNDINGS = 1  # unit in the last place; the rounding of single samples averages out


def several(classes: ClassMoments, least: int = 2) -> ClassMoments:
    """The same moments, if enough classes were seen.

    Raises:
        Undefined: too few classes.
    """
    seen = len(classes.classes)
    if seen < least:
        raise Undefined(f"needs {least} classes or more, saw {seen}")
    return classes


def separating(
    gaps: Float[Tensor, "k d"], classes: ClassMoments
) -> tuple[Float[Tensor, " r"], Float[Tensor, "r d"]]:
    """Singular values and directions of class means about their center, above rounding.

    A network that computes in float32 gives each activation some units in the last place wrong:
    class means that fill fewer dimensions than they could seem to fill them all, by that much.

    Raises:
        Undefined: the means coincide.
    """
    _, sizes, directions = torch.linalg.svd(gaps, full_matrices=False)
    rounding = _ROUNDINGS * classes.precision * classes.means.norm(dim=1).max()
    floor = torch.maximum(1e-10 * sizes[0], rounding)
    kept = sizes > floor
    kept[len(gaps) - 1 :] = False  # about their own center, k means span k - 1 directions
    if not bool(kept.any()):
        raise Undefined("the class means coincide")
    return sizes[kept], directions[kept]


def with_spread(classes: ClassMoments, value: float, null: float | None = None) -> Estimate:
    """The value, with a caution where classes have a single sample and so no spread to measure."""
    alone = int((classes.counts < 2).sum())
    if alone:
        seen = len(classes.classes)
        note = f"{alone} of {seen} classes have a single sample and no spread"
        return Estimate(value, note, caution=True, null=null)
    return Estimate(value, null=null)
