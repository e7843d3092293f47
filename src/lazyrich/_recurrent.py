"""Recurrent modules step by step: what fused kernels compute, with each product in sight."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from .errors import LazyrichError

Seen = Callable[[str, Tensor], Tensor]
# what a product with the weights of that name becomes; samples come first in it
State = tuple[Tensor, ...]  # h, and c of an LSTM


_KINDS = (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)


def is_plain(module: nn.Module) -> bool:
    """Whether it computes what torch's own recurrent modules compute, and nothing else."""
    own = any(type(module).forward is kind.forward for kind in _KINDS)
    return own and "forward" not in vars(module)


@contextmanager
def unrolled(name: str, module: nn.Module, seen: Seen) -> Iterator[None]:
    """While this is open the module computes in plain steps, and shows each product.

    Raises:
        LazyrichError: in the forward pass, of a packed sequence.
    """
    run = _sequence if isinstance(module, nn.RNNBase) else _cell

    def forward(input: Any, hx: Any = None) -> Any:  # as torch names them
        if isinstance(input, PackedSequence):
            raise LazyrichError(
                f"layer {name!r} is given a packed sequence, whose steps cannot be read: "
                "give it padded ones, or leave it out of the layers."
            )
        return run(module, input, hx, seen)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


def _sequence(module: Any, x: Tensor, state: Any, seen: Seen) -> tuple[Tensor, Any]:
    is_lstm, directions = isinstance(module, nn.LSTM), 1 + module.bidirectional
    batched = x.dim() == 3
    x = _samples_first(x, module.batch_first) if batched else x[None]
    start = _state(state, is_lstm)
    width = module.proj_size or module.hidden_size
    if not start:
        places = module.num_layers * directions
        start = tuple(x.new_zeros(places, len(x), w) for w in (width, module.hidden_size))
        start = start[: 1 + is_lstm]
    elif not batched:
        start = tuple(s.unsqueeze(1) for s in start)
    ends = []
    for layer in range(module.num_layers):
        passes = []
        for backward in range(directions):
            place = layer * directions + backward
            suffix = f"_l{layer}" + "_reverse" * backward
            first = tuple(s[place] for s in start)
            passed, end = _steps(module, x, first, suffix, bool(backward), seen)
            passes.append(passed)
            ends.append(end)
        x = torch.cat(passes, -1)
    last = [torch.stack(each) for each in zip(*ends, strict=True)]
    if not batched:
        x, last = x[0], [s.squeeze(1) for s in last]
    else:
        x = _samples_first(x, module.batch_first)
    return x, tuple(last) if is_lstm else last[0]


def _samples_first(x: Tensor, already: bool) -> Tensor:
    """From the module's own order of axes and back to it."""
    return x if already else x.transpose(0, 1)


def _steps(
    module: Any, x: Float[Tensor, "n t d"], state: State, suffix: str, backward: bool, seen: Seen
) -> tuple[Float[Tensor, "n t h"], State]:
    inputs = _product(module, "ih", suffix, x, seen)
    made: list[Tensor] = [x] * x.shape[1]
    for t in range(x.shape[1])[:: -1 if backward else 1]:
        state = _step(module, inputs[:, t], state, suffix, seen)
        made[t] = state[0]
    return torch.stack(made, 1), state


def _cell(module: Any, x: Tensor, state: Any, seen: Seen) -> Any:
    is_lstm = isinstance(module, nn.LSTMCell)
    batched = x.dim() == 2
    x = x if batched else x[None]
    start = _state(state, is_lstm)
    if not start:
        start = (x.new_zeros(len(x), module.hidden_size),) * (1 + is_lstm)
    elif not batched:
        start = tuple(s[None] for s in start)
    state = _step(module, _product(module, "ih", "", x, seen), start, "", seen)
    state = state if batched else tuple(s[0] for s in state)
    return state if is_lstm else state[0]


def _state(given: Any, is_lstm: bool) -> State:
    if given is None:
        return ()
    return tuple(given) if is_lstm else (given,)


def _step(module: Any, inputs: Tensor, state: State, suffix: str, seen: Seen) -> State:
    h = state[0]
    before = _product(module, "hh", suffix, h, seen)
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        i, f, g, o = (inputs + before).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        if getattr(module, "proj_size", 0):
            h = _product(module, "hr", suffix, h, seen)
        return h, c
    if isinstance(module, nn.GRU | nn.GRUCell):
        (r, z, new), (r_before, z_before, new_before) = inputs.chunk(3, -1), before.chunk(3, -1)
        z = (z + z_before).sigmoid()
        new = (new + (r + r_before).sigmoid() * new_before).tanh()
        return ((1 - z) * new + z * h,)
    z = inputs + before
    return (z.tanh() if module.nonlinearity == "tanh" else z.relu(),)


def _product(module: Any, kind: str, suffix: str, x: Tensor, seen: Seen) -> Tensor:
    parameter = f"weight_{kind}{suffix}"
    bias = getattr(module, f"bias_{kind}{suffix}", None) if module.bias else None
    return seen(parameter, functional.linear(x, getattr(module, parameter), bias))
