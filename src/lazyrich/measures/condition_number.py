"""How far apart the strongest and the weakest direction are."""

from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues, hidden


@published(
    "Tsitsulin, Munkhoeva & Perozzi 2023, arXiv:2305.16562 (there: its inverse)",
    bounds=(1, float("inf")),
    invariant={"shift", "rotation", "scale", "order"},
)
def condition_number(x: Moments, *, centered: bool = True) -> Estimate:
    r"""Largest singular value of the features over the smallest that is above rounding.

    $\sigma_1 / \sigma_r$ of the centered n x d features

    With r below d the true value is infinite, and this is the condition within the span: the note
    says so. Products in float32 tell no singular value under 3e-4 of the largest from rounding.

    Args:
        x: moments of the features.
        centered: whether the mean is subtracted first.
    """
    values = eigenvalues(x, centered)
    value = float((values[0] / values[-1]).sqrt())
    n, d = int(x.n), len(x.mean)
    if len(values) < d:
        note = hidden(x, len(values)) or f"n = {n} samples span {len(values)} of {d} directions"
        return Estimate(value, f"{note}: the condition within them", caution=True)
    return Estimate(value)
