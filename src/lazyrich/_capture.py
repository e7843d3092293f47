"""A model and how to read it."""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from ._inputs import Inputs, Unpack, as_inputs
from ._reader import INPUT, Reader
from ._selection import SILENT, Selection, fits
from ._session import Session
from ._source import Source
from ._views import View, checked_view
from .errors import LazyrichError, UnknownName
from .statistics import Batch, Weights

Start = nn.Module | Mapping[str, Tensor]
"""A model at the start of training, or its state dict."""


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
        units: of the matrix of rows that the view makes of it; None where it cannot be read.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    calls: int
    note: str = ""
    units: int | None = None


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
        unpack: how an item of the loader becomes (inputs, labels), (inputs, labels, ids) or
            `Inputs`, where it is not inputs, (inputs, labels) or a mapping.
        samples_axis: of the inputs; 1 for models that take sequences with time first.
        skip_tokens: ids of tokens that do not count, such as [CLS] and [SEP], beside those that
            an attention mask leaves out.
        cache: a folder to keep activations in, and to find them again if model, data, seed and view
            are the same; none are kept unless it is given. Whole layers are held in memory.

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
        skip_tokens: Collection[int] = (),
        cache: str | Path | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise LazyrichError(
                f"needs a torch.nn.Module, got {type(model).__name__}. "
                "Activations that are arrays already go to measure_arrays()."
            )
        checked_view(view)
        if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
            raise LazyrichError("the model has lazy modules without weights: run one batch first.")
        if any(p.is_meta for p in model.parameters()):
            raise LazyrichError("the model is on the meta device, without weights: load it first.")
        patterns = [layers] if isinstance(layers, str) else layers
        if patterns is not None and not (patterns and all(patterns)):
            raise LazyrichError(f"layers={layers!r} names no layer; leave it out for all.")
        self.model = unwrapped(model)
        self.view = view
        self._selection = Selection.of(self.model, patterns, penultimate, outputs)
        self.samples_axis: int = samples_axis
        self._unpack, self._skip_tokens = unpack, skip_tokens
        self.cache = cache

    def only(self, names: Sequence[str]) -> "Capture":
        """The same for some of the names that a first pass has shown."""
        fewer = copy(self)
        fewer._selection = replace(self._selection, patterns=list(names))
        return fewer

    def conventions(self) -> list[Any]:
        """All that decides what the activations of a layer are, beside model, data and seed."""
        chosen = self._selection
        roles = [chosen.penultimate, chosen.outputs]
        return [self.view, self.samples_axis, sorted(self._skip_tokens), *roles]

    def inputs(self, item: Any) -> Inputs:
        """What an item of the loader says to the model."""
        return as_inputs(item, self._unpack, self._skip_tokens)

    def session(self, seed: int = 0) -> Session:
        """The model under observation, to be read batch by batch."""
        return Session(self.model, self._selection, self._reader(), seed)

    def batches(
        self, data: Iterable[Any], *, seed: int = 0
    ) -> Generator[dict[str, Batch], None, None]:
        """The layers of the model, in execution order, for each item of the data.

        Between two of them the model is as it was, so that others may use it meanwhile.

        Raises:
            EmptyData: the data yields nothing.
            UnknownName: a pattern that matches nothing.
            NotExecuted: a layer asked for by its full name that did not run.
            ShapeError: a batch or an activation whose samples cannot be told.
        """
        session = self.session(seed)
        for item in Source(data, seed).items():
            with session:
                layers = session.read(self.inputs(item))
            yield layers

    def layers(self, data: Iterable[Any], *, seed: int = 0) -> list[Layer]:
        """What can be read, in execution order, from one pass over the first batch.

        Raises:
            As `batches`.
        """
        reader = self._reader()
        with (
            Session(self.model, self._selection, reader, seed) as session,
            closing(Source(data, seed).items()) as items,
        ):
            session.read(self.inputs(next(items)))
            return list(self._listing(reader))

    def chosen(self) -> Iterator[tuple[str, nn.Module, nn.Module]]:
        """Modules by name that the patterns ask for, or all, and the one that holds each.

        Raises:
            UnknownName: a pattern that matches none.
        """
        modules, patterns = self._selection.modules, self._selection.patterns
        for pattern in patterns or ():
            if not any(fits(pattern, name, name) for name in modules):
                raise UnknownName("layer", pattern, modules)
        for name, module in modules.items():
            if patterns is None or self._selection.matches(name, name):
                yield name, module, self.model.get_submodule(name.rpartition(".")[0])

    def weights(self) -> Weights:
        """The parameters of the model, as they are now."""
        return Weights.of(self.model)

    def _reader(self) -> Reader:
        selection = self._selection
        return Reader(selection.modules, self.view, self.samples_axis, selection.wanted)

    def _listing(self, reader: Reader) -> Iterator[Layer]:
        choice = self._selection.choose(reader)
        alias = {address: name for name, address in choice.layers.items() if name != address}
        for address, seen in reader.seen.items():
            if address.endswith(INPUT) and address not in choice.layers.values():
                continue
            note = f"= {alias[address]}" if address in alias else seen.problem
            calls = reader.calls[seen.module + INPUT * address.endswith(INPUT)] or 1
            units = None if seen.rows is None else seen.rows.x.shape[1]
            yield Layer(address, seen.kind, seen.shape, calls, note, units)
        for name, module in self._selection.modules.items():
            if not reader.calls[name]:
                yield Layer(name, type(module).__name__, None, 0, SILENT)


def layers(model: nn.Module | Capture, data: Iterable[Any]) -> list[Layer]:
    """Where activations can be read: a dry run over the first batch of the data.

    Returns:
        Addresses in execution order, then the modules that never ran.

    Raises:
        EmptyData: the data yields nothing.
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


def at_start(model: nn.Module, initial: Start) -> nn.Module:
    """The model at the start of training."""
    if isinstance(initial, nn.Module):
        return unwrapped(initial)
    before = deepcopy(model)
    try:
        before.load_state_dict(initial)
    except (RuntimeError, TypeError, AttributeError) as error:
        told = " ".join(str(error).split())
        raise LazyrichError(f"initial: no state dict of this model ({told}).") from error
    return before
