"""A model as a function of samples and parameters, whose derivatives are taken."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from ._gradients import flat_outputs
from ._inputs import Inputs
from ._session import raw_output, uncompiled, undivided
from ._untouched import Draws, untouched
from .errors import LazyrichError

Out = Callable[[Any], Tensor]
"""From what a model returns to the outputs that are meant, one row a sample."""


class Call(NamedTuple):
    """One call of a module: its first input, and what it put out before anybody changed it."""

    module: str
    x: Tensor
    z: Tensor


class Network:
    """A model in evaluation mode whose parameters are differentiated: use as a context.

    Args:
        axis: of samples, in what goes into the model.
        out: takes the outputs out of what the model returns; None for the logits or the first
            tensor.
        dtype: to compute in, on a copy of the model; None for the model's own, and float32 where
            that is shorter.
        device: to compute on, on a copy of the model; None for where it is.
        seed: of all that the model draws; each pass draws the same.

    Attributes:
        parameters: those that require gradients by name, each once.
        modules: by name, each once.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        axis: int = 0,
        out: Out | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
    ) -> None:
        self._model = model = _computing(model, dtype, device)
        self.axis, self._out, self._seed = axis, out or raw_output, seed
        self.parameters = {k: p for k, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise LazyrichError("no parameter of the model requires a gradient: nothing to do.")
        self._values = {k: p.detach() for k, p in model.named_parameters()}
        self.modules = dict(model.named_modules())
        first = next(iter(self.parameters.values()))
        self.device, self.dtype = first.device, first.dtype
        self._devices = {t.device for t in (*model.parameters(), *model.buffers())}
        self._open = ExitStack()

    def __enter__(self) -> "Network":
        for context in (uncompiled, undivided, untouched):  # the first may refuse
            self._open.enter_context(context(self._model))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def placed(self, inputs: Inputs) -> Inputs:
        """The same inputs where the model is, in its precision."""

        def place(tensor: Tensor) -> Tensor:
            tensor = tensor.detach().to(self.device)
            return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

        return inputs.of_tensors(place)

    def some(self, inputs: Inputs, start: int, stop: int) -> Inputs:
        """The samples from `start` up to `stop`."""
        n, axis = inputs.samples(self.axis), self.axis

        def cut(tensor: Tensor) -> Tensor:
            whole = tensor.ndim <= axis or tensor.shape[axis] != n
            return tensor if whole else tensor.narrow(axis, start, stop - start)

        return inputs if (start, stop) == (0, n) else inputs.of_tensors(cut)

    def __call__(self, inputs: Inputs) -> Float[Tensor, "n c"]:
        """The outputs of the model as it is, with their graph."""
        with torch.enable_grad(), self._draws():
            returned = self._model(*inputs.args, **inputs.kwargs)
        return flat_outputs(self._out(returned), inputs.samples(self.axis), self.axis)

    def at(self, parameters: Mapping[str, Tensor], inputs: Inputs) -> Float[Tensor, "n c"]:
        """The outputs with other values for some parameters, as torch.func differentiates them."""
        values = self._values | dict(parameters)
        returned = functional_call(self._model, values, inputs.args, dict(inputs.kwargs))
        return flat_outputs(self._out(returned), inputs.samples(self.axis), self.axis)

    def watched(self, inputs: Inputs, names: set[str]) -> tuple[Float[Tensor, "n c"], list[Call]]:
        """The outputs, and every call of some modules on the way to them."""
        calls: list[Call] = []
        with self._watching(names, calls):
            return self(inputs), calls

    @contextmanager
    def same_draws(self) -> Iterator[None]:
        """Let whatever the model draws be what it draws in every other pass."""
        with self._draws():
            yield

    def _draws(self) -> Any:
        return Draws(self._seed, self._devices).active()

    @contextmanager
    def _watching(self, names: set[str], calls: list[Call]) -> Iterator[None]:
        handles = [
            self.modules[name].register_forward_hook(partial(_keep, name, calls), with_kwargs=True)
            for name in names
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _keep(
    name: str, calls: list[Call], _: nn.Module, args: Any, kwargs: Mapping[str, Any], z: Any
) -> Tensor | None:
    given = [*args, *kwargs.values()]
    if not isinstance(z, Tensor) or not z.requires_grad:
        return None
    if not given or not isinstance(given[0], Tensor):
        return None
    calls.append(Call(name, given[0].detach(), z))
    return z.clone()  # what follows may change it in place


def _computing(
    model: nn.Module, dtype: torch.dtype | None, device: torch.device | str | None
) -> nn.Module:
    """The model itself where it is as it should be, or else a copy that is."""
    floating = [p for p in model.parameters() if p.is_floating_point()]
    half = any(p.dtype in (torch.float16, torch.bfloat16) for p in floating)
    dtype = torch.float32 if dtype is None and half else dtype
    device = None if device is None else torch.device(device)
    same = all(dtype in (None, p.dtype) and device in (None, p.device) for p in floating)
    return model if same else deepcopy(model).to(device=device, dtype=dtype)
