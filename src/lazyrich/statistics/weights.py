"""The parameters of a module or of a whole model, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters by name. No statistic of data: it is taken once, and nothing is added to it."""

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module) -> "Weights":
        """The parameters as they are; training changes them, so `copy` them to keep them."""
        return cls({name: p.detach() for name, p in model.named_parameters()})

    def copy(self) -> "Weights":
        """The same numbers in memory of their own."""
        return Weights({name: tensor.clone() for name, tensor in self.tensors.items()})

    def by_module(self) -> "dict[str, Weights]":
        """The parameters that each module holds itself, by the module's name."""
        owned: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self.tensors.items():
            module, parameter = _place(name.replace("_orig_mod.", ""))
            owned.setdefault(module or "model", {})[parameter] = tensor
        return {module: Weights(tensors) for module, tensors in owned.items()}

    def squared_norm(self) -> float:
        """Sum of the squares of all numbers, in float64."""
        return sum(float(t.double().square().sum()) for t in self.tensors.values())

    def squared_distance(self, other: "Weights") -> float:
        """Sum of the squares of all differences, in float64."""
        return sum(
            float((t.double() - other.tensors[name].to(t.device).double()).square().sum())
            for name, t in self.tensors.items()
        )


def _place(name: str) -> tuple[str, str]:
    """The module that a parameter belongs to, and its name there.

    What a parametrization makes a weight of belongs to the layer that uses the weight.
    """
    module, parametrized, parameter = f".{name}".partition(".parametrizations.")
    if not parametrized:
        module, _, parameter = f".{name}".rpartition(".")
    return module.removeprefix("."), parameter
