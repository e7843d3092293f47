"""Which of the places that a forward pass went through are to be measured."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from ._reader import INPUT, OUTPUTS, PENULTIMATE, Reader
from .errors import LazyrichError, NotExecuted, ShapeError, UnknownName

SILENT = "never ran in the forward pass; its weights may be used without calling it"


@dataclass(frozen=True, slots=True)
class Selection:
    """Patterns of addresses, and the addresses taken for penultimate features and outputs.

    Attributes:
        modules: those that a forward pass can run, by name.
        leaves: the names of those that hold no others.
        aliases: second names of the same modules, and what they are called here.
    """

    modules: Mapping[str, nn.Module]
    patterns: Sequence[str] | None
    penultimate: str | None
    outputs: str | None
    leaves: Set[str]
    aliases: Mapping[str, str]

    @classmethod
    def of(
        cls,
        model: nn.Module,
        patterns: Sequence[str] | None,
        penultimate: str | None,
        outputs: str | None,
    ) -> "Selection":
        """Out of all modules of a model, each under the first of its names."""
        modules: dict[str, nn.Module] = {}
        aliases: dict[str, str] = {}
        names: dict[nn.Module, str] = {}
        holders: set[str] = set()
        for name, module in _executable(model):
            if names.setdefault(module, name) == name:
                modules[name] = module
            else:
                aliases[name] = names[module]
            holders.update(accumulate(name.split(".")[:-1], "{}.{}".format))
        return cls(modules, patterns, penultimate, outputs, modules.keys() - holders, aliases)

    def matches(self, address: str, module: str) -> bool:
        """Whether an address, or the module whose output it is, was asked for."""
        if self.patterns is None:
            role = address in (PENULTIMATE, OUTPUTS)
            return role or (module in self.leaves and not address.endswith(INPUT))
        return any(fits(pattern, address, module) for pattern in self.patterns)

    def wanted(self, address: str, module: str) -> bool:
        """Whether the first pass must keep what stands at an address."""
        if address in (OUTPUTS, self.penultimate, self.outputs) or self.matches(address, module):
            return True
        return self.penultimate is None and self._linear_input(address, module)

    def inputs(self) -> list[str]:
        """Modules whose input the first pass must watch."""
        return [m for m in self.modules if self.wanted(m + INPUT, m)]

    def choose(self, reader: Reader) -> "Choice":
        """Hold the patterns to what the first pass has shown.

        Raises:
            UnknownName: a pattern that matches nothing.
            NotExecuted: a module asked for by its full name that did not run.
            ShapeError: an activation asked for by its full name that cannot be read.
            LazyrichError: a second name of a module.
        """
        roles = {OUTPUTS: self.outputs or OUTPUTS}
        inputs = [a for a, s in reader.seen.items() if s.rows and self._linear_input(a, s.module)]
        if self.penultimate or inputs:
            roles[PENULTIMATE] = self.penultimate or inputs[-1]
        for role, address in roles.items():
            if address not in reader.seen and address != OUTPUTS:
                self._refuse(f"{role}={address!r}", address, reader)
        modules = {address: seen.module for address, seen in reader.seen.items()}
        choice = Choice(roles[OUTPUTS], modules=modules, calls=Counter(reader.calls))
        for address, seen in reader.seen.items():
            for name in self._names(address, seen.module, roles):
                if seen.problem:
                    choice.problems[name] = seen.problem
                else:
                    choice.layers[name] = address
        silent = [m for m in self.modules if not reader.calls[m] and self.matches(m, m)]
        choice.problems.update(dict.fromkeys(silent, SILENT))
        for pattern in self.patterns or ():
            self._demand(pattern, choice, reader)
        return choice

    def heads(self, choice: "Choice") -> dict[str, Tensor]:
        """By layer the weights that read it, where it is the penultimate one and a Linear does.

        As the forward pass uses them: of a parametrized module what its parametrization makes.
        """
        address = choice.layers.get(PENULTIMATE)
        if address is None or not self._linear_input(address, choice.modules[address]):
            return {}
        weight: Tensor = self.modules[choice.modules[address]].weight  # type: ignore[assignment]
        plain = weight.ndim == 2 and weight.is_floating_point()  # packed ones are no weights yet
        return {PENULTIMATE: weight.detach()} if plain else {}

    def _names(self, address: str, module: str, roles: dict[str, str]) -> list[str]:
        """Under which names an address is to be measured: its roles, and its own."""
        names = [role for role, at in roles.items() if at == address and self.matches(role, "")]
        own = address != OUTPUTS and self.matches(address, module)
        return names + [address] * own

    def _demand(self, pattern: str, choice: "Choice", reader: Reader) -> None:
        def named(name: str) -> bool:
            seen = reader.seen.get(name)
            return fits(pattern, name, seen.module if seen else name)

        if any(map(named, choice.layers)):
            return
        broken = [name for name in choice.problems if named(name)]
        if broken and "*" in pattern:
            return
        if broken and choice.problems[broken[0]] != SILENT:
            raise ShapeError(f"layer {pattern!r} cannot be read: {choice.problems[broken[0]]}.")
        self._refuse(repr(pattern), pattern, reader)

    def _refuse(self, asked: str, address: str, reader: Reader) -> None:
        module = re.split(r"[#:\[]", address)[0]
        if module in self.modules and not reader.calls[module]:
            raise NotExecuted(f"layer {asked} {SILENT}. `lazyrich layers` lists those that run.")
        if address in self.modules:
            raise ShapeError(f"layer {asked} ran, and put out no tensor.")
        if module in self.aliases:
            first = self.aliases[module]
            raise LazyrichError(
                f"layer {asked} is the same module as {first!r}: ask for that one, "
                f"or for '{first}#2' to have its second call."
            )
        if address == PENULTIMATE:
            raise NotExecuted(
                "no Linear layer ran, so that the penultimate features are not known: "
                "name their address with Capture(..., penultimate=...)."
            )
        raise UnknownName("layer", address, [*reader.seen, *self.modules])

    def _linear_input(self, address: str, module: str) -> bool:
        return address.endswith(INPUT) and isinstance(self.modules[module], nn.Linear)


def _executable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that a forward pass can run, under all their names.

    Lists of modules cannot run, and those that make a weight put out no activations. Wrappers for
    compilation are passed over, and are no part of a name.
    """
    everything = list(model.named_modules(remove_duplicate=False))
    weights = {n for n, m in everything if isinstance(m, ParametrizationList)}
    for name, module in everything:
        runs = getattr(type(module), "forward", None) is not nn.Module.forward
        wraps = isinstance(getattr(module, "_orig_mod", None), nn.Module)
        of_weights = not weights.isdisjoint(accumulate(name.split("."), "{}.{}".format))
        if name and (runs or "forward" in vars(module)) and not (wraps or of_weights):
            yield name.replace("._orig_mod", ""), module


@dataclass(slots=True)
class Choice:
    """What to measure, as a first pass has shown it.

    Attributes:
        outputs: address of the model's outputs.
        layers: from name to address, in execution order.
        modules: from address to the name of the module.
        problems: names that cannot be read, with the reason.
        calls: how often each module ran, and how often each `module:input` was seen.
    """

    outputs: str
    layers: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)

    def watched(self, address: str) -> str:
        """Under what the calls at an address are counted."""
        return self.modules[address] + INPUT * address.endswith(INPUT)


def fits(pattern: str, address: str, module: str) -> bool:
    """Whether a pattern names an address, or the module whose outputs it is.

    >>> fits("block.*", "block.fc", "block.fc"), fits("block.*", "block.fc.in", "block.fc.in")
    (True, False)
    >>> fits("block.**", "block.fc.in", "block.fc.in"), fits("rnn", "rnn[0]", "rnn")
    (True, True)
    """
    parts = {"**": ".*", "*": r"[^.]*", "?": "[^.]"}
    expression = "".join(parts.get(p, re.escape(p)) for p in re.split(r"(\*\*|\*|\?)", pattern))
    if address.endswith(INPUT):  # an input is measured only where the pattern says so
        return pattern.endswith(INPUT) and re.fullmatch(expression, address) is not None
    return any(re.fullmatch(expression, name) for name in (address, module))
