"""How what a layer puts out becomes a matrix of rows by units."""

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm, pooling

from .errors import ShapeError, UnknownName

View = Literal["mean", "flatten", "tokens", "last"]
VIEWS: tuple[str, ...] = get_args(View)

_UNITS_FIRST = (
    conv._ConvNd,
    batchnorm._BatchNorm,
    instancenorm._InstanceNorm,
    nn.GroupNorm,
    pooling._MaxPoolNd,
    pooling._AvgPoolNd,
    pooling._AdaptiveAvgPoolNd,
    pooling._AdaptiveMaxPoolNd,
)
_UNITS_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.MultiheadAttention, nn.RNNBase)


class Rows(NamedTuple):
    """A matrix of rows by units, and the number of the sample that each row comes from."""

    x: Float[Tensor, "m d"]
    samples: Int[Tensor, " m"]


def checked_view(view: str) -> None:
    """Raise `UnknownName` unless the view is one of the four."""
    if view not in VIEWS:
        raise UnknownName("view", view, VIEWS)


def units_first(module: nn.Module) -> bool | None:
    """Whether units are axis 1 of what a module puts out; None where its kind does not say."""
    for child in reversed(list(module.modules())):
        if isinstance(child, _UNITS_FIRST):
            return True
        if isinstance(child, _UNITS_LAST):
            return False
    return None


def samples_first(tensor: Tensor, module: nn.Module | None, axis: int, n: int) -> Tensor:
    """The activation with its n samples in front, where they stand behind time."""
    if tensor.ndim < 3:
        return tensor
    if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
        behind = not module.batch_first or tensor.shape[0] != n  # states: layers come first
    else:
        behind = axis == 1
    return tensor.transpose(0, 1) if behind and tensor.shape[1] == n else tensor


def as_rows(
    activation: Tensor,
    view: str,
    n: int,
    *,
    channels: bool | None = None,
    mask: Bool[Tensor, "n t"] | None = None,
) -> Rows:
    """A matrix of rows by units out of whatever shape a layer puts out.

    Args:
        activation: n samples first; maps (n, units, *places) or tokens (n, places, units).
        view: `mean` over places, `flatten` of places into units, `tokens` for each place a row of
            its own, `last` for the last token.
        n: samples in the batch.
        channels: whether units are axis 1; None for the usual: tokens of three axes have them
            last, maps of four and more have them second.
        mask: which tokens count.

    Raises:
        ShapeError: the first axis is not the samples, or the view does not fit.
    """
    if activation.ndim == 0 or activation.shape[0] != n:
        raise ShapeError(
            f"its shape is {list(activation.shape)}, and the batch has {n} samples; "
            "the first axis must be the samples"
        )
    samples = torch.arange(n, device=activation.device)
    if activation.ndim <= 2 or view == "flatten":
        return Rows(activation.reshape(n, -1), samples)
    maps = activation.ndim > 3 if channels is None else channels
    if view == "mean" and maps:
        return Rows(_averaged(activation, list(range(2, activation.ndim))), samples)
    units = activation.shape[1] if maps else activation.shape[-1]
    places = (activation.movedim(1, -1) if maps else activation).reshape(n, -1, units)
    if mask is not None and (maps or mask.shape != places.shape[:2]):
        mask = None
    if view == "mean":
        return Rows(_averaged(places, [1]) if mask is None else _mean(places, mask), samples)
    if view == "last":
        return Rows(_last(places, mask, maps), samples)
    if mask is None:
        return Rows(places.flatten(0, 1), samples.repeat_interleave(places.shape[1]))
    return Rows(places[mask], samples[:, None].expand(mask.shape)[mask])


def _averaged(activation: Tensor, axes: list[int]) -> Float[Tensor, "n d"]:
    # half precision would lose digits over a thousand places
    return activation.mean(axes, dtype=torch.promote_types(activation.dtype, torch.float32))


def _mean(places: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"]) -> Float[Tensor, "n d"]:
    wide = torch.promote_types(places.dtype, torch.float32)
    kept = torch.where(mask[..., None], places, 0).to(wide)  # padding may hold anything
    return kept.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def _last(
    places: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None, maps: bool
) -> Float[Tensor, "n d"]:
    if maps:
        raise ShapeError("the view 'last' needs tokens in a sequence, and these are maps")
    if mask is None:
        return places[:, -1]
    position = torch.arange(mask.shape[1], device=mask.device)
    at = torch.where(mask, position, 0).amax(1)  # the last one that counts, left or right padded
    return places[torch.arange(len(places), device=places.device), at]
