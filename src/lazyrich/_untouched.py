"""The promise that a model and all generators of random numbers come back as they were."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import nn

from .errors import LazyrichError


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; modes and buffers as before outside.

    The mode of every module is set and put back by itself: a frozen BatchNorm inside a model in
    training stays frozen, and no module hears of it, of which some change their weights then.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [dict(module._buffers.items()) for module in modules]
    values = [(t, t.detach().clone()) for t in (*model.buffers(), *_renormalized(modules))]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode, held in zip(modules, modes, buffers, strict=True):
            module.training = mode
            _hold(module, held)
        with torch.no_grad():
            for tensor, before in values:
                if not torch.equal(tensor, before):
                    tensor.copy_(before)


def _renormalized(modules: list[nn.Module]) -> list[torch.Tensor]:
    """Weights that a forward pass changes: embeddings with a largest norm."""
    tables = (m for m in modules if isinstance(m, nn.Embedding | nn.EmbeddingBag))
    return [m.weight for m in tables if m.max_norm is not None]


def _hold(module: nn.Module, buffers: dict[str, torch.Tensor | None]) -> None:
    """Give a module the buffers that it had, where its forward pass put others in their place."""
    for name in set(module._buffers.keys()) - buffers.keys():
        del module._buffers[name]
    for name, buffer in buffers.items():
        if name not in module._buffers or module._buffers[name] is not buffer:
            module._buffers[name] = buffer


@contextmanager
def unfused_attention() -> Iterator[None]:
    """nn.MultiheadAttention as it is written: its fast path shows no products and no gradients."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class Draws:
    """A stream of random numbers of its own, for torch, numpy and `random` alike.

    While it is active, whoever draws from the global generators draws from it; before and after,
    they are where their owner left them. The data and each model get a stream each, so that two
    models see the same batches however much they draw themselves.
    """

    def __init__(self, seed: int, devices: Iterable[torch.device] = ()) -> None:
        seed = checked_seed(seed)
        self._devices = [d for d in devices if d.type == "cuda"]
        outside = self._states()
        torch.default_generator.manual_seed(seed)
        for device in self._devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002, what models and data sets draw from
        random.seed(seed)
        self._inside = self._states()
        self._restore(outside)
        self.used = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the global generators be this stream until the context ends."""
        outside = self._states()
        self._restore(self._inside)
        try:
            yield
        finally:
            before, self._inside = self._inside, self._states()
            self._restore(outside)
            self.used = self.used or _differ(before, self._inside)

    def over(self, data: Iterable[Any]) -> Iterator[Any]:
        """The items of the data, which draws from this stream while it makes them."""
        end = object()
        with self.active():
            items = iter(data)
        while True:
            with self.active():
                item = next(items, end)
            if item is end:
                return
            yield item

    def _states(self) -> tuple[Any, ...]:
        on_devices = [torch.cuda.get_rng_state(d) for d in self._devices]
        return torch.get_rng_state(), on_devices, np.random.get_state(), random.getstate()  # noqa: NPY002

    def _restore(self, states: tuple[Any, ...]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1], strict=True):
            torch.cuda.set_rng_state(state, device)
        np.random.set_state(states[2])  # noqa: NPY002
        random.setstate(states[3])


def checked_seed(seed: Any) -> int:
    """The seed.

    Raises:
        LazyrichError: it is none.
    """
    if isinstance(seed, Integral) and seed is not True and 0 <= int(seed) < 2**63:
        return int(seed)
    raise LazyrichError(f"seed={seed!r}: a whole number from 0 to 2**63 - 1 is needed.")


def _differ(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether anybody has drawn between two states."""
    torch_states = zip((a[0], *a[1]), (b[0], *b[1]), strict=True)
    return (
        any(not torch.equal(p, q) for p, q in torch_states)
        or a[3] != b[3]
        or not np.array_equal(a[2][1], b[2][1])
        or a[2][2:] != b[2][2:]
    )
