"""How often the model is right: printed beside geometry, never part of it."""

from ..errors import Undefined
from ..statistics import Predictions
from ._published import Estimate, published


@published(
    "share of correct predictions; the performance that a measure of richness must not depend on",
    bounds=(0, 1),
    invariant={"shift", "rotation", "scale", "order", "affine", "output_scale"},
    layer="outputs",
)
def accuracy(p: Predictions) -> Estimate:
    r"""Share of samples whose largest output is at their label.

    $\frac{1}{n} \sum_i \mathbb{1}[\arg\max_c f_c(x_i) = y_i]$
    """
    if p.outputs < 2:
        raise Undefined("one output: nothing to take the largest of")
    if int(p.lowest) < 0 or int(p.highest) >= p.outputs:
        raise Undefined(
            f"labels from {int(p.lowest)} to {int(p.highest)} do not number {p.outputs} outputs"
        )
    wrong = int(p.n - p.correct)
    return Estimate((p.correct / p.n).item(), f"{wrong} errors of {int(p.n)}")
