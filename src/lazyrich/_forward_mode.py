"""Derivatives along a direction, in forward mode."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensors = Mapping[str, Tensor]


def pushed(
    function: Callable[[dict[str, Tensor]], Tensor], at: Tensors, direction: Tensors
) -> tuple[Tensor, Tensor]:
    """The value of a function, and its derivative along a direction."""
    with (
        _plain_attention(),
        warnings.catch_warnings(),
    ):  # torch loads rules by a function that it deprecates itself
        warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
        found: tuple[Tensor, ...] = jvp(function, (dict(at),), (dict(direction),))
    return found[0], found[1]


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Attention as it is written: fused kernels have no derivative in forward mode."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
