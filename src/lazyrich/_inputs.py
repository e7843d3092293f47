"""What a loader yields, as a call of the model with labels and mask beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from .errors import ShapeError

Unpack = Callable[[Any], tuple[Any, Any]]
"""From an item of the loader to (inputs, labels); labels may be None."""

_LABEL_KEYS = ("labels", "label", "targets", "target")


@dataclass(frozen=True, slots=True)
class Call:
    """One batch as the model takes it."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    labels: Tensor | None = None
    mask: Bool[Tensor, "n t"] | None = None

    def samples(self, axis: int) -> int:
        """How many there are: the length of the first tensor that goes in, along that axis."""
        for value in (*self.args, *self.kwargs.values()):
            if isinstance(value, Tensor) and value.ndim > axis:
                return value.shape[axis]
        raise ShapeError(
            "the batch holds no tensor to count samples by. Let the loader yield inputs or "
            "(inputs, labels), or say how to read its items with Capture(..., unpack=...)."
        )

    def to(self, device: torch.device) -> "Call":
        """The same with all its tensors on a device."""

        def move(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        return replace(
            self,
            args=tuple(map(move, self.args)),
            kwargs={k: move(v) for k, v in self.kwargs.items()},
            labels=move(self.labels),
            mask=move(self.mask),
        )


def as_call(item: Any, unpack: Unpack | None = None) -> Call:
    """Read an item of the loader: inputs, (inputs, labels), or a mapping with labels in it.

    Raises:
        ShapeError: a tuple of more than two, whose parts only the user can name.
    """
    inputs, labels = _split(item) if unpack is None else unpack(item)
    mask = None
    if isinstance(inputs, Mapping):
        kwargs = dict(inputs)
        for key in _LABEL_KEYS:
            found = kwargs.pop(key, None)
            labels = found if labels is None else labels
        given = kwargs.get("attention_mask")
        mask = given.bool() if isinstance(given, Tensor) and given.ndim == 2 else None
        return Call((), kwargs, _tensor(labels), mask)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Call(args, {}, _tensor(labels), mask)


def _split(item: Any) -> tuple[Any, Any]:
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


def _tensor(labels: Any) -> Tensor | None:
    return None if labels is None else torch.as_tensor(labels)
