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

    Over the samples that have a label.
    """
    if p.outputs < 2:
        raise Undefined("one output: nothing to take the largest of")
    if not bool(p.labelled > 0):
        raise Undefined("no sample has a label")
    if int(p.lowest) < 0 or int(p.highest) >= p.outputs:
        raise Undefined(
            f"labels from {int(p.lowest)} to {int(p.highest)} do not number {p.outputs} outputs"
        )
    wrong = int(p.labelled - p.correct)
    return Estimate((p.correct / p.labelled).item(), f"{wrong} errors of {int(p.labelled)}")
