"""The gradients of single samples with respect to the parameters of one call of a module.

They are kept as what they are made of: inputs of the call and gradients at its outputs. A whole
gradient is made for some rows of the parameter at a time. Where r outputs are gone back from, in
[r, n, t, o] for n samples, t positions and o units, samples and outputs are interleaved after that:
[n, r, ...].
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from ._gradients import rows_of
from ._linear_maps import is_transposed
from ._network import Call
from .errors import ShapeError


class SampleGradients(Protocol):
    """Of one parameter, from one call of its module."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Samples, outputs, and numbers in a row of the parameter."""

    def support(self) -> Int[Tensor, " s"]:
        """Rows of the parameter, along its first axis, in which they are not zero throughout."""

    def rows(self, index: Int[Tensor, " q"]) -> Float[Tensor, "n r p"]:
        """Those rows of them, flat."""


@dataclass(frozen=True)
class Products:
    """Of a matrix: sums over positions of a gradient times an input.

    Attributes:
        x: inputs; patches of a convolution.
        g: gradients at the outputs.
        transposed: whether the parameter is held as [d, o].
        groups: of a convolution: each sees its own part of the inputs.
    """

    x: Float[Tensor, "n t d"]
    g: Float[Tensor, "r n t o"]
    transposed: bool = False
    groups: int = 1

    @property
    def shape(self) -> tuple[int, int, int]:
        r, n, _, o = self.g.shape
        return n, r, o if self.transposed else self.x.shape[-1] // self.groups

    @property
    def dense(self) -> bool:
        """Whether every unit sees every input."""
        return self.groups == 1

    def support(self) -> Int[Tensor, " s"]:
        held = self.x if self.transposed else self.g
        return torch.arange(held.shape[-1], device=held.device)

    def rows(self, index: Int[Tensor, " q"]) -> Float[Tensor, "n r p"]:
        r, n, t, o = self.g.shape
        if self.transposed:
            found = torch.einsum("ntq,rnto->nrqo", self.x[..., index], self.g)
        elif self.dense:
            g = self.g if len(index) == o else self.g[..., index]
            g = g.permute(1, 0, 3, 2).reshape(n, r * len(index), t)
            found = g @ self.x
        else:
            seen = self.x.reshape(*self.x.shape[:2], self.groups, -1)[
                :, :, index * self.groups // o
            ]
            found = torch.einsum("ntqd,rntq->nrqd", seen, self.g[..., index])
        return found.reshape(n, r, -1)


@dataclass(frozen=True)
class Sums:
    """Of a vector that is added or multiplied unit by unit."""

    values: Float[Tensor, "n r p"]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.values.shape[0], self.values.shape[1], 1

    def support(self) -> Int[Tensor, " s"]:
        return torch.arange(self.values.shape[-1], device=self.values.device)

    def rows(self, index: Int[Tensor, " q"]) -> Float[Tensor, "n r p"]:
        return self.values[..., index]


@dataclass(frozen=True)
class Lookups:
    """Of a table of embeddings: gradients at the places where a row was looked up."""

    tokens: Int[Tensor, "n t"]
    g: Float[Tensor, "r n t o"]
    padding: int | None

    @property
    def shape(self) -> tuple[int, int, int]:
        r, n, _, o = self.g.shape
        return n, r, o

    def support(self) -> Int[Tensor, " s"]:
        used = torch.unique(self.tokens)
        counts: Tensor = used if self.padding is None else used[used != self.padding]
        return counts

    def rows(self, index: Int[Tensor, " q"]) -> Float[Tensor, "n r p"]:
        r, n, t, o = self.g.shape
        if not len(index):
            return self.g.new_zeros(n, r, 0)
        order = index.sort()
        place = torch.searchsorted(order.values, self.tokens.contiguous()).clamp(max=len(index) - 1)
        counts = order.values[place] == self.tokens
        if self.padding is not None:
            counts &= self.tokens != self.padding
        place = torch.where(counts, order.indices[place], len(index))
        found: Tensor = self.g.new_zeros(n, r, len(index) + 1, o)  # the last takes the others
        where = place[:, None, :, None].expand(n, r, t, o)
        found.scatter_add_(2, where, self.g.movedim(1, 0))
        return found[:, :, :-1].reshape(n, r, -1)


Made = dict[str, SampleGradients]


def sample_gradients(module: nn.Module, call: Call, g: Tensor, n: int, axis: int) -> Made:
    """Of the parameters of a module that require gradients, by name.

    Args:
        g: gradients of r outputs at what the call put out.
        n: samples.
        axis: of samples, in what goes into the model.

    Raises:
        ShapeError: the samples in the call cannot be told.
    """
    made = _maker(module)(module, call, g, n, axis)
    return {k: v for k, v in made.items() if module._parameters[k].requires_grad}  # type: ignore[union-attr]


def samples_joined(parts: Sequence[SampleGradients]) -> SampleGradients:
    """Of one call that came part by part of the samples, all together."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Sums):
        return Sums(torch.cat([part.values for part in parts]))  # type: ignore[attr-defined]
    held = "x" if isinstance(first, Products) else "tokens"
    change = {
        held: torch.cat([getattr(part, held) for part in parts]),
        "g": torch.cat([part.g for part in parts], 1),  # type: ignore[attr-defined]
    }
    return replace(first, **change)  # type: ignore[type-var]


def covered(module: nn.Module) -> list[str]:
    """The parameters of a module for which there are `sample_gradients`."""
    trained = [k for k, p in module._parameters.items() if p is not None and p.requires_grad]
    return trained if _maker(module) is not _none and set(trained) <= {"weight", "bias"} else []


def _none(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    return {}


def _linear(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    x, g = _rows(call.module, n, axis, call.x), _each(call.module, n, axis, g)
    return _held(module, {"weight": Products(x, g, is_transposed(module)), "bias": _summed(g)})


def _convolution(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    if axis or len(call.x) != n or call.x.ndim != call.z.ndim:
        raise ShapeError(f"layer {call.module!r}: a convolution needs samples first.")
    g = g.flatten(3).transpose(2, 3)
    products = Products(_patches(module, call.x), g, groups=module.groups)
    return _held(module, {"weight": products, "bias": _summed(g)})


def _embedding(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    tokens = _rows(call.module, n, axis, call.x[..., None])[..., 0]
    return {"weight": Lookups(tokens, _each(call.module, n, axis, g), module.padding_idx)}


def _layer_norm(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    shape = tuple(module.normalized_shape)
    if isinstance(module, nn.LayerNorm):
        x = functional.layer_norm(call.x, shape, None, None, module.eps)
    else:
        x = functional.rms_norm(call.x, shape, None, module.eps)
    x, g = x.flatten(-len(shape)), g.flatten(-len(shape))
    x, g = _rows(call.module, n, axis, x), _each(call.module, n, axis, g)
    return _held(module, {"weight": _summed(g * x), "bias": _summed(g)})


def _channel_norm(module: Any, call: Call, g: Tensor, n: int, axis: int) -> Made:
    if axis or len(call.x) != n or call.x.ndim < 2:
        raise ShapeError(f"layer {call.module!r}: a normalization of channels needs samples first.")
    if isinstance(module, nn.GroupNorm):
        x = functional.group_norm(call.x, module.num_groups, None, None, module.eps)
    else:
        statistics = module.running_mean, module.running_var
        batch = statistics[0] is None  # then it couples samples, which the certificate sees
        x = functional.batch_norm(call.x, *statistics, None, None, batch, 0.0, module.eps)
    x, g = (
        x.flatten(2) if x.ndim > 2 else x[..., None],
        g.flatten(3) if g.ndim > 3 else g[..., None],
    )
    g = g.transpose(2, 3)
    return _held(module, {"weight": _summed(g * x.transpose(1, 2)), "bias": _summed(g)})


_MAKERS: Mapping[type[nn.Module], Callable[..., Made]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _layer_norm,
    nn.GroupNorm: _channel_norm,
    nn.modules.batchnorm._BatchNorm: _channel_norm,
}


def _maker(module: nn.Module) -> Callable[..., Made]:
    if is_transposed(module):
        return _linear
    return next((made for kind, made in _MAKERS.items() if isinstance(module, kind)), _none)


def _held(module: nn.Module, made: Made) -> Made:
    """Those that the module has as parameters of its own: not what a parametrization makes."""
    return {k: v for k, v in made.items() if module._parameters.get(k) is not None}


def _rows(name: str, n: int, axis: int, tensor: Tensor) -> Float[Tensor, "n t d"]:
    return rows_of(name, n, axis, False, tensor)


def _each(name: str, n: int, axis: int, g: Tensor) -> Float[Tensor, "r n t o"]:
    if not axis and g.shape[1] == n:
        return g.reshape(*g.shape[:2], -1, g.shape[-1])  # without a copy
    return torch.stack([_rows(name, n, axis, one) for one in g])


def _summed(g: Float[Tensor, "r n t o"]) -> Sums:
    return Sums(g.sum(2).movedim(0, 1))


def _patches(module: Any, x: Tensor) -> Float[Tensor, "n t d"]:
    """What each output place of a convolution sees: channels, then places in its window."""
    pad = module._reversed_padding_repeated_twice  # as torch pads, also where padding is a word
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    x = functional.pad(x, pad, mode=mode) if any(pad) else x
    sizes = zip(module.kernel_size, module.stride, module.dilation, strict=True)
    for place, (size, stride, dilation) in enumerate(sizes):
        x = x.unfold(2 + place, dilation * (size - 1) + 1, stride)[..., ::dilation]
    k = len(module.kernel_size)
    return x.movedim(1, k + 1).flatten(k + 1).flatten(1, k)
