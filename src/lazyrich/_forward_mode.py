"""Derivatives along a direction, in forward mode."""

import warnings
from collections.abc import Callable, Mapping

from torch import Tensor
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from ._untouched import unfused_attention

Tensors = Mapping[str, Tensor]


def pushed(
    function: Callable[[dict[str, Tensor]], Tensor], at: Tensors, direction: Tensors
) -> tuple[Tensor, Tensor]:
    """The value of a function, and its derivative along a direction."""
    with (
        unfused_attention(),
        sdpa_kernel(SDPBackend.MATH),  # other kernels have no derivative in forward mode
        warnings.catch_warnings(),
    ):  # torch loads rules by a function that it deprecates itself
        warnings.filterwarnings("ignore", ".*torch.jit.script", DeprecationWarning)
        found: tuple[Tensor, ...] = jvp(function, (dict(at),), (dict(direction),))
    return found[0], found[1]
