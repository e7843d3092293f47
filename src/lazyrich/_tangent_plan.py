"""What a tangent kernel will need, as a few samples show, and how to stay within the memory."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import torch

from ._inputs import Inputs
from ._memory import free_memory
from ._network import Call, Network
from ._sample_gradients import Products, covered, sample_gradients
from ._tangent_gram import Pairs
from .errors import MemoryRefused, ShapeError

CERTIFIED = 3  # outputs in the part of a kernel that a certificate is made for, output by output
_FEW = 3  # samples to look at: a single one could not be told from what is the same for all
_GRAPH = 3  # numbers that a pass holds for each number at a watched module
_HINT = (
    "Take fewer samples, or blocks of them with other=...; kind='trace', or 'sum_logits' where "
    "outputs are many; sketch=... probes; or raise memory (GiB)."
)

T = TypeVar("T")


@dataclass(frozen=True)
class Unit:
    """Modules that share parameters with each other and with no other module.

    Attributes:
        parameters: whose gradients the modules show.
        x, z: numbers for a sample that go into the modules, and that they put out.
    """

    modules: frozenset[str]
    parameters: frozenset[str]
    x: float
    z: float


@dataclass(frozen=True)
class Seen:
    """What a pass over a few samples has shown.

    Attributes:
        outputs: of the model for a sample.
        units: parts of the model whose gradients can be read at their modules.
        graph: numbers that a forward pass holds for a sample.
    """

    outputs: int
    units: Sequence[Unit]
    graph: float


def look(network: Network, inputs: Inputs) -> Seen:
    """Pass a few samples through the model."""
    few = min(inputs.samples(network.axis), _FEW)
    watched = {name for name, module in network.modules.items() if covered(module)}
    outputs, calls = network.watched(network.some(inputs, 0, few), watched)
    of_module: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        of_module[call.module].append(call)
    sizes = {name: _numbers(network, made, few) for name, made in of_module.items()}
    shown = {name: size for name, size in sizes.items() if size is not None}
    graph = sum(c.x.numel() + c.z.numel() for c in calls) / few
    return Seen(outputs.shape[1], _units(_holders(network), shown), _GRAPH * graph)


def _numbers(network: Network, calls: Iterable[Call], n: int) -> tuple[float, float] | None:
    """What goes into a module and comes out for a sample; None where samples cannot be told."""
    x = z = 0.0
    for call in calls:
        if all(size % n for size in call.z.shape[: network.axis + 1]):  # a batch of one for all
            return None
        module, seeds = network.modules[call.module], torch.zeros_like(call.z)[None]
        try:
            made = sample_gradients(module, call, seeds, n, network.axis)
        except ShapeError:
            return None
        x += sum(one.x.numel() for one in made.values() if isinstance(one, Products)) / n
        z += call.z.numel() / n
    return x, z


def _holders(network: Network) -> dict[str, set[str]]:
    """By parameter the modules that have it."""
    names = {id(p): name for name, p in network.parameters.items()}
    holders: dict[str, set[str]] = defaultdict(set)
    for module, held in network.modules.items():
        for parameter in held._parameters.values():
            if id(parameter) in names:
                holders[names[id(parameter)]].add(module)
    return holders


def _units(holders: Mapping[str, set[str]], shown: Mapping[str, tuple[float, float]]) -> list[Unit]:
    """Modules joined where they share a parameter that all of its holders show."""
    found: list[tuple[set[str], set[str]]] = []
    for parameter, modules in holders.items():
        if not modules <= shown.keys():
            continue
        joined = (set(modules), {parameter})
        for unit in [u for u in found if u[0] & modules]:
            found.remove(unit)
            joined = (joined[0] | unit[0], joined[1] | unit[1])
        found.append(joined)
    order = {name: place for place, name in enumerate(shown)}  # of execution
    found.sort(key=lambda unit: min(order[name] for name in unit[0]))
    return [
        Unit(
            frozenset(modules),
            frozenset(parameters),
            sum(shown[name][0] for name in modules),
            sum(shown[name][1] for name in modules),
        )
        for modules, parameters in found
    ]


@dataclass(frozen=True)
class Task:
    """What is asked for.

    Attributes:
        n, m: samples on either side; m None where they are the same.
        pairs, outputs: which pairs of how many outputs.
        kept: kernels to keep.
        shown, hidden: parameters whose gradients modules show, and the numbers in the others.
        certify: whether the first outputs are done by themselves, to be checked.
    """

    n: int
    m: int | None
    pairs: Pairs
    outputs: int
    kept: int
    shown: frozenset[str]
    hidden: Mapping[str, int]
    certify: bool

    @property
    def entries(self) -> int:
        """Numbers in a kernel."""
        copies = {"all": self.outputs**2, "sum": 1, "each": self.outputs}[self.pairs]
        return self.n * (self.n if self.m is None else self.m) * copies


@dataclass(frozen=True)
class Plan:
    """How much is done at a time.

    Attributes:
        block: samples of each side whose kernel is computed at once.
        samples: in a pass.
        limit: numbers to hold of single samples' gradients, and as many of what they are made of.
        rows: samples on both sides of a block.
    """

    block: int
    samples: int
    limit: int
    rows: int

    @classmethod
    def of(
        cls, seen: Seen, task: Task, memory: float | None, dtype: torch.dtype, at: torch.device
    ) -> "Plan":
        """Divide the memory: a third for passes, gradients, and what they are made of.

        Where that is too little for a layer, blocks of fewer samples are computed one by one, and
        all passes are made again for each.

        Args:
            memory: in GiB; None for half of what is free.

        Raises:
            MemoryRefused: it holds no kernel, no pass of one sample, or no gradient of one.
        """
        item = torch.finfo(dtype).bits // 8
        allowed = memory * 2**30 if memory is not None else _free(at) / 2
        needed = task.entries * (8 * task.kept + 2 * item)
        rest = (allowed - needed) / item / 3
        if rest < seen.graph or rest < 1:
            least = needed + 3 * item * max(seen.graph, 1)
            raise MemoryRefused(
                f"a kernel of {task.entries} entries, {task.kept} of which are kept, needs "
                f"{least / 2**30:.3g} GiB and {allowed / 2**30:.3g} GiB are allowed. {_HINT}"
            )
        block = longest = max(task.n, task.m or 0)
        at_once = max(1, int(rest / max(seen.graph, 1)))
        while True:
            sides = min(task.n, block) + min(task.m or task.n, block)
            rows = task.n if task.m is None and block == longest else sides
            plan = cls(block, min(block, at_once), int(rest), rows)
            try:
                plan._check(seen, task)
            except MemoryRefused:
                if block == 1:
                    raise
                block = (block + 1) // 2
            else:
                return plan

    def _check(self, seen: Seen, task: Task) -> None:
        """Refuse what would be refused later."""
        r = max(stop - start for start, stop in self.seeds(seen, task))
        self.groups(seen, task.shown, r)
        self.shares(task.hidden, r)

    def seeds(self, seen: Seen, task: Task) -> list[tuple[int, int]]:
        """Mixtures of outputs that are done together, as the first and the one after the last."""
        r = task.outputs
        if task.pairs == "all" or r == 1:
            return [(0, r)]
        x, z = sum(u.x for u in seen.units), sum(u.z for u in seen.units)
        largest = max(task.hidden.values(), default=0)
        fits = (self.limit / self.rows - x) / max(z, 1)
        fits = max(1, int(min(fits, self.limit / self.rows / max(largest, 1))))
        first = min(CERTIFIED, fits, r) if task.certify else 0
        bounds = [*([0] if first else []), *range(first, r, fits), r]
        return list(pairwise(bounds))

    def groups(self, seen: Seen, wanted: AbstractSet[str], r: int) -> list[list[Unit]]:
        """Units whose gradients are held together.

        Raises:
            MemoryRefused: one alone is too large.
        """
        units = [u for u in seen.units if u.parameters & wanted]
        return _packed(units, [self.rows * (u.x + r * u.z) for u in units], self.limit, "layer")

    def shares(self, numbers: Mapping[str, int], r: int) -> list[list[str]]:
        """Parameters whose samples' gradients are held whole together.

        Raises:
            MemoryRefused: one alone is too large.
        """
        names = list(numbers)
        sizes = [self.rows * r * numbers[name] for name in names]
        return _packed(names, sizes, self.limit, "parameter")


def _packed(things: list[T], sizes: Sequence[float], limit: float, what: str) -> list[list[T]]:
    """The things in order, in groups that fit."""
    groups: list[list[T]] = []
    room = 0.0
    for thing, size in zip(things, sizes, strict=True):
        if size > limit:
            name = ", ".join(sorted(thing.modules)) if isinstance(thing, Unit) else thing
            raise MemoryRefused(
                f"{what} {name!r}: {size:.3g} numbers for its gradients, where the memory is for "
                f"{limit:.3g}. {_HINT}"
            )
        if size > room:
            groups.append([])
            room = limit
        groups[-1].append(thing)
        room -= size
    return groups


def _free(device: torch.device) -> float:
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else free_memory()
