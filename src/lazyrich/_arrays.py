"""Arrays of activations as the same batches that a model gives."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._sums import within_span
from ._views import as_rows, checked_view
from .errors import EmptyData, NonFinite, ShapeError, TooFewSamples
from .statistics import Batch

_ROWS = 8192  # rows at a time: temporary copies stay small beside the arrays


class Arrays:
    """Named arrays of [n samples, d units], with labels and outputs for the same samples.

    Raises:
        LazyrichError: an array, label vector or view that does not fit; the message names it.
    """

    def __init__(
        self,
        activations: Mapping[str, Any] | Any,
        labels: Any,
        outputs: Any,
        view: str | None,
        device: torch.device | str | None,
    ) -> None:
        if not isinstance(activations, Mapping):
            activations = {"activations": activations}
        if not activations:
            raise TooFewSamples("no array was given: pass {'name': array of [n samples, d units]}.")
        if view is not None:
            checked_view(view)
        device = torch.device(device or "cpu")
        self._x = {str(k): _matrix(str(k), a, view).to(device) for k, a in activations.items()}
        self._labels = None if labels is None else _classes(labels).to(device)
        self._outputs = None if outputs is None else _outputs(outputs).to(device)
        for name, x in self._x.items():
            for what, other in (("labels", self._labels), ("outputs", self._outputs)):
                if other is not None and len(other) != len(x):
                    raise ShapeError(f"{name}: {len(x)} samples came with {len(other)} {what}.")

        if not any(map(len, self._x.values())):
            raise EmptyData("the arrays hold no samples.")

    @property
    def widths(self) -> dict[str, int]:
        """Units of each array."""
        return {name: x.shape[1] for name, x in self._x.items()}

    def rotate_into_span(self) -> None:
        """Put wide clouds into hardly more coordinates than they have points.

        For d units and n < d samples, moments then take n x n in place of d x d. A rotation, so
        only for measures that no rotation changes.
        """
        for name, x in self._x.items():
            if x.shape[0] + 1 < x.shape[1] and bool(torch.isfinite(x).all()):
                self._x[name] = within_span(x)

    def batches(self) -> Iterator[dict[str, Batch]]:
        """All arrays, some rows at a time."""
        for start in range(0, max(map(len, self._x.values())), _ROWS):
            at = slice(start, start + _ROWS)
            labels = None if self._labels is None else self._labels[at]
            outputs = None if self._outputs is None else self._outputs[at]
            yield {
                name: Batch(x[at], labels, outputs, torch.arange(len(x), device=x.device)[at])
                for name, x in self._x.items()
            }


def _tensor(name: str, array: Any) -> Tensor:
    try:
        x = array.detach() if isinstance(array, Tensor) else torch.as_tensor(_native(array))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"{name}: not an array of numbers ({error}).") from error
    if x.is_complex():
        raise ShapeError(f"{name}: complex numbers. Give real and imaginary parts as units.")
    return x if x.is_floating_point() else x.double()


def _native(array: Any) -> Any:
    """As numpy array in this machine's byte order and in one piece, as torch takes it."""
    found = np.asarray(array)
    if found.dtype == object:
        found = found.astype(np.float64)
    return np.ascontiguousarray(found, dtype=found.dtype.newbyteorder("="))


def _matrix(name: str, array: Any, view: str | None) -> Tensor:
    x = _tensor(name, array)
    if x.ndim == 2:
        return x
    if x.ndim < 2:
        raise ShapeError(f"{name}: needs [n samples, d units], got {list(x.shape)}. Reshape it.")
    if view is None:
        raise ShapeError(
            f"{name}: needs [n samples, d units], got {list(x.shape)}. Reshape it, or say how to "
            "read more axes with view='mean' or view='flatten'."
        )
    if view == "tokens":
        raise ShapeError(f"{name}: flatten tokens into rows first, beside their labels.")
    return as_rows(x, view, len(x)).x


def _outputs(outputs: Any) -> Tensor:
    x = _tensor("outputs", outputs)
    return x[:, None] if x.ndim == 1 else _matrix("outputs", x, None)


def _classes(labels: Any) -> Tensor:
    if isinstance(labels, Tensor):
        labels = labels.cpu().double() if labels.is_floating_point() else labels.cpu()
    values = np.asarray(labels)
    if values.ndim != 1:
        raise ShapeError(f"labels: needs one class for each sample, got {list(values.shape)}.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise NonFinite("labels: NaN or infinity is no class. Drop those samples first.")
    if values.dtype.kind in "iub":
        return torch.as_tensor(values.astype(np.int64))
    try:
        member = np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        raise ShapeError(f"labels: classes of mixed types ({error}).") from error
    return torch.as_tensor(member.astype(np.int64))
