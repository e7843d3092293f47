"""Reading activations out of a model while it runs."""

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ._inputs import Call, Unpack, as_call
from ._reader import INPUT, Reader, tensors_in
from ._untouched import untouched
from ._views import Rows, View, checked_view
from .errors import LazyrichError, NotExecuted, ShapeError, TooFewSamples, UnknownName
from .statistics import Batch

PENULTIMATE, OUTPUTS = "penultimate", "outputs"
_SILENT = "never ran in the forward pass; its weights may be used without calling it"


@dataclass(frozen=True, slots=True)
class Layer:
    """A place where activations can be read, as a dry run found it.

    Attributes:
        name: the address to ask for: `block.fc`, `fc:input`, `lstm[0]`, `decoder.logits`, and
            `relu#2` for the second call of a module in one pass.
        kind: class of the module.
        shape: of the activation in the dry run; None if the module never ran.
        calls: how often the module ran in one pass.
        note: what the address stands for, or why it cannot be read.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    calls: int
    note: str = ""


class Capture:
    """A model and how to read it; goes wherever a model is expected.

    Two addresses stand for parts of any model: `penultimate`, the input of the last Linear that
    runs, and `outputs`, what the model returns.

    Args:
        model: comes back as it was: parameters, buffers, modes, hooks, generators.
        layers: patterns of addresses, `*` for one part of a dotted name and `**` for any number;
            None for every module without children, the penultimate features and the outputs.
        view: how maps and tokens become rows: `mean` over places, `flatten`, `tokens` for each
            place a row of its own, `last` for the last token.
        penultimate, outputs: other addresses to take for these two.
        unpack: how an item of the loader becomes (inputs, labels), where it is not inputs,
            (inputs, labels) or a mapping; inputs may be a tensor, a tuple or a mapping.
        samples_axis: of the inputs; 1 for models that take sequences with time first.

    Raises:
        UnknownName: a view that does not exist.
        LazyrichError: not a torch module.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: str | Sequence[str] | None = None,
        *,
        view: View = "mean",
        penultimate: str | None = None,
        outputs: str | None = None,
        unpack: Unpack | None = None,
        samples_axis: Literal[0, 1] = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise LazyrichError(
                f"needs a torch.nn.Module, got {type(model).__name__}. "
                "Activations that are arrays already go to measure_arrays()."
            )
        checked_view(view)
        self.model = unwrapped(model)
        self.view = view
        self.problems: dict[str, str] = {}
        self._patterns = [layers] if isinstance(layers, str) else layers
        self._roles = {PENULTIMATE: penultimate, OUTPUTS: outputs}
        self._unpack = unpack
        self._samples_axis = samples_axis
        self._modules = {name: m for name, m in self.model.named_modules() if name}

    def batches(
        self, data: Iterable[Any], *, seed: int = 0
    ) -> Generator[dict[str, Batch], None, None]:
        """One dictionary of layers, in execution order, for each item of the data.

        Until the iterator ends or is closed the model is in evaluation mode. Layers that cannot
        be read are in `problems`, with the reason.

        Raises:
            TooFewSamples: the data is empty.
            UnknownName: a pattern that matches nothing.
            NotExecuted: a layer asked for by its full name that did not run.
            ShapeError: a batch or an activation whose samples cannot be told.
        """
        reader = Reader(self._modules, self.view, self._samples_axis, self._wanted)
        offset = 0
        with untouched(self.model, seed):
            items = enumerate(data)
            number, item = next(items, (0, None))
            if item is None:
                raise TooFewSamples("the data yields nothing: the loader is empty or used up.")
            call = self._call(item)
            with reader.attached(self._modules, self._inputs()):
                returned = self._run(reader, call, number)
            chosen = self._choose(reader, returned)
            yield self._batch(reader, call, returned, chosen, offset)
            watched = [reader.seen[address] for address in chosen.values() if address]
            entered = [reader.seen[a].module for a in chosen.values() if a.endswith(INPUT)]
            with reader.attached({w.module for w in watched}, set(entered)):
                for number, item in items:
                    offset += reader.n
                    call = self._call(item)
                    returned = self._run(reader, call, number)
                    yield self._batch(reader, call, returned, chosen, offset)

    def layers(self, data: Iterable[Any], *, seed: int = 0) -> list[Layer]:
        """What can be read, in execution order, from one pass over the first batch.

        Raises:
            As `batches`.
        """
        reader = Reader(self._modules, self.view, self._samples_axis, self._wanted)
        with untouched(self.model, seed):
            for item in data:
                call = self._call(item)
                with reader.attached(self._modules, self._inputs()):
                    returned = self._run(reader, call, 0)
                return list(self._listing(reader, self._choose(reader, returned), returned))
        raise TooFewSamples("the data yields nothing: the loader is empty or used up.")

    def _call(self, item: Any) -> Call:
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        return as_call(item, self._unpack).to(device)

    def _run(self, reader: Reader, call: Call, number: int) -> Rows | None:
        """One forward pass; the rows of what the model returned, if it is a tensor of samples."""
        reader.begin(call)
        try:
            with torch.no_grad():
                returned = self.model(*call.args, **call.kwargs)
        except Exception as error:
            error.add_note(f"raised by the model's forward pass on batch {number} of the data")
            raise
        return _returned_rows(reader, returned)

    def _inputs(self) -> list[str]:
        """Modules whose input may be asked for."""
        return [
            name
            for name, module in self._modules.items()
            if isinstance(module, nn.Linear) or self._matches(name + INPUT, name)
        ]

    def _wanted(self, address: str, module: str) -> bool:
        linear = address.endswith(INPUT) and isinstance(self._modules[module], nn.Linear)
        return linear or address in self._roles.values() or self._matches(address, module)

    def _matches(self, address: str, module: str) -> bool:
        if self._patterns is None:
            leaf = address in (PENULTIMATE, OUTPUTS) or not any(self._modules[module].children())
            return leaf and not address.endswith(INPUT)
        return any(_fits(pattern, address, module) for pattern in self._patterns)

    def _choose(self, reader: Reader, returned: Rows | None) -> dict[str, str]:
        """From the name of each layer to measure to its address, in execution order."""
        penultimate = self._roles[PENULTIMATE] or self._last_linear_input(reader)
        outputs = self._roles[OUTPUTS]
        chosen = {}
        for address, seen in reader.seen.items():
            if address == penultimate and self._matches(PENULTIMATE, ""):
                chosen[PENULTIMATE] = address
            if address == outputs and self._matches(OUTPUTS, ""):
                chosen[OUTPUTS] = address
            if self._matches(address, seen.module):
                chosen[address] = address
        if outputs is None and returned is not None and self._matches(OUTPUTS, ""):
            chosen[OUTPUTS] = ""
        self.problems = {
            name: reader.seen[address].problem
            for name, address in chosen.items()
            if address and reader.seen[address].problem
        }
        self._demand(reader, chosen)
        return {name: at for name, at in chosen.items() if name not in self.problems}

    def _last_linear_input(self, reader: Reader) -> str | None:
        inputs = [a for a, seen in reader.seen.items() if a.endswith(INPUT) and seen.rows]
        return inputs[-1] if inputs else None

    def _demand(self, reader: Reader, chosen: dict[str, str]) -> None:
        """Hold every pattern to what the pass has shown; note modules that stayed silent."""
        for role, address in self._roles.items():
            if address is not None and address not in reader.seen:
                self._refuse(f"{role}={address!r}", address, reader)
        silent = [n for n in self._modules if not reader.calls[n] and self._matches(n, n)]
        self.problems |= dict.fromkeys(silent, _SILENT)
        for pattern in self._patterns or ():
            found = [
                name
                for name, address in chosen.items()
                if _fits(pattern, name, reader.seen[address].module if address else "")
            ]
            if not found and not any(_fits(pattern, n, n) for n in silent if "*" in pattern):
                self._refuse(repr(pattern), pattern, reader)
            if len(found) == 1 and "*" not in pattern and found[0] in self.problems:
                raise ShapeError(f"layer {found[0]!r} cannot be read: {self.problems[found[0]]}.")

    def _refuse(self, asked: str, address: str, reader: Reader) -> None:
        module = re.split(r"[#:\[]", address)[0]
        if module in self._modules and not reader.calls[module]:
            raise NotExecuted(f"layer {asked} {_SILENT}. `lazyrich layers` lists those that run.")
        if address == PENULTIMATE:
            raise UnknownName("Linear layer, and no Capture(..., penultimate=...),", address, [])
        raise UnknownName("layer", address, [*reader.seen, *self._modules])

    def _batch(
        self,
        reader: Reader,
        call: Call,
        returned: Rows | None,
        chosen: dict[str, str],
        offset: int,
    ) -> dict[str, Batch]:
        role = self._roles[OUTPUTS]
        outputs = reader.seen[role].rows if role in reader.seen else returned
        layers = {}
        for name, address in chosen.items():
            rows = returned if not address else None
            if address:
                if address not in reader.seen:
                    raise NotExecuted(f"layer {name!r} ran for the first batch, but not for all.")
                rows = reader.seen[address].rows
            if rows is None:
                raise ShapeError(f"layer {name!r} cannot be read: {reader.seen[address].problem}.")
            layers[name] = _as_batch(rows, call, outputs, reader.n, offset)
        return layers

    def _listing(
        self, reader: Reader, chosen: dict[str, str], returned: Rows | None
    ) -> Iterator[Layer]:
        alias = {address: name for name, address in chosen.items() if name != address}
        for address, seen in reader.seen.items():
            if address.endswith(INPUT) and address not in chosen.values():
                continue
            note = f"= {alias[address]}" if address in alias else seen.problem
            calls = reader.calls[seen.module + INPUT * address.endswith(INPUT)]
            yield Layer(address, seen.kind, seen.shape, calls, note)
        if returned is not None:
            yield Layer(OUTPUTS, type(self.model).__name__, tuple(returned.x.shape), 1)
        for name, module in self._modules.items():
            if not reader.calls[name] and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
                yield Layer(name, type(module).__name__, None, 0, _SILENT)


def layers(model: nn.Module | Capture, data: Iterable[Any]) -> list[Layer]:
    """Where activations can be read: a dry run over the first batch of the data.

    Returns:
        Addresses in execution order, then the modules that never ran.

    Raises:
        TooFewSamples: the data is empty.
    """
    return (model if isinstance(model, Capture) else Capture(model, "**")).layers(data)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers for several devices or for compilation, where hooks do fire."""
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def _fits(pattern: str, address: str, module: str) -> bool:
    """Whether a pattern names an address, or the module whose outputs it is."""
    parts = {"**": ".*", "*": r"[^.]*", "?": "[^.]"}
    expression = "".join(parts.get(p, re.escape(p)) for p in re.split(r"(\*\*|\*|\?)", pattern))
    if re.fullmatch(expression, address):
        return not address.endswith(INPUT) or pattern.endswith(INPUT)
    return not address.endswith(INPUT) and re.fullmatch(expression, module) is not None


def _returned_rows(reader: Reader, returned: Any) -> Rows | None:
    """What the model returns, or the logits in it; None where that is no tensor of samples."""
    found = dict(tensors_in(returned))
    tensor = next((found[k] for k in ("", ".logits", ".out") if k in found), None)
    tensor = next(iter(found.values()), None) if tensor is None else tensor
    try:
        return None if tensor is None else reader.returned(tensor)
    except ShapeError:
        return None


def _as_batch(rows: Rows, call: Call, outputs: Rows | None, n: int, offset: int) -> Batch:
    labels = call.labels
    if labels is not None and len(labels) != n:
        raise ShapeError(f"{n} samples came with {len(labels)} labels.")
    if labels is None or labels.ndim != 1 or labels.is_floating_point():
        classes = None  # targets of a regression, not classes
    else:
        classes = labels.long()[rows.samples]
    return Batch(rows.x, classes, _beside(rows, outputs, n), rows.samples + offset)


def _beside(rows: Rows, outputs: Rows | None, n: int) -> Tensor | None:
    """The outputs row by row: as they are, or repeated where each sample has several rows."""
    if outputs is None or len(outputs.x) == len(rows.x):
        return None if outputs is None else outputs.x
    return outputs.x[rows.samples] if len(outputs.x) == n else None
