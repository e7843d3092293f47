"""Batches through a model, one by one, and what its layers put out."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._inputs import Inputs
from ._reader import INPUT, OUTPUTS, Change, Reader, tensors_in
from ._selection import Choice, Selection
from ._untouched import Draws, untouched
from ._views import Rows
from .errors import NotExecuted, ShapeError
from .statistics import Batch

log = logging.getLogger("lazyrich")
_RANDOM = "two passes over the same samples differ: the model draws in evaluation, as by dropout"


class Session:
    """A model under observation: use as a context, and read batch after batch.

    Attributes:
        problems: layers that cannot be read, with the reason; known after the first batch.
        cautions: layers whose numbers may mislead, with the reason; known then, too.
        heads: by layer the weights of the Linear that reads it, if known; known then, too.
    """

    def __init__(self, model: nn.Module, selection: Selection, reader: Reader, seed: int) -> None:
        self.problems: dict[str, str] = {}
        self.cautions: dict[str, str] = {}
        self.heads: dict[str, Tensor] = {}
        self._model, self._selection, self._reader = model, selection, reader
        tensors = [*model.parameters(), *model.buffers()]
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._seed, self._devices = seed, {t.device for t in tensors}
        self._draws = Draws(seed, self._devices)
        self._choice: Choice | None = None
        self._samples = self._batches = 0
        self._open = ExitStack()

    def __enter__(self) -> "Session":
        for context in (uncompiled, undivided, untouched):  # the first may refuse
            self._open.enter_context(context(self._model))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, inputs: Inputs, changes: Mapping[str, Change] | None = None) -> dict[str, Batch]:
        """Run the model on one batch; its layers by name, in execution order.

        Args:
            changes: what becomes of layers, by name; from the second reading on.

        Raises:
            UnknownName, NotExecuted, ShapeError: see `Capture.batches`.
        """
        inputs = inputs.of_tensors(lambda tensor: tensor.to(self._device))
        self._reader.changes = self._by_address(changes or {})
        try:
            self._run(inputs, self._draws)
        finally:
            self._reader.changes = {}
        first = self._choice is None
        choice = self._choice or self._selection.choose(self._reader)
        self._choice, self.problems = choice, choice.problems
        layers = dict(self._layers(inputs, choice))
        if first:  # after a forward pass, which is when some modules make their weights
            with torch.no_grad():
                self.heads = self._selection.heads(choice)
        self._samples += self._reader.n
        self._batches += 1
        if first and self._draws.used:
            self._probe(inputs, choice)
        return layers

    def _by_address(self, changes: Mapping[str, Change]) -> dict[str, Change]:
        if not changes:
            return {}
        assert self._choice is not None, "a first reading shows which layers there are"
        found = {self._choice.layers[name]: change for name, change in changes.items()}
        if OUTPUTS in found:
            raise ShapeError(
                f"{OUTPUTS!r} are what the model returns, which no module can be given changed: "
                "name the module that puts them out."
            )
        return found

    def _run(self, inputs: Inputs, draws: Draws) -> None:
        self._reader.begin(inputs)
        with self._watching(), draws.active(), torch.no_grad():
            try:
                returned = self._model(*inputs.args, **inputs.kwargs)
            except Exception as error:
                error.add_note(
                    f"raised by the model's forward pass on batch {self._batches} of the data"
                )
                raise
        found = raw_output(returned)
        if found is not None:
            self._reader.note(OUTPUTS, self._model, found)

    def _watching(self) -> AbstractContextManager[None]:
        """Hooks on every module at first, then on those that are measured."""
        if self._choice is None:
            return self._reader.attached(self._selection.modules, self._selection.inputs())
        addresses = {*self._choice.layers.values(), self._choice.outputs} - {OUTPUTS}
        inputs = {a for a in addresses if a.endswith(INPUT)}
        seen = self._choice.modules
        return self._reader.attached(
            {seen[a] for a in addresses - inputs}, {seen[a] for a in inputs}
        )

    def _layers(self, inputs: Inputs, choice: Choice) -> Iterator[tuple[str, Batch]]:
        found = self._reader.seen.get(choice.outputs)
        outputs = None if found is None else found.rows
        for name, address in choice.layers.items():
            key = choice.watched(address)
            now, before = self._reader.calls[key], choice.calls[key]
            if now != before or address not in self._reader.seen:
                raise NotExecuted(
                    f"layer {name!r} ran {now} times for batch {self._batches}, and {before} times "
                    "for the first batch: its calls are not the same layer from batch to batch."
                )
            seen = self._reader.seen[address]
            if seen.rows is None:
                raise ShapeError(f"layer {name!r}, batch {self._batches}: {seen.problem}.")
            if seen.rows.caution:
                self.cautions[name] = seen.rows.caution
            yield name, self._batch(seen.rows, inputs, outputs)

    def _batch(self, rows: Rows, inputs: Inputs, outputs: Rows | None) -> Batch:
        n = self._reader.n
        for what, given in (("labels", inputs.labels), ("ids", inputs.ids)):
            if given is not None and (given.ndim == 0 or len(given) != n):
                count = 1 if given.ndim == 0 else len(given)
                raise ShapeError(f"batch {self._batches}: {n} samples came with {count} {what}.")
        ids = inputs.ids
        if ids is None:
            ids = torch.arange(self._samples, self._samples + n, device=rows.samples.device)
        labels = inputs.labels
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            classes = None  # targets of a regression, not classes
        else:
            classes = labels.long()[rows.samples]
        return Batch(rows.x, classes, _beside(rows, outputs, n), ids.long()[rows.samples])

    def _probe(self, inputs: Inputs, choice: Choice) -> None:
        """Two passes over two samples, each with draws of its own: which layers differ?"""
        n, axis = self._reader.n, self._reader.samples_axis

        def few(tensor: Tensor) -> Tensor:
            whole = tensor.ndim <= axis or tensor.shape[axis] != n
            return tensor if whole else tensor.narrow(axis, 0, min(n, 2))

        passes = []
        for number in (1, 2):
            self._run(inputs.of_tensors(few), Draws(self._seed + number, self._devices))
            passes.append({a: s.rows for a, s in self._reader.seen.items()})
        for name, address in choice.layers.items():
            a, b = (p.get(address) for p in passes)
            if a and b and not torch.allclose(a.x, b.x, rtol=1e-3, equal_nan=True):
                self.cautions[name] = _RANDOM
        if self.cautions:
            log.warning("%s: %s", ", ".join(self.cautions), _RANDOM)


def raw_output(returned: Any) -> Tensor | PackedSequence | None:
    """What the model returns, or the logits in it; None where that is no tensor."""
    found = dict(tensors_in(returned))
    for key in ("", ".logits", ".out"):
        if key in found:
            return found[key]
    return next(iter(found.values()), None)


def _beside(rows: Rows, outputs: Rows | None, n: int) -> Tensor | None:
    """The outputs row by row: as they are, or repeated where each sample has several rows."""
    if outputs is None or torch.equal(outputs.samples, rows.samples):
        return None if outputs is None else outputs.x
    one_each = torch.equal(outputs.samples, torch.arange(n, device=outputs.samples.device))
    return outputs.x[rows.samples] if one_each else None


def uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Compiled parts run as they were written: their hooks do not fire otherwise."""
    if "torch._dynamo" not in sys.modules:  # whatever compiles loads it, functions too
        return nullcontext()
    compiled = any(hasattr(m, "_orig_mod") or m._compiled_call_impl for m in model.modules())
    if compiled:
        log.info("measuring runs the compiled parts of the model uncompiled")
    if hasattr(torch.compiler, "set_stance"):
        eager: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return eager
    if compiled:
        raise NotExecuted(
            "the model has compiled parts, whose hooks do not fire before torch 2.6: "
            "measure the model before compiling it, or update torch."
        )
    return nullcontext()


@contextmanager
def undivided(model: nn.Module) -> Iterator[None]:
    """Parts that divide a batch among devices run it whole, on their first device."""
    divided = [(m, m.device_ids) for m in model.modules() if isinstance(m, nn.DataParallel)]
    try:
        for module, _ in divided:
            module.device_ids = []
        yield
    finally:
        for module, device_ids in divided:
            module.device_ids = device_ids
