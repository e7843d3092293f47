"""Neural collapse: variability within classes (NC1)."""

import torch

from ..errors import Undefined
from ..statistics import ClassMoments
from ._published import Estimate, published


@published(
    "Papyan, Han & Donoho, PNAS 2020, doi:10.1073/pnas.2015509117",
    bounds=(0, float("inf")),
    richer="low",
    invariant={"shift", "rotation", "scale", "order"},
)
def nc1(classes: ClassMoments) -> float | Estimate:
    r"""Variance within classes relative to the variance between their means.

    $\operatorname{tr}(\Sigma_W \Sigma_B^{+}) / C$ over the C classes seen, with
    $\Sigma_B = \frac1C \sum_c (\mu_c - \mu_G)(\mu_c - \mu_G)^\top$ and $\mu_G$ the mean of the
    class means.

    0 at collapse. Blind to variance within classes that is orthogonal to the class means.
    """
    c = len(classes.classes)
    if c < 2:
        raise Undefined(f"needs two classes or more, saw {c}")
    gaps = classes.means - classes.means.mean(0)
    _, sizes, directions = torch.linalg.svd(gaps, full_matrices=False)
    kept = sizes > 1e-10 * sizes[0]
    if not bool(sizes[0] > 1e-14 * classes.means.norm()):
        raise Undefined("the class means coincide")
    basis = directions[kept]
    within = ((basis @ (classes.within / classes.labelled)) * basis).sum(1)
    value = float((within / sizes[kept].square()).sum())
    alone = int((classes.counts < 2).sum())
    if alone:
        return Estimate(
            value, f"{alone} of {c} classes have a single sample and no spread", caution=True
        )
    return value
