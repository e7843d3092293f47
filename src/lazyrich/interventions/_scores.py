"""How good answers are, sample by sample, and what that comes to with its interval."""

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import torch
from jaxtyping import Float
from scipy.special import stdtrit
from scipy.stats import binomtest
from torch import Tensor
from torch.nn import functional

from .._evaluation import definition
from .._records import Definition, Record
from ..errors import NonFinite, ShapeError
from ..measures import CATALOGUE

DEFINED = {
    "accuracy": definition(CATALOGUE["accuracy"]),
    "cross_entropy": Definition(
        "cross_entropy",
        "Mean negative log-likelihood of the classes, in nats.",
        r"$-\frac1n \sum_i \log \operatorname{softmax}(f(x_i))_{y_i}$",
        "",
        "neither",
        (0, inf),
    ),
    "squared_error": Definition(
        "squared_error",
        "Mean squared error of the outputs.",
        r"$\frac1{nC} \sum_{ic} (f_c(x_i) - y_{ic})^2$",
        "",
        "neither",
        (0, inf),
    ),
}
DEFINED |= {
    f"{name}_change": Definition(
        f"{name}_change",
        f"{named} with an intervention less that without, sample by sample.",
        rf"$\frac1n \sum_i s_i(\tilde h) - s_i(h)$, s: {name.replace('_', ' ')}",
        "",
        "neither",
        (-1.0 if name == "accuracy" else -inf, 1.0 if name == "accuracy" else inf),
    )
    for name, named in (
        ("accuracy", "Accuracy"),
        ("cross_entropy", "Cross-entropy"),
        ("squared_error", "Squared error"),
    )
}


@dataclass
class Score:
    """A mean over samples, as it comes."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, each: Float[Tensor, " n"]) -> None:
        self.n += len(each)
        self.total += float(each.sum())
        self.squares += float(each.square().sum())

    @property
    def value(self) -> float:
        return self.total / self.n

    def record(self, measure: str, layer: str) -> Record:
        """With its standard error and 95 % interval, where there are two samples or more.

        Wilson's interval where each sample is right or wrong, else Student's.
        """
        record = Record("", 0, layer, "", measure, None, "", self.value, n=self.n)
        if self.n < 2:
            return record
        spread = max(self.squares / self.n - self.value**2, 0.0) * self.n / (self.n - 1)
        error = sqrt(spread / self.n)
        if measure == "accuracy" and self.squares == self.total:
            found = binomtest(round(self.total), self.n).proportion_ci(method="wilson")
            low, high = map(float, found)
        else:
            least, most = DEFINED[measure].bounds
            reach = float(stdtrit(self.n - 1, 0.975)) * error
            low, high = max(self.value - reach, least), min(self.value + reach, most)
        return replace(record, standard_error=error, low=low, high=high)


def each_score(outputs: Any, labels: Tensor | None, n: int) -> dict[str, Tensor]:
    """Scores of n samples one by one.

    Raises:
        ShapeError: no labels, or outputs that do not go with them.
        NonFinite: outputs with NaN or infinity.
    """
    outputs, labels = _fitting(outputs, labels, n)
    outputs = outputs.double()
    if labels.is_floating_point():
        if outputs.numel() != labels.numel():
            raise ShapeError(
                f"the model returns {tuple(outputs.shape)} for targets {tuple(labels.shape)}."
            )
        gaps = outputs.reshape(n, -1) - labels.reshape(n, -1)
        return {"squared_error": gaps.square().mean(1)}
    if outputs.ndim != 2 or labels.ndim != 1:
        raise ShapeError(
            f"the model returns {tuple(outputs.shape)} for labels {tuple(labels.shape)}: "
            "a row of outputs and one class are needed for each sample."
        )
    if outputs.shape[1] == 1:  # one output for two classes: its sign decides
        outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
    if int(labels.min()) < 0 or int(labels.max()) >= outputs.shape[1]:
        raise ShapeError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, and the model has "
            f"{outputs.shape[1]} outputs."
        )
    right = (outputs.argmax(1) == labels).double()
    return {
        "accuracy": right,
        "cross_entropy": functional.cross_entropy(outputs, labels.long(), reduction="none"),
    }


def _fitting(outputs: Any, labels: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
    if labels is None:
        raise ShapeError("the data has no labels to score by: yield (inputs, labels).")
    if labels.ndim == 0:
        raise ShapeError("the labels are a single number: one for each sample is needed.")
    if not isinstance(outputs, Tensor) or len(outputs) != n or len(labels) != n:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ShapeError(f"the model returns {shape} for {n} samples and {len(labels)} labels.")
    if not bool(outputs.isfinite().all()):
        raise NonFinite("the model's outputs hold NaN or infinity, and cannot be scored.")
    return outputs, labels
