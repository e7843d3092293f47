"""Batches through a model and back: what every linear map does to every output."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from ._inputs import Inputs
from ._linear_maps import Part
from ._recurrent import unrolled
from ._session import raw_output, uncompiled, undivided
from ._untouched import Draws, untouched
from .errors import ShapeError
from .statistics import GradientMoments, OutputByOutput

EXACT, PROBES = 100, 16  # outputs that are gone back from one by one; mixtures for more of them


class Call(NamedTuple):
    """What one call of a module has put out, and how to read a tensor like it.

    Attributes:
        z: W h, before anything was done to it.
        rows: makes [n, positions, w] of a tensor like z.
        start: the row of the weights that its first unit comes from.
    """

    z: Tensor
    rows: Callable[[Tensor], Float[Tensor, "n p w"]]
    start: int = 0

    def covers(self, part: Part) -> bool:
        """Whether the part's units are among those that were put out."""
        return part.rows is None or (
            self.start <= part.rows[0] and part.rows[1] <= self.start + self.z.shape[-1]
        )


class Backward:
    """A model whose gradients are read: use as a context, and read batch after batch.

    Outputs are all that the model returns for a sample, raw. No parameter is asked to require
    gradients that did not, and none is given any.

    Args:
        parts: linear maps to read.
        probes: random mixtures that stand for all outputs, an even number; 0 for each output by
            itself, None for whatever their number calls for.
        summed: whether gradients are summed over positions, which then are one input to all.
        blocks: of samples, for an interval.
        seed: of the mixtures, and of all that the model draws.

    Attributes:
        probes: as decided; known after the first batch.
        trivial: parts that put out the model's outputs themselves; known then, too.
        dtype: of the outputs; known then, too.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: Sequence[Part],
        *,
        probes: int | None = None,
        summed: bool = False,
        blocks: int = 1,
        seed: int = 0,
    ) -> None:
        self.probes = probes
        self.trivial: set[str] = set()
        self.dtype = ""
        self._model, self._parts, self._summed, self._blocks = model, parts, summed, blocks
        tensors = [*model.parameters(), *model.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._draws = Draws(seed, {t.device for t in tensors})
        self._random = torch.Generator().manual_seed(seed)
        self._samples = 0
        self._open = ExitStack()

    def __enter__(self) -> "Backward":
        for context in (uncompiled, undivided, untouched):  # the first may refuse
            self._open.enter_context(context(self._model))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, inputs: Inputs, axis: int) -> dict[str, list[GradientMoments]]:
        """The moments of one batch at each part that ran, block by block of samples.

        Args:
            axis: of samples, in what goes into the model.

        Raises:
            ShapeError: outputs or activations whose samples cannot be told.
        """
        inputs = inputs.of_tensors(lambda tensor: tensor.to(self._device))
        n = inputs.samples(axis)
        block = (torch.arange(n, device=self._device) + self._samples) % self._blocks
        self._samples += n
        calls: dict[str, list[Call]] = defaultdict(list)
        with torch.enable_grad(), self._draws.active(), self._watching(calls, n, axis):
            returned = raw_output(self._model(*inputs.args, **inputs.kwargs))
            outputs = flat_outputs(returned, n, axis)
            self.dtype = str(outputs.dtype).removeprefix("torch.")
            return self._back(outputs, calls, block)

    def _back(
        self, outputs: Float[Tensor, "n c"], calls: dict[str, list[Call]], block: Int[Tensor, " n"]
    ) -> dict[str, list[GradientMoments]]:
        tensors = [call.z for made in calls.values() for call in made]
        ran = {place: order for order, place in enumerate(calls)}
        here = [p for p in self._parts if any(c.covers(p) for c in calls.get(p.place, ()))]
        here.sort(key=lambda part: ran[part.place])
        weights = {p.name: p.weight(self._model).to(outputs.dtype) for p in here}
        running: dict[str, list[OutputByOutput]] = {}
        for seeds in self._seeds(outputs):
            gradients = dict(
                zip(map(id, tensors), _gradients(outputs, tensors, seeds), strict=True)
            )
            for part in here:
                made = [c for c in calls[part.place] if c.covers(part)]
                pieces = [_of(part, c, gradients[id(c.z)]) for c in made]
                rows = pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)
                if rows.shape[1:] == (1, seeds.shape[1]) and torch.equal(rows[:, 0], seeds):
                    self.trivial.add(part.name)
                w, d = weights[part.name].shape
                rows = rows @ weights[part.name] if w > d else rows
                rows = rows.sum(1, keepdim=True) if self._summed else rows
                if part.name not in running:
                    fresh = [OutputByOutput(bool(self.probes)) for _ in range(self._blocks)]
                    running[part.name] = fresh
                for b, each in enumerate(running[part.name]):
                    each.add(rows if self._blocks == 1 else rows[block == b])
        return {name: [each.moments() for each in blocks] for name, blocks in running.items()}

    def _seeds(self, outputs: Float[Tensor, "n c"]) -> Iterator[Float[Tensor, "n c"]]:
        """What to go back from: one output after the other, or random signs of all."""
        n, c = outputs.shape
        if self.probes is None:
            self.probes = PROBES if c > EXACT else 0
        for place in range(self.probes or c):
            if self.probes:
                signs = torch.randint(0, 2, (n, c), generator=self._random)
                yield (2 * signs - 1).to(outputs)
            else:
                seeds = torch.zeros_like(outputs)
                seeds[:, place] = 1
                yield seeds

    @contextmanager
    def _watching(self, calls: dict[str, list[Call]], n: int, axis: int) -> Iterator[None]:
        """Hooks on modules; attention read by its weights, recurrent modules in steps."""
        inside: dict[int, Part] = {}
        by_place = {part.place: part for part in self._parts}

        def keep(part: Part, z: Tensor, start: int = 0, axis: int = axis) -> Tensor:
            if not z.requires_grad:
                z = z.detach().requires_grad_()
            rows = partial(rows_of, part.name, n, axis, part.channels)
            calls[part.place].append(Call(z, rows, start))
            return z.clone()  # what follows may change it in place

        def step(module: str, parameter: str, z: Tensor) -> Tensor:
            part = by_place.get(f"{module}.{parameter}")
            return z if part is None else keep(part, z, axis=0)

        with ExitStack() as watching:
            recurrent = {}
            for part in by_place.values():
                module = self._model.get_submodule(part.module)
                if isinstance(module, nn.MultiheadAttention):
                    inside[_storage(part.held(self._model))] = part
                elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
                    recurrent[part.module] = module
                else:
                    hook = partial(_after, partial(keep, part))
                    watching.callback(module.register_forward_hook(hook).remove)
            for name, module in recurrent.items():
                watching.enter_context(unrolled(name, module, partial(step, name)))
            watching.enter_context(_projections_watched(inside, keep))
            yield


def _after(keep: Callable[[Tensor], Tensor], module: nn.Module, _: Any, output: Any) -> Any:
    return keep(output) if isinstance(output, Tensor) else None


@contextmanager
def _projections_watched(
    inside: dict[int, Part], keep: Callable[[Part, Tensor, int, int], Tensor]
) -> Iterator[None]:
    """nn.MultiheadAttention calls no modules for its projections, but one function for each."""
    linear = functional.linear

    def watched(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        z = linear(x, weight, bias)
        part = inside.get(_storage(weight))
        if part is None:
            return z
        return keep(part, z, weight.storage_offset() // weight.shape[1], 1)

    if not inside:
        yield
        return
    functional.linear = watched  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.linear = linear


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _gradients(outputs: Tensor, tensors: list[Tensor], seeds: Tensor) -> list[Tensor]:
    """Of the seeded outputs with respect to each tensor; zeros where none depends on it."""
    if not outputs.requires_grad:
        return [torch.zeros_like(t) for t in tensors]
    found = torch.autograd.grad(outputs, tensors, seeds, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, tensors, strict=True)]


def _of(part: Part, call: Call, gradient: Tensor) -> Float[Tensor, "n p w"]:
    rows = call.rows(gradient)
    if part.rows is None:
        return rows
    return rows[..., part.rows[0] - call.start : part.rows[1] - call.start]


def rows_of(name: str, n: int, axis: int, channels: bool, tensor: Tensor) -> Float[Tensor, "n p w"]:
    """Samples first, then positions, then units.

    Raises:
        ShapeError: a tensor whose samples cannot be told.
    """
    if channels:
        tensor = tensor.movedim(1, -1)
    elif axis == 1 and tensor.ndim > 2 and tensor.shape[1] == n:
        tensor = tensor.movedim(1, 0)
    elif axis == 1 and tensor.ndim == 2 and tensor.shape[0] != n:
        tensor = tensor.reshape(-1, n, tensor.shape[-1]).movedim(1, 0)
    if tensor.numel() % (n * tensor.shape[-1]):
        shape = tuple(tensor.shape)
        raise ShapeError(f"layer {name!r}: outputs of shape {shape} are not those of {n} samples.")
    return tensor.reshape(n, -1, tensor.shape[-1])


def flat_outputs(outputs: Any, n: int, axis: int) -> Float[Tensor, "n c"]:
    """All outputs of a sample in one row.

    Raises:
        ShapeError: the model returns no tensor, or one whose samples cannot be told.
    """
    if not isinstance(outputs, Tensor) or not outputs.is_floating_point():
        raise ShapeError(
            "the model returns no floating point tensor, so that there is nothing to go back from."
        )
    if axis == 1 and outputs.ndim > 1 and outputs.shape[0] != n:
        outputs = outputs.movedim(1, 0)
    if outputs.ndim == 0 or len(outputs) != n:
        raise ShapeError(
            f"the model returns {tuple(outputs.shape)} for {n} samples: outputs need one row each."
        )
    rows: Tensor = outputs.reshape(n, -1)
    return rows
