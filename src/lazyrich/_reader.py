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
    ) -> None:
        taken = next(
            (v for v in (*args, *kwargs.values()) if isinstance(v, (Tensor, PackedSequence))), None
        )
        if taken is not None:
            self._keep(self._address(name, INPUT), name, module, taken, None)

    def _after(self, name: str, module: nn.Module, _: Any, output: Any) -> None:
        address = self._address(name)
        for part, tensor in tensors_in(output):
            self._keep(address + part, name, module, tensor, units_first(module), part)

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
