"""A model to first or second order in its parameters, and what that leaves out."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ._capture import Start, at_start
from ._engine import Model, as_capture
from ._forward_mode import pushed
from ._network import Network, Out
from ._session import raw_output
from .errors import LazyrichError, ShapeError

Order = Literal[1, 2]


class Linearized(nn.Module):
    r"""A model to first or second order about its parameters $\theta_0$.

    $f_0 + J_0 \delta$, and $+ \frac12 \delta^\top H_0 \delta$ to second order, with the change
    $\delta = \theta - \theta_0$ as its parameters: zero at first, and trained by any optimizer. In
    forward mode, so that no Jacobian is made.

    Reference: Lee et al. 2019, arXiv:1902.06720; second order as in Bai & Lee 2020,
    arXiv:1910.01619.

    Args:
        model: copied as it is, in evaluation mode.
        order: 1 or 2.
        out: takes the outputs out of what the model returns; None for the logits or first tensor.

    Raises:
        LazyrichError: another order, or no parameter that requires a gradient.
    """

    def __init__(self, model: nn.Module, order: Order = 1, *, out: Out | None = None) -> None:
        super().__init__()
        if order not in (1, 2):
            raise LazyrichError(f"order={order}: a model is taken to order 1 or 2.")
        self.order, self._out = order, out or raw_output
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        if not self.names:
            raise LazyrichError("no parameter of the model requires a gradient: nothing to move.")
        self.origin = deepcopy(model).eval().requires_grad_(False)
        start = dict(self.origin.named_parameters())
        self.change = nn.ParameterList(torch.zeros_like(start[name]) for name in self.names)

    def train(self, mode: bool = True) -> "Linearized":
        """As of any module, but the model inside stays in evaluation mode."""
        super().train(mode)
        self.origin.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The outputs, as those of the model."""
        start = dict(self.origin.named_parameters())
        at = {name: start[name] for name in self.names}
        change = dict(zip(self.names, self.change, strict=True))

        def outputs(parameters: Mapping[str, Tensor]) -> Tensor:
            returned = functional_call(self.origin, start | dict(parameters), args, kwargs)
            return _a_tensor(self._out(returned))

        value, first = pushed(outputs, at, change)
        if self.order == 1:
            return value + first
        second = pushed(lambda p: pushed(outputs, p, change)[1], at, change)[1]
        return value + first + second / 2

    @torch.no_grad()
    def move_to(self, model: nn.Module) -> "Linearized":
        """Let the parameters be those of another model of the same make.

        Raises:
            LazyrichError: it has other parameters.
        """
        start, now = dict(self.origin.named_parameters()), dict(model.named_parameters())
        for name, change in zip(self.names, self.change, strict=True):
            if name not in now or now[name].shape != change.shape:
                raise LazyrichError(f"the other model has no parameter {name!r} of this shape.")
            change.copy_(now[name].to(change) - start[name])
        return self


def remainder(
    model: Model,
    initial: Start,
    x: Any,
    *,
    order: Order = 1,
    by: Literal["layer"] | None = None,
    out: Out | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, float]:
    r"""What a model to first or second order leaves out of the change of its outputs.

    $\lVert f_t - f_0 - J_0 \delta \rVert / \lVert J_0 \delta \rVert$ over all samples and outputs;
    to second order with $\frac12 \delta^\top H_0 \delta$ taken off as well, beside the same. Near
    0 the model is lazy, whatever its width. NaN where the outputs do not change to first order.

    Reference: Chizat, Oyallon & Bach 2019, arXiv:1812.07956.

    Args:
        model: as it is now, or a `Capture`.
        initial: the model at the start of training, or its state dict. Buffers, such as the
            statistics of BatchNorm, are those of the model now, before and after.
        x: one batch, as in `ntk`.
        order: 1 or 2.
        by: `layer` for the change of each layer by itself besides.
        out, dtype: as in `ntk`. Changes under 1e-4 of the outputs need torch.float64.

    Returns:
        By layer, and for the `model`.

    Raises:
        LazyrichError: no state of this model, or another order.
    """
    if order not in (1, 2):
        raise LazyrichError(f"order={order}: a model is taken to order 1 or 2.")
    capture = as_capture(model, None, None)
    network = Network(capture.model, axis=capture.samples_axis, out=out, dtype=dtype)
    before = dict(at_start(capture.model, initial).named_parameters())
    start = {name: before[name].detach().to(p) for name, p in network.parameters.items()}
    change = {name: p.detach() - start[name] for name, p in network.parameters.items()}
    groups: dict[str, set[str]] = {"model": set(change)}
    if by == "layer":
        for name in change:
            groups.setdefault(name.rpartition(".")[0], set()).add(name)
    with network, torch.no_grad():
        inputs = network.placed(capture.inputs(x))

        def outputs(parameters: Mapping[str, Tensor]) -> Tensor:
            with network.same_draws():
                return network.at(parameters, inputs)

        def ratio(names: set[str]) -> float:
            along = {k: d if k in names else torch.zeros_like(d) for k, d in change.items()}
            value, first = pushed(outputs, start, along)
            left = outputs({k: start[k] + d for k, d in along.items()}) - value - first
            if order == 2:
                left = left - pushed(lambda p: pushed(outputs, p, along)[1], start, along)[1] / 2
            return float(left.norm() / first.norm())

        return {group: ratio(names) for group, names in groups.items()}


def _a_tensor(returned: Any) -> Tensor:
    if not isinstance(returned, Tensor):
        raise ShapeError(f"the model returns {type(returned).__name__}: outputs need a tensor.")
    return returned
