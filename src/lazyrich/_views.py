"""How what a layer puts out becomes a matrix of rows by units."""

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm, pooling
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

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
    """A matrix of rows by units, the number of the sample of each row, and what may mislead."""

    x: Float[Tensor, "m d"]
    samples: Int[Tensor, " m"]
    caution: str = ""


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


def samples_first(tensor: Tensor, module: nn.Module, part: str, axis: int, n: int) -> Tensor:
    """The activation with its n samples in front, where they stand behind time or layers.

    Args:
        part: of what the module takes or puts out, as `[0]`; empty for all of it.
        axis: of the samples in what goes into the model.
    """
    if tensor.ndim < 3:
        return tensor
    beside = part not in ("", "[0]")  # final states, layers first; or attention, samples first
    if isinstance(module, nn.RNNBase):
        behind = beside or not module.batch_first
    elif isinstance(module, nn.MultiheadAttention):
        behind = not beside and not module.batch_first
    else:
        behind = axis == 1
    return tensor.transpose(0, 1) if behind and tensor.shape[1] == n else tensor


def padded(activation: Tensor | PackedSequence) -> tuple[Tensor, Bool[Tensor, "n t"] | None]:
    """Sequences of several lengths as one tensor, and where it is more than padding.

    Fused encoders put out nested tensors where they are given padding, and recurrent networks
    packed sequences; all others come back as they are, with None.

    Raises:
        ShapeError: the lengths differ along other axes, too.
    """
    if isinstance(activation, PackedSequence):
        whole, lengths = pad_packed_sequence(activation, batch_first=True)
    elif activation.is_nested:
        parts = activation.detach().unbind()
        if parts[0].ndim != 2 or len({part.shape[1] for part in parts}) > 1:
            raise ShapeError("it is a nested tensor, and not one of tokens by units")
        whole = nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
        lengths = torch.tensor([len(part) for part in parts])
    else:
        return activation, None
    places = torch.arange(whole.shape[1], device=whole.device)
    return whole, places < lengths.to(whole.device)[:, None]


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
        mask: which tokens count, where the activation has tokens.

    Raises:
        ShapeError: the first axis is not the samples, these are no dense numbers, or the view does
            not fit.
    """
    _check(activation, n)
    samples = torch.arange(n, device=activation.device)
    if activation.ndim <= 2:
        return Rows(activation.reshape(n, -1), samples)
    maps = activation.ndim > 3 if channels is None else channels
    mask, caution = _usable(mask, activation, maps)
    if view == "flatten":
        if mask is not None:
            raise ShapeError("the view 'flatten' has no place for tokens that do not count")
        return Rows(activation.reshape(n, -1), samples, caution)
    if view == "mean" and mask is None:
        places = range(2, activation.ndim) if maps else range(1, activation.ndim - 1)
        return Rows(_averaged(activation, list(places)), samples, caution)
    units = activation.shape[1] if maps else activation.shape[-1]
    tokens = (activation.movedim(1, -1) if maps else activation).reshape(n, -1, units)
    if view == "last" and maps:
        raise ShapeError("the view 'last' needs tokens in a sequence, and these are maps")
    if view == "tokens":
        return _every(tokens, samples, mask, caution)
    if mask is not None and not bool(mask.any(1).all()):
        empty = int((~mask.any(1)).nonzero()[0])
        raise ShapeError(f"no token of sample {empty} of the batch counts: leave the sample out")
    return Rows(_mean(tokens, mask) if view == "mean" else _last(tokens, mask), samples, caution)


def _check(activation: Tensor, n: int) -> None:
    if activation.ndim == 0 or activation.shape[0] != n:
        raise ShapeError(
            f"its shape is {list(activation.shape)}, and the batch has {n} samples; "
            "the first axis must be the samples"
        )
    if activation.layout != torch.strided or not activation.is_floating_point():
        kind = f"{activation.layout} of {activation.dtype}".replace("torch.", "")
        raise ShapeError(f"it holds no dense floating-point numbers ({kind})")


def _usable(
    mask: Bool[Tensor, "n t"] | None, activation: Tensor, maps: bool
) -> tuple[Bool[Tensor, "n t"] | None, str]:
    """The mask if it leaves out tokens of this activation, and a caution if it cannot."""
    if mask is None or bool(mask.all()):
        return None, ""
    if activation.ndim == 3 and mask.shape == (activation.shape[0], activation.shape[1 + maps]):
        return mask, ""
    return None, (
        f"padding and skipped tokens count here: the mask is {list(mask.shape)}, "
        f"and the activation {list(activation.shape)}"
    )


def _averaged(activation: Tensor, axes: list[int]) -> Float[Tensor, "n d"]:
    # half precision would lose digits over a thousand places
    return activation.mean(axes, dtype=torch.promote_types(activation.dtype, torch.float32))


def _every(
    tokens: Float[Tensor, "n p d"],
    samples: Int[Tensor, " n"],
    mask: Bool[Tensor, "n p"] | None,
    caution: str,
) -> Rows:
    if mask is None:
        return Rows(tokens.flatten(0, 1), samples.repeat_interleave(tokens.shape[1]), caution)
    return Rows(tokens[mask], samples[:, None].expand(mask.shape)[mask], caution)


def _mean(tokens: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n d"]:
    if mask is None:
        return _averaged(tokens, [1])
    wide = torch.promote_types(tokens.dtype, torch.float32)
    kept = torch.where(mask[..., None], tokens, 0).to(wide)  # padding may hold anything
    return kept.sum(1) / mask.sum(1, keepdim=True)


def _last(tokens: Float[Tensor, "n p d"], mask: Bool[Tensor, "n p"] | None) -> Float[Tensor, "n d"]:
    if mask is None:
        return tokens[:, -1]
    position = torch.arange(mask.shape[1], device=mask.device)
    at = torch.where(mask, position, 0).amax(1)  # the last one that counts, left or right padded
    return tokens[torch.arange(len(tokens), device=tokens.device), at]
