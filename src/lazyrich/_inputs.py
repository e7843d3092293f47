"""What a loader yields, as a call of the model with labels, mask and sample ids beside it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .errors import ShapeError

Unpack = Callable[[Any], Any]
"""From an item of the loader to `Inputs`, (inputs, labels) or (inputs, labels, ids)."""

_LABEL_KEYS = ("labels", "label", "targets", "target")
_ID_KEYS = ("sample_id", "sample_ids")
# what a mask is called, and what it says of a token that counts
_MASKS = {"attention_mask": True, "src_key_padding_mask": False, "key_padding_mask": False}


@dataclass(frozen=True, slots=True)
class Inputs:
    """One batch as the model takes it, and what is known about its samples.

    Attributes:
        args, kwargs: of the model's forward pass.
        labels: a class for each sample; None or floating point for none.
        mask: (n, tokens), true where a token counts.
        ids: a number for each sample, the same wherever it turns up again.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    labels: Tensor | None = None
    mask: Tensor | None = None
    ids: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """The tensors that go into the model."""
        return [v for v in (*self.args, *self.kwargs.values()) if isinstance(v, Tensor)]

    def samples(self, axis: int) -> int:
        """How many there are: the length of the first tensor that goes in, along that axis."""
        for tensor in self.tensors():
            if tensor.ndim > axis:
                return tensor.shape[axis]
        raise ShapeError(
            "the batch holds no tensor to count samples by. Let the loader yield inputs or "
            "(inputs, labels), or say how to read its items with Capture(..., unpack=...)."
        )

    def of_tensors(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """The same with every tensor changed."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        return Inputs(
            tuple(map(changed, self.args)),
            {name: changed(value) for name, value in self.kwargs.items()},
            *map(changed, (self.labels, self.mask, self.ids)),
        )


def as_inputs(item: Any, unpack: Unpack | None = None, skip_tokens: Collection[int] = ()) -> Inputs:
    """Read an item of the loader: inputs, (inputs, labels), or a mapping with labels in it.

    Args:
        unpack: reads items that are none of these.
        skip_tokens: ids of tokens that do not count, such as [CLS] and [SEP].

    Raises:
        ShapeError: a tuple of more than two, whose parts only the user can name.
    """
    found = _split(item) if unpack is None else unpack(item)
    if not isinstance(found, Inputs):
        found = _as_inputs(*found)
    return _skipping(found, skip_tokens) if skip_tokens else found


def _split(item: Any) -> tuple[Any, ...]:
    if not isinstance(item, (tuple, list)):
        return item, None
    if len(item) == 1:
        return item[0], None
    if len(item) == 2:
        return item[0], item[1]
    raise ShapeError(
        f"the loader yields {len(item)} things at once, and which are inputs is not known. "
        "Say so: Capture(model, unpack=lambda item: ((item[0], item[1]), item[2])) "
        "returns (inputs, labels)."
    )


def _as_inputs(inputs: Any, labels: Any, ids: Any = None) -> Inputs:
    if isinstance(inputs, Mapping):
        kwargs = dict(inputs)
        labels, ids = _taken(kwargs, _LABEL_KEYS, labels), _taken(kwargs, _ID_KEYS, ids)
        return Inputs((), kwargs, _tensor(labels), _mask(kwargs), _tensor(ids))
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Inputs(args, {}, _tensor(labels), None, _tensor(ids))


def _mask(kwargs: Mapping[str, Any]) -> Tensor | None:
    for name, counts in _MASKS.items():
        mask = kwargs.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            return mask.bool() == counts
    return None


def _taken(mapping: dict[str, Any], keys: tuple[str, ...], given: Any) -> Any:
    found = [mapping.pop(key) for key in keys if key in mapping]
    return given if given is not None or not found else found[0]


def _skipping(inputs: Inputs, skip: Collection[int]) -> Inputs:
    named = [v for name, v in inputs.kwargs.items() if name == "input_ids"]
    tokens = next((t for t in (*named, *inputs.tensors()) if _are_ids(t)), None)
    if tokens is None:
        raise ShapeError("skip_tokens needs token ids of shape (n, tokens) among the inputs.")
    kept = ~torch.isin(tokens, torch.tensor(list(skip), device=tokens.device))
    return replace(inputs, mask=kept if inputs.mask is None else inputs.mask & kept)


def _are_ids(value: Any) -> bool:
    whole = isinstance(value, Tensor) and not value.is_floating_point()
    return whole and value.ndim == 2 and value.dtype != torch.bool


def _tensor(values: Any) -> Tensor | None:
    if values is None:
        return None
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"labels or ids of type {type(values).__name__} make no tensor ({error})."
        ) from error
