"""Networks behind a mask of the inputs that matter."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from math import nan
from statistics import fmean
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .._engine import Model, as_capture
from .._feature_matrix import FeatureMatrix
from .._inputs import Inputs
from .._records import Records
from .._session import raw_output, uncompiled, undivided
from .._source import Source
from .._untouched import Draws, checked_seed, untouched
from ..errors import EmptyData, LazyrichError, ShapeError
from ._scores import DEFINED, Score, each_score

Importance = FeatureMatrix | Tensor


class InputMask(nn.Module):
    """Keeps some coordinates of each sample and overwrites the others.

    Put it before a network to train it again on what it may see:
    `nn.Sequential(InputMask.of(agop, keep=0.1), network)`.

    Args:
        kept: true where a coordinate stays, for the d coordinates of a sample in their order.
        fill: what the others become: a number, or the d numbers of one sample.

    Raises:
        LazyrichError: `kept` or `fill` is no such thing.
        ShapeError: `fill` has another number of entries.
    """

    kept: Tensor
    fill: Tensor

    def __init__(self, kept: Bool[Tensor, " d"], fill: float | Float[Tensor, " d"] = 0.0) -> None:
        super().__init__()
        if not isinstance(kept, Tensor) or kept.dtype != torch.bool:
            raise LazyrichError("kept: a tensor of booleans, one for each coordinate of a sample.")
        if not isinstance(fill, int | float | Tensor):
            raise LazyrichError(f"fill={fill!r}: a number, or a tensor with one for each input.")
        self.register_buffer("kept", kept.flatten())
        self.register_buffer("fill", torch.as_tensor(fill).flatten())
        if self.fill.numel() not in (1, self.kept.numel()):
            raise ShapeError(
                f"fill holds {self.fill.numel()} numbers for samples of {self.kept.numel()}: "
                "one for all, or one for each is needed."
            )

    @classmethod
    def of(
        cls,
        importance: Importance,
        *,
        keep: float | None = None,
        remove: float | None = None,
        fill: float | Tensor = 0.0,
    ) -> "InputMask":
        """Keep, or remove, the share of coordinates that matter most.

        Args:
            importance: an AGOP or NFM over the inputs, whose diagonal decides, or any numbers, one
                for each coordinate of a sample.
            keep, remove: one of the two, a share from 0 to 1.
            fill: as in `InputMask`.

        Raises:
            LazyrichError: none of the two or both, or no share.
        """
        if (keep is None) == (remove is None):
            raise LazyrichError("say either keep=, the share of inputs that stay, or remove=.")
        values = _importance(importance)
        count = _count(keep if keep is not None else remove, len(values))
        marked = torch.zeros(len(values), dtype=torch.bool)
        marked[values.sort(descending=True, stable=True).indices[:count]] = True
        return cls(marked if keep is not None else ~marked, fill)

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """The masked samples, in the shape they came in.

        Raises:
            ShapeError: samples of another number of coordinates.
        """
        if not x.is_floating_point():
            raise ShapeError(f"inputs are {x.dtype}: only floating point inputs can be masked.")
        rows = x.flatten(1)
        if rows.shape[1] != self.kept.numel():
            raise ShapeError(
                f"samples have {rows.shape[1]} coordinates, and the mask is over "
                f"{self.kept.numel()}. Take the matrix of a layer that sees all of a sample at "
                "once, such as a first Linear; patches of a convolution are no coordinates."
            )
        kept, fill = self.kept.to(x.device), self.fill.to(x)
        return torch.where(kept, rows, fill).reshape(x.shape)


def mask_inputs(
    model: Model,
    data: Iterable[Any],
    importance: Importance,
    *,
    keep: float | Sequence[float] | None = None,
    remove: float | Sequence[float] | None = None,
    fill: float | Tensor = 0.0,
    draws: int = 5,
    seed: int = 0,
    run: str = "run",
    progress: bool = True,
) -> Records:
    """What a network can tell from the inputs that matter most, or without them.

    All of `data` is read once; the network runs as it is, in evaluation mode, and is not trained
    again: see `InputMask` for that. Labels are classes, or else targets of a regression.

    Reference: Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639.

    Args:
        model: any module, or a `Capture` that says how to read the data.
        data: a loader or list of (inputs, labels); the first tensor of the inputs is masked.
        importance: what matters, see `InputMask.of`.
        keep, remove: one of the two: a share of the inputs, or several.
        fill: what the others become: a number, or one sample, such as the mean of all.
        draws: masks of as many random coordinates, whose mean is the null level; 0 for none.
        seed: of these, and of all that the model or the data draw.
        run: name for the records.

    Returns:
        Accuracy and cross-entropy, or squared error, with standard errors and intervals; `index`
        is the number of inputs that were kept, all of them in the first row.

    Raises:
        LazyrichError: the input cannot be masked or scored; the message says what to do.
    """
    if (keep is None) == (remove is None):
        raise LazyrichError("say either keep=[...], shares of inputs that stay, or remove=[...].")
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 0:
        raise LazyrichError(f"draws={draws!r}: 0 for no null level, or more.")
    word: Literal["keep", "remove"] = "keep" if keep is not None else "remove"
    asked = keep if keep is not None else remove
    shares = list(asked) if isinstance(asked, Iterable) else [asked]
    if not shares:
        raise LazyrichError(f"{word}=[]: one share or more is needed.")
    values = _importance(importance)
    masks = [InputMask(torch.ones(len(values), dtype=torch.bool), fill)]
    masks += [InputMask.of(values, **{word: share}, fill=fill) for share in shares]
    generator = torch.Generator().manual_seed(checked_seed(seed))
    beside = [_shuffled(mask, generator) for mask in masks[1:] for _ in range(draws)]
    scores = _scores(model, data, [*masks, *beside], seed, progress)
    told = f"{word} by {_named(importance)}"
    rows = []
    for place, mask in enumerate(masks):
        nulls = scores[len(masks) + (place - 1) * draws :][:draws] if place else []
        for measure, score in scores[place].items():
            found = replace(score.record(measure, "inputs"), run=run, estimator=told, seed=seed)
            null = fmean(each[measure].value for each in nulls) if nulls else None
            kept = int(mask.kept.sum())
            rows.append(replace(found, index=kept, null=null, d=len(values), dtype="float64"))
    return Records(rows, [DEFINED[name] for name in scores[0]])


def _scores(
    model: Model, data: Iterable[Any], masks: Sequence[InputMask], seed: int, progress: bool
) -> list[dict[str, Score]]:
    """Every score behind every mask, in one pass over the data."""
    capture = as_capture(model, None, None)
    network = capture.model
    tensors = [*network.parameters(), *network.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    scores: list[dict[str, Score]] = [{} for _ in masks]
    draws = Draws(seed, {t.device for t in tensors})
    with ExitStack() as open_, closing(Source(data, seed, progress).items()) as items:
        for context in (uncompiled, undivided, untouched):
            open_.enter_context(context(network))
        for item in items:
            inputs = capture.inputs(item).of_tensors(lambda tensor: tensor.to(device))
            n = inputs.samples(capture.samples_axis)
            if n == 0:
                continue
            for mask, score in zip(masks, scores, strict=True):
                masked = _masked(inputs, mask, capture.samples_axis)
                with torch.no_grad(), draws.active():
                    outputs = raw_output(network(*masked.args, **masked.kwargs))
                for name, each in each_score(outputs, inputs.labels, n).items():
                    score.setdefault(name, Score()).add(each)
    if not scores[0]:
        raise EmptyData("the data holds no samples: every batch is empty.")
    return scores


def _masked(inputs: Inputs, mask: InputMask, axis: int) -> Inputs:
    """The batch with its first tensor masked."""
    first = inputs.tensors()[0]

    def change(tensor: Tensor) -> Tensor:
        if tensor is not first:
            return tensor
        masked: Tensor = mask(tensor.movedim(axis, 0))
        return masked.movedim(0, axis)

    return inputs.of_tensors(change)


def _importance(importance: Importance) -> Float[Tensor, " d"]:
    values = importance.diagonal if isinstance(importance, FeatureMatrix) else importance
    if not isinstance(values, Tensor) or values.numel() == 0:
        raise LazyrichError("importance: an AGOP, an NFM or a tensor of numbers is needed.")
    values = values.detach().flatten().double().cpu()
    if not bool(values.isfinite().all()):
        raise LazyrichError("importance: some of the numbers are NaN or infinite.")
    return values


def _named(importance: Importance) -> str:
    if isinstance(importance, FeatureMatrix):
        return f"{importance.kind} of {importance.layer}"
    return "importance"


def _count(share: Any, d: int) -> int:
    try:
        number = nan if isinstance(share, bool) else float(share)
    except (TypeError, ValueError):
        number = nan
    if not 0 <= number <= 1:
        raise LazyrichError(f"{share!r} is no share of the inputs: numbers from 0 to 1.")
    return round(number * d)


def _shuffled(mask: InputMask, generator: torch.Generator) -> InputMask:
    """As many coordinates, drawn by chance."""
    order = torch.randperm(len(mask.kept), generator=generator)
    return InputMask(mask.kept[order], mask.fill)
