"""alpha-ReQ: the exponent with which the eigenvalues of a representation decay."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import Undefined
from ..statistics import Moments
from ._published import Estimate, published
from ._spectra import eigenvalues

_FIRST, _FEWEST = 11, 12


@published(
    "Agrawal et al., alpha-ReQ, NeurIPS 2022; fit as in Stringer et al., Nature 2019",
    invariant={"shift", "rotation", "scale", "order"},
    estimator="weighted least squares",
)
def alpha_req(
    x: Moments,
    *,
    first: int | None = None,
    last: int = 100,
    weights: Literal["rank", "equal"] = "rank",
) -> Estimate:
    r"""Exponent of a power law through the eigenvalues of the centered covariance.

    $\lambda_k \propto k^{-\alpha}$, a line through the logs of both over a range of ranks

    The range decides the value, so the note states it with the share of variance of the logs that
    the line explains. A caution stands where that is under 0.95, or where the range is short.

    Args:
        x: moments of the features.
        first: rank where the fit begins; None for 11, as the published code has it, or for 1
            where that would leave fewer than 12 ranks.
        last: rank where it ends; sooner where eigenvalues drown in rounding.
        weights: of the ranks: 1/`rank`, as published, or `equal`.

    Raises:
        Undefined: fewer than three eigenvalues in the range, or no range.
    """
    if first is not None and first < 1:
        raise Undefined(f"ranks are counted from 1, got first={first}")
    values = eigenvalues(x, centered=True)[:last]
    if first is None:
        first = _FIRST if len(values) - _FIRST + 1 >= _FEWEST else 1
    fitted = values[first - 1 :]
    if len(fitted) < 3:
        raise Undefined(f"{len(fitted)} eigenvalues from rank {first} on: a line needs three")
    ranks = torch.arange(first, first + len(fitted), dtype=values.dtype, device=values.device)
    slope, explained = _line(ranks, fitted, 1 / ranks if weights == "rank" else ranks**0)
    note = f"ranks {first} to {first + len(fitted) - 1}, R2 = {explained:.3f}"
    return Estimate(-slope, note, caution=explained < 0.95 or len(fitted) < _FEWEST)


def _line(
    ranks: Float[Tensor, " r"], values: Float[Tensor, " r"], weights: Float[Tensor, " r"]
) -> tuple[float, float]:
    """Slope of the logs, and the weighted share of their variance that the line explains."""
    w = weights / weights.sum()
    x, y = ranks.log(), values.log()
    x, y = x - w @ x, y - w @ y
    slope = (w * x) @ y / ((w * x) @ x)
    spread = (w * y) @ y
    left = (w * (y - slope * x)) @ (y - slope * x)
    return float(slope), float(1 - left / spread) if spread > 0 else 1.0
