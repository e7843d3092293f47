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
from torch.utils._python_dispatch import TorchDispatchMode

from ._gradients import flat_outputs
from ._inputs import Inputs
from ._session import raw_output, uncompiled, undivided
from ._untouched import Draws, untouched
from .errors import LazyrichError, NonFinite, ShapeError

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

    Raises:
        LazyrichError: no parameter requires gradients, or a module changes its own as it runs; or
            another precision to compute in.
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
        settled(model)
        if dtype not in (None, torch.float32, torch.float64):
            raise LazyrichError(f"dtype={dtype!r}: torch.float32, torch.float64 or None.")
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
            tensor = tensor.clone() if tensor.is_inference() else tensor.detach()
            tensor = tensor.to(self.device)
            return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

        return inputs.of_tensors(place)

    def some(self, inputs: Inputs, start: int, stop: int) -> Inputs:
        """The samples from `start` up to `stop`."""
        n, axis = inputs.samples(self.axis), self.axis

        def cut(tensor: Tensor) -> Tensor:
            whole = tensor.ndim <= axis or tensor.shape[axis] != n
            return tensor if whole else tensor.narrow(axis, start, stop - start)

        return inputs if (start, stop) == (0, n) else inputs.of_tensors(cut)

    def check_cuts(self, inputs: Inputs) -> None:
        """Whether several tensors that are as long as there are samples can all be cut.

        Raises:
            ShapeError: one of them is the same for all samples, or samples depend on each other.
        """
        n = inputs.samples(self.axis)
        long = [t for t in inputs.tensors() if t.ndim > self.axis and t.shape[self.axis] == n]
        if len(long) < 2 or n < 3:
            return
        whole = self(inputs)[:2].detach()
        try:
            alone = self(self.some(inputs, 0, 2)).detach()
            same = torch.allclose(whole, alone, rtol=1e-3, atol=1e-5 * float(whole.abs().max()))
        except RuntimeError:
            same = False
        if not same:
            raise ShapeError(
                f"several inputs are {n} long, and cut to two samples they give other outputs: one "
                "of them is the same for all samples, or samples depend on each other. Take "
                "another number of samples, or let the model hold what is the same for all."
            )

    def __call__(self, inputs: Inputs) -> Float[Tensor, "n c"]:
        """The outputs of the model as it is, with their graph.

        Raises:
            NonFinite: NaN among them.
            LazyrichError: the model does not run in this precision.
        """
        given = inputs.of_tensors(Tensor.clone)  # which the model may change in place
        with torch.enable_grad(), self._draws():
            try:
                returned = self._model(*given.args, **given.kwargs)
            except RuntimeError as error:
                if "dtype" not in str(error) and "scalar type" not in str(error):
                    raise
                raise LazyrichError(
                    f"the model does not run in {self.dtype} ({error}): its forward pass brings in "
                    "another precision. Leave out such casts, or pass the dtype=... they are to."
                ) from error
            outputs = flat_outputs(self._out(returned), inputs.samples(self.axis), self.axis)
        if outputs.isnan().any():
            raise NonFinite(f"the model's outputs hold NaN{self.blame(inputs)}.")
        return outputs

    def at(self, parameters: Mapping[str, Tensor], inputs: Inputs) -> Float[Tensor, "n c"]:
        """The outputs with other values for some parameters, as torch.func differentiates them."""
        values = self._values | dict(parameters)
        given = inputs.of_tensors(Tensor.clone)
        returned = functional_call(self._model, values, given.args, dict(given.kwargs))
        return flat_outputs(self._out(returned), inputs.samples(self.axis), self.axis)

    def watched(self, inputs: Inputs, names: set[str]) -> tuple[Float[Tensor, "n c"], list[Call]]:
        """The outputs, and every call of some modules on the way to them."""
        calls: list[Call] = []
        with self._watching(names, calls):
            return self(inputs), calls

    def blame(self, inputs: Inputs) -> str:
        """What NaN or infinity may have come from, as the end of a sentence."""
        if any(map(_wild, inputs.tensors())):
            return ", and so do its inputs"
        held = (*self._model.named_buffers(), *self._model.named_parameters())
        wild = next((name for name, tensor in held if _wild(tensor)), None)
        return "" if wild is None else f", and so does its {wild!r}"

    def coarser(self, inputs: Inputs) -> torch.dtype | None:
        """A precision below its own that the model computes in on the way, if there is one."""
        with _Precisions() as seen:
            self(inputs)
        bits = torch.finfo(self.dtype).bits
        return next((d for d in seen.found if torch.finfo(d).bits < bits), None)

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


class _Precisions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Which floating point numbers are made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.is_floating_point():
            self.found.add(made.dtype)
        return made


def _wild(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not bool(tensor.isfinite().all())


def settled(model: nn.Module) -> None:
    """Refuse a model whose parameters are others after a forward pass.

    Raises:
        LazyrichError: it has embeddings that are renormalized where they are looked up.
    """
    for name, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.max_norm is not None:
            raise LazyrichError(
                f"layer {name!r}: max_norm changes its weights in the forward pass. Set it to None "
                "once they are what they are to be."
            )


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
    same = same and not any(t.is_inference() for t in (*model.parameters(), *model.buffers()))
    return model if same else deepcopy(model).to(device=device, dtype=dtype)
