"""How much the effective dimension shrinks between the first layer measured and the last."""

from math import isfinite, log

from ..errors import Undefined
from ._published import Estimate, Profile, published


@published(
    "Yadav 2026, arXiv:2602.00130 (sign of the published tables)",
    invariant={"shift", "rotation", "scale", "order"},
)
def total_compression(effective_dimension: Profile) -> Estimate:
    r"""Log ratio of the effective dimensions of the first and the last layer measured.

    $C = \ln(d_\text{first} / d_\text{last})$: positive compresses, negative expands.

    The prose and the tables of the source differ in sign; this is the tables'. The choice of the
    first layer decides the value, so the note names both layers with their dimensions, and says
    which of the two it is.
    """
    (first, wide), *_, (last, narrow) = effective_dimension.items()
    if not (isfinite(wide) and isfinite(narrow)):
        raise Undefined(f"no effective dimension at {first if not isfinite(wide) else last}")
    word = "compresses" if wide > narrow else "expands" if wide < narrow else "keeps"
    note = f"{word}: {first} {wide:.4g} -> {last} {narrow:.4g}"
    return Estimate(log(wide / narrow), note)
