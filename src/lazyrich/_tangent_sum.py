"""A tangent kernel, summed over parameters: each part computed, checked and added."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ._certificate import TOLERANCE, Expected, Probes, expected
from ._inputs import Inputs
from ._network import Call, Network
from ._sample_gradients import SampleGradients, Sums, sample_gradients, samples_joined
from ._tangent_gram import Pairs, Term, gram
from ._tangent_jacobian import jacobian
from ._tangent_plan import Plan, Seen, Task, Unit
from .errors import LazyrichError, ShapeError

Sides = tuple[Inputs, Inputs | None]
Gradients = dict[str, list[SampleGradients]]
_SINGLE = 1e-3  # float32 rounds some ReLU's gates otherwise in a batch of another size


class TangentSum:
    """A kernel as it grows.

    Args:
        seeds: the mixtures of outputs that it is of.
        weights: by parameter a factor of its part; parts of weight 0 are left out.
        kept: by parameter the name under which its part is kept, or None.

    Attributes:
        matrix, terms, engines, certificate: as in `Kernel`.
    """

    def __init__(
        self,
        network: Network,
        sides: Sides,
        seeds: Float[Tensor, "r c"],
        pairs: Pairs,
        weights: Mapping[str, float],
        kept: Mapping[str, str | None],
    ) -> None:
        self._network, self._sides, self._seeds, self._pairs = network, sides, seeds, pairs
        self._weights = {name: w for name, w in weights.items() if w}
        self._kept = kept
        self._n = [side.samples(network.axis) for side in sides if side is not None]
        n, m, r = self._n[0], self._n[-1], len(seeds)
        shape = {"all": (n * r, m * r), "sum": (n, m), "each": (r, n, m)}[pairs]
        self.matrix = torch.zeros(shape, dtype=torch.double, device=network.device)
        self.terms: dict[str, Tensor] = {}
        self.engines: dict[str, str] = {}
        self.certificate: float | None = None
        self._failed: set[str] = set()

    def add(self, seen: Seen, task: Task, plan: Plan, seed: int) -> None:
        """Compute the whole.

        Raises:
            MemoryRefused: gradients of one parameter that failed its check do not fit.
            LazyrichError: no way of computing a part gives what a backward pass gives.
        """
        numbers = {k: self._network.parameters[k].numel() for k in self._weights}
        shown = task.shown
        for start, stop in plan.seeds(seen, task):
            check = self._check(start, stop, plan, seed) if task.certify and not start else None
            wanted = set(self._weights) - self._failed - (check.unused if check else set())
            wanted -= {name for name, engine in self.engines.items() if engine == "unused"}
            for group in plan.groups(seen, wanted & shown, stop - start):
                self._add_group(group, wanted, (start, stop), plan, check)
            rest = [name for name in numbers if name in (wanted - shown) | self._failed]
            for names in plan.shares({name: numbers[name] for name in rest}, stop - start):
                self._add_hidden(names, (start, stop), plan, check)

    def _check(self, start: int, stop: int, plan: Plan, seed: int) -> "_Check":
        sizes = self._n[0], self._n[1] if len(self._n) > 1 else None
        probes = Probes.of(sizes, self._pairs, stop - start, seed).to(self._network.device)
        seeds = self._seeds[start:stop]
        wanted = expected(self._network, self._sides, seeds, probes, plan.samples)
        self.engines |= dict.fromkeys(wanted.unused & set(self._weights), "unused")
        self.certificate = 0.0
        return _Check(probes, wanted, TOLERANCE[self._network.dtype])

    def _add_group(
        self,
        group: Sequence[Unit],
        wanted: set[str],
        block: tuple[int, int],
        plan: Plan,
        check: "_Check | None",
    ) -> None:
        """Parameters whose modules show gradients; those that do not are put aside."""
        names = set().union(*(unit.parameters for unit in group)) & wanted
        modules = set().union(*(unit.modules for unit in group))
        seeds = self._seeds[slice(*block)]
        sides = [
            _read(self._network, side, modules, seeds, plan.samples)
            for side in self._sides
            if side is not None
        ]
        for unit in group:
            try:
                made = [side.gradients(unit) for side in sides]
            except ShapeError:
                self._failed |= unit.parameters & names
                continue
            for name in sorted(unit.parameters & names):
                right = made[1][name] if len(made) > 1 else None
                term = gram(made[0][name], right, self._pairs, plan.limit)
                self._add_term(name, term, block, check, 1.0)

    def _add_hidden(
        self, names: Sequence[str], block: tuple[int, int], plan: Plan, check: "_Check | None"
    ) -> None:
        seeds, network = self._seeds[slice(*block)], self._network
        numbers = sum(network.parameters[name].numel() for name in names)
        at_once = max(1, min(plan.samples, plan.limit // max(1, 2 * numbers * len(seeds))))
        made = [
            jacobian(network, names, side, seeds, at_once)
            for side in self._sides
            if side is not None
        ]
        slack = _SINGLE / TOLERANCE[torch.float32] if network.dtype == torch.float32 else 1.0
        for name in names:
            each = [[Sums(rows.pop(name))] for rows, _ in made]
            right = each[1] if len(each) > 1 else None
            term = gram(each[0], right, self._pairs, plan.limit)
            engine = made[-1][1]
            if name in self._failed:
                engine += ", as modules do not show all of its gradients"
            if not self._add_term(name, Term(term.matrix, engine), block, check, slack):
                raise LazyrichError(
                    f"parameter {name!r}: no kernel of single samples gives what a backward pass "
                    "through the batch gives. The outputs of a sample depend on the others, as "
                    "where statistics of the batch are used in evaluation, or are random. "
                    "Mend that; or measure with dtype=torch.float64 if rounding may be the cause; "
                    "or with certify=False if you know better."
                )

    def _add_term(
        self,
        name: str,
        term: Term,
        block: tuple[int, int],
        check: "_Check | None",
        slack: float,
    ) -> bool:
        """Add a part that passes; whether it did."""
        if check is not None:
            error = check.error(name, term.matrix)
            if not error <= check.tolerance * slack:
                self._failed.add(name)
                return False
            self.certificate = max(self.certificate or 0.0, error)
        self.engines[name] = term.engine
        at = slice(*block) if self._pairs == "each" else slice(None)
        weighted = term.matrix if self._weights[name] == 1 else term.matrix * self._weights[name]
        self.matrix[at] += weighted
        kept = self._kept[name]
        if kept is not None:
            if kept not in self.terms:
                self.terms[kept] = torch.zeros_like(self.matrix)
            self.terms[kept][at] += weighted
        return True


class _Check:
    def __init__(self, probes: Probes, wanted: Expected, tolerance: float) -> None:
        self.probes, self.wanted, self.tolerance = probes, wanted, tolerance
        self.unused = wanted.unused

    def error(self, name: str, matrix: Tensor) -> float:
        return self.wanted.error(name, self.probes.form(matrix))


class _Read:
    """What went into modules and the gradients at their outputs, part by part of the samples."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._parts: list[tuple[int, list[Call], list[Tensor]]] = []

    def take(self, inputs: Inputs, modules: set[str], seeds: Float[Tensor, "r c"]) -> None:
        """Pass some samples through the model and back from each mixture of outputs."""
        outputs, calls = self._network.watched(inputs, modules)
        gradients = [_room(call.z, len(seeds)) for call in calls]
        if calls:
            for place, seed in enumerate(seeds):
                found = torch.autograd.grad(
                    outputs,
                    [call.z for call in calls],
                    seed.expand_as(outputs),
                    retain_graph=place + 1 < len(seeds),
                    allow_unused=True,
                )
                for kept, gradient in zip(gradients, found, strict=True):
                    kept[place] = 0 if gradient is None else gradient
        plain = [call._replace(z=call.z.detach()) for call in calls]
        self._parts.append((len(outputs), plain, gradients))

    def gradients(self, unit: Unit) -> Gradients:
        """Those of single samples with respect to the parameters of some modules, by call.

        Raises:
            ShapeError: samples cannot be told, or not all of them make the same calls.
        """
        parts = [self._of_part(unit, *part) for part in self._parts]
        if len({tuple((k, len(v)) for k, v in part.items()) for part in parts}) > 1:
            raise ShapeError("samples differ in how often they call a module.")
        return {
            name: [
                samples_joined([part[name][place] for part in parts]) for place in range(len(made))
            ]
            for name, made in parts[0].items()
        }

    def _of_part(self, unit: Unit, n: int, calls: list[Call], gradients: list[Tensor]) -> Gradients:
        network = self._network
        names = {id(p): name for name, p in network.parameters.items()}
        found: Gradients = {name: [] for name in sorted(unit.parameters)}
        for call, g in zip(calls, gradients, strict=True):
            if call.module in unit.modules:
                module = network.modules[call.module]
                made = sample_gradients(module, call, g, n, network.axis)
                for own, of_call in made.items():
                    found[names[id(module._parameters[own])]].append(of_call)
        return found


def _read(
    network: Network, inputs: Inputs, modules: set[str], seeds: Float[Tensor, "r c"], at_once: int
) -> _Read:
    read, n = _Read(network), inputs.samples(network.axis)
    for start in range(0, n, at_once):
        read.take(network.some(inputs, start, min(start + at_once, n)), modules, seeds)
    return read


def _room(z: Tensor, r: int) -> Tensor:
    """[r, *z] for gradients at z, held sample by sample: products of samples then copy nothing."""
    return z.new_empty(len(z), r, *z.shape[1:]).transpose(0, 1)
