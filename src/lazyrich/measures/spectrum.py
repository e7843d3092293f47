"""The eigenvalues of a representation's covariance."""

import torch

from ..statistics import Moments
from ._published import Curve, published
from ._spectra import eigenvalues


@published(
    "Stringer et al., Nature 2019, doi:10.1038/s41586-019-1346-5",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order"},
)
def spectrum(x: Moments) -> Curve:
    r"""Share of the variance along each principal direction, by rank.

    $\lambda_k / \sum_i \lambda_i$, eigenvalues of the centered covariance, largest first.

    Wide layers give ranks 1 to 16 and log-spaced ones beyond; every share that is given is exact,
    and those that rounding would drown are left out.
    """
    values = eigenvalues(x, centered=True)
    return at_ranks(values / values.sum())


def at_ranks(values: torch.Tensor) -> Curve:
    """A curve through the ranks that are shown."""
    return {k: values[k - 1].item() for k in thinned(len(values))}


def thinned(d: int) -> list[int]:
    """Ranks 1 to 16, then log-spaced up to d.

    >>> thinned(3)
    [1, 2, 3]
    >>> len(thinned(4096))
    58
    """
    spaced = torch.logspace(0, torch.log10(torch.tensor(float(d))), 64, dtype=torch.float64)
    return sorted({*range(1, min(d, 16) + 1), *spaced.round().long().tolist()})
