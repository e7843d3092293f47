"""Whether a tangent kernel is right: v' K v against one ordinary backward pass.

K = J J', so that v' K v is the squared norm of J'v, the gradient of a weighted sum of outputs. For
a random v a wrong K does not pass, and each parameter is held to that by itself. (Freivalds 1979
checks products of matrices in this way.)
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ._inputs import Inputs
from ._network import Network
from ._tangent_gram import Pairs

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
_NEGLIGIBLE = 1e-4  # of the whole kernel: beneath it, a parameter's share is judged beside this


class Expected(NamedTuple):
    """What u' K v is, by parameter, and the size that an error of it is measured by."""

    value: dict[str, float]
    size: dict[str, float]
    unused: frozenset[str]  # parameters that no output depends on

    def error(self, name: str, found: float) -> float:
        """Relative error of one parameter's part."""
        whole = sum(self.size.values())
        size = self.size[name] + _NEGLIGIBLE * whole
        return abs(found - self.value[name]) / size if size else abs(found)


class Probes(NamedTuple):
    """Random weights of samples and outputs: u and v, the same where the two sets are."""

    left: Tensor
    right: Tensor

    @classmethod
    def of(cls, shapes: tuple[int, int | None], pairs: Pairs, r: int, seed: int) -> "Probes":
        random = torch.Generator().manual_seed(seed)
        made = [
            torch.randn(*((n, r) if pairs == "all" else (n,)), generator=random, dtype=torch.double)
            for n in shapes
            if n is not None
        ]
        return cls(made[0], made[-1])

    def to(self, device: torch.device) -> "Probes":
        return Probes(self.left.to(device), self.right.to(device))

    def form(self, kernel: Tensor) -> float:
        """u' K v; summed over outputs where each has a kernel."""
        whole = kernel.double()
        whole = whole.sum(0) if whole.ndim == 3 else whole
        return float(self.left.flatten() @ whole @ self.right.flatten())


def expected(
    network: Network,
    sides: tuple[Inputs, Inputs | None],
    seeds: Float[Tensor, "r c"],
    probes: Probes,
    at_once: int,
) -> Expected:
    """The same form without the kernel.

    Args:
        seeds: mixtures of outputs that the kernel is of.
        at_once: samples in a forward pass, the same as for the kernel: float32 rounds ReLU's gates
            otherwise in batches of another size.
    """
    left, unused = _weighted(network, sides[0], probes.left, seeds, at_once)
    right, others = left, unused
    if sides[1] is not None:
        right, others = _weighted(network, sides[1], probes.right, seeds, at_once)
    value, size = {}, {}
    for name, a in left.items():
        b = right[name]
        value[name] = float((a * b).sum())
        size[name] = float(a.norm() * b.norm())
    return Expected(value, size, frozenset(unused & others))


def _weighted(
    network: Network, inputs: Inputs, weights: Tensor, seeds: Tensor, at_once: int
) -> tuple[dict[str, Float[Tensor, "k p"]], set[str]]:
    """J'v by parameter, for each output where they are not mixed; and what never had a gradient."""
    names, parameters = zip(*network.parameters.items(), strict=True)
    if weights.ndim == 2:
        directions = (weights.to(seeds) @ seeds)[None]
    else:
        directions = weights.to(seeds)[None, :, None] * seeds[:, None]
    total = {
        k: torch.zeros(len(directions), p.numel(), dtype=torch.double, device=p.device)
        for k, p in network.parameters.items()
    }
    used: set[str] = set()
    n = inputs.samples(network.axis)
    for start in range(0, n, at_once):
        stop = min(start + at_once, n)
        outputs = network(network.some(inputs, start, stop))
        for place, direction in enumerate(directions):
            if not outputs.requires_grad:
                break
            found = torch.autograd.grad(
                outputs, parameters, direction[start:stop], retain_graph=True, allow_unused=True
            )
            for name, gradient in zip(names, found, strict=True):
                if gradient is not None:
                    total[name][place] += gradient.flatten()
                    used.add(name)
    return total, set(names) - used
