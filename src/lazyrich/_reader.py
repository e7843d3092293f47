"""Hooks on modules: what each put out in one forward pass, reduced to rows while it runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ._inputs import Inputs
from ._views import Rows, as_rows, padded, samples_first, units_first
from .errors import ShapeError

Change = Callable[[Tensor, int], Tensor]
"""What becomes of an activation, given the axis of its units."""

INPUT = ":input"
PENULTIMATE, OUTPUTS = "penultimate", "outputs"


class Seen(NamedTuple):
    """One tensor at one address in one forward pass."""

    module: str
    kind: str
    shape: tuple[int, ...]
    rows: Rows | None
    problem: str = ""


class Reader:
    """Hooks that come off by themselves; `seen` holds the last pass by address, as it ran.

    `changes` are made, by address, to what the modules of the next passes put out or take in; they
    need a pass before them, which has shown where units are.

    Args:
        modules: by name.
        view: how activations become rows.
        samples_axis: of what goes into the model; 1 for models that take time first.
        wanted: which (address, module name) to keep rows of; the others are only noted.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        view: str,
        samples_axis: int,
        wanted: Callable[[str, str], bool],
    ) -> None:
        self._modules, self._view, self._wanted = modules, view, wanted
        self.samples_axis = samples_axis
        self.n = 0
        self.seen: dict[str, Seen] = {}
        self.calls: Counter[str] = Counter()
        self.changes: Mapping[str, Change] = {}
        self._units_first: dict[str, bool | None] = {}
        self._latest: tuple[tuple[int, ...], bool | None] = ((), None)
        self._mask: Tensor | None = None

    def begin(self, inputs: Inputs) -> None:
        """Forget the last pass; the next one runs these inputs."""
        self.seen, self.calls = {}, Counter()
        self.n, self._mask = inputs.samples(self.samples_axis), inputs.mask

    @contextmanager
    def attached(self, outputs: Iterable[str], inputs: Iterable[str]) -> Iterator[None]:
        """Watch what the named modules put out and take in, until the context ends."""
        handles = []
        try:
            for name in inputs:
                hook = partial(self._before, name)
                module = self._modules[name]
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            for name in outputs:
                hook = partial(self._after, name)
                handles.append(self._modules[name].register_forward_hook(hook))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(
        self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        taken = next(
            (v for v in (*args, *kwargs.values()) if isinstance(v, (Tensor, PackedSequence))), None
        )
        if taken is None:
            return None
        address = self._address(name, INPUT)
        self._keep(address, name, module, taken, None)
        if address not in self.changes:
            return None
        changed = self._changed(address, name, module, taken)
        return (
            tuple(changed if v is taken else v for v in args),
            {k: changed if v is taken else v for k, v in kwargs.items()},
        )

    def _after(self, name: str, module: nn.Module, _: Any, output: Any) -> Any:
        address = self._address(name)
        for part, tensor in list(tensors_in(output)):
            self._keep(address + part, name, module, tensor, units_first(module), part)
            if address + part in self.changes:
                changed = self._changed(address + part, name, module, tensor, part)
                output = with_part(output, part, changed)
        return output

    def _changed(
        self,
        address: str,
        name: str,
        module: nn.Module,
        found: Tensor | PackedSequence,
        part: str = "",
    ) -> Tensor:
        """What is there, changed, and kept as it is now."""
        if isinstance(found, PackedSequence) or found.is_nested:
            raise ShapeError(f"layer {address!r}: sequences of several lengths cannot be changed.")
        first = self._units_first[address]
        maps = found.ndim > 3 if first is None else first
        changed = self.changes[address](found, 1 if maps else found.ndim - 1)
        self._keep(address, name, module, changed, first, part)
        return changed

    def _address(self, name: str, end: str = "") -> str:
        self.calls[name + end] += 1
        count = self.calls[name + end]
        taken = name in (PENULTIMATE, OUTPUTS)  # these stand for parts of any model
        return f"{name}#{count}{end}" if count > 1 or taken else name + end

    def _keep(
        self,
        address: str,
        name: str,
        module: nn.Module,
        found: Tensor | PackedSequence,
        first: bool | None,
        part: str = "",
    ) -> None:
        try:
            tensor, present = padded(found)
        except ShapeError as error:
            self.seen[address] = Seen(name, type(module).__name__, (), None, str(error))
            return
        if present is None:
            tensor = samples_first(tensor, module, part, self.samples_axis, self.n)
        shape = tuple(tensor.shape)
        if first is None and shape == self._latest[0]:
            first = self._latest[1]  # an activation keeps the layout of what it was given
        # later passes watch fewer modules, and must read each as the first pass did
        first = self._units_first.setdefault(address, first)
        self._latest = (shape, first)
        rows, problem = None, ""
        if self._wanted(address, name):
            try:
                rows = self._rows(tensor, first, present)
            except ShapeError as error:
                problem = str(error)
        self.seen[address] = Seen(name, type(module).__name__, shape, rows, problem)

    def note(self, address: str, module: nn.Module, found: Tensor | PackedSequence) -> None:
        """What the model returned, under an address of its own."""
        self._keep(address, "", module, found, None)

    def _rows(self, tensor: Tensor, first: bool | None, present: Tensor | None) -> Rows:
        """Rows that share no memory with the activation, which may yet change in place."""
        tensor = tensor.detach()
        mask = self._counting(present)
        rows = as_rows(tensor, self._view, self.n, channels=first, mask=mask)
        shared = rows.x.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        return rows._replace(x=rows.x.clone()) if shared else rows

    def _counting(self, present: Tensor | None) -> Tensor | None:
        """Which tokens count: of those that are there, those that the mask leaves in."""
        if present is None or self._mask is None:
            return self._mask if present is None else present
        mask = self._mask[:, : present.shape[1]]
        return present & mask if mask.shape == present.shape else present


def tensors_in(output: Any, part: str = "") -> Iterator[tuple[str, Tensor | PackedSequence]]:
    """Every tensor in what a module returns, with its address: `[0]`, `.key`, `[1][0]`."""
    if isinstance(output, (Tensor, PackedSequence)):
        yield part, output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            yield from tensors_in(value, f"{part}.{key}")
    elif isinstance(output, (tuple, list)):
        for index, value in enumerate(output):
            yield from tensors_in(value, f"{part}[{index}]")
    elif is_dataclass(output) and not isinstance(output, type):
        for field in fields(output):
            yield from tensors_in(getattr(output, field.name), f"{part}.{field.name}")


def with_part(output: Any, part: str, tensor: Tensor) -> Any:
    """What a module returns with another tensor at an address such as `[0]`.

    Raises:
        ShapeError: the address leads through more than tuples and lists.
    """
    if not part:
        return tensor
    if type(output) not in (tuple, list):
        raise ShapeError(
            f"{part} of a {type(output).__name__} cannot be changed: only tensors, and those in "
            "tuples and lists. Name a module inside that puts out a tensor."
        )
    place, _, rest = part[1:].partition("]")
    values = list(output)
    values[int(place)] = with_part(values[int(place)], rest, tensor)
    return type(output)(values)
