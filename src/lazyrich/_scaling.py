"""What each tensor is to have in a parametrization: variance, multiplier and learning rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite, sqrt
from typing import Literal, get_args

from torch import nn

from ._tensor_roles import Base, Role, Tensor, checked_patterns, layers_of, tensors_with_roles
from .errors import LazyrichError, UnknownName

Kind = Literal["standard", "ntk", "mean-field", "mup"]
Optimizer = Literal["sgd", "adam"]
Gain = float | Mapping[str, float]


@dataclass(frozen=True)
class _Law:
    """Powers of the growth of a layer's inputs and outputs beside the base.

    Attributes:
        start: of the inputs, in the standard deviation, which is gain / sqrt(fan-in) without.
        multiplier: of the inputs; None for no multiplier.
        sgd, adam: of inputs and outputs, in the learning rate.
    """

    start: float = 0.0
    multiplier: float | None = None
    sgd: tuple[float, float] = (0.0, 0.0)
    adam: tuple[float, float] = (0.0, 0.0)


_MATRIX_NTK = _Law(0.5, -0.5, adam=(-0.5, -0.5))
_UNIT_MUP = _Law(sgd=(0, 1))
_NTK: Mapping[Role, _Law] = {
    "input": _MATRIX_NTK,
    "vector": _Law(adam=(0, -0.5)),
    "hidden": _MATRIX_NTK,
    "output": _MATRIX_NTK,
}
_MUP: Mapping[Role, _Law] = {
    "input": _UNIT_MUP,
    "vector": _UNIT_MUP,
    "hidden": _Law(sgd=(-1, 1), adam=(-1, 0)),
    "output": _Law(0.5, -1, sgd=(1, 0)),
}
_LAWS: Mapping[str, Mapping[Role, _Law]] = {
    "standard": {},
    "ntk": _NTK,
    "mean-field": _MUP,  # at one hidden layer they are the same
    "mup": _MUP,
}


@dataclass(frozen=True)
class Rule:
    """What a tensor is to have: size at the start, multiplier (None: no place for one), rate."""

    tensor: Tensor
    size: float
    multiplier: float | None
    rate: float


def rules_for(
    model: nn.Module,
    kind: Kind,
    base: Base | None,
    optimizer: Optimizer,
    alpha: float,
    gain: Gain,
) -> list[Rule]:
    """The rule for each tensor of a model, see `parametrize`.

    Raises:
        LazyrichError: a tensor whose role cannot be told, which the message names.
        UnknownName: a kind, optimizer or pattern that does not exist.
    """
    _check_options(kind, optimizer, alpha, gain)
    gains = gain if isinstance(gain, Mapping) else {"*": gain}
    tensors = tensors_with_roles(model, base, gain if isinstance(gain, Mapping) else {})
    checked_patterns(gains, [t.name for t in tensors if t.start is None])
    _check_model(kind, model, base, tensors)
    scaled = _outputs(tensors) if alpha != 1 else None
    slower = alpha ** (-2 if optimizer == "sgd" else -1)
    found = []
    for tensor in tensors:
        law = _LAWS[kind].get(tensor.role, _Law())
        inward, outward = tensor.growth
        multiplier = None if law.multiplier is None else inward**law.multiplier
        if tensor.module == scaled:
            multiplier = alpha * (1.0 if multiplier is None else multiplier)
        size = tensor.start
        if size is None:
            size = _gain(gains, tensor.name) / sqrt(tensor.fan_in) * inward**law.start
        powers = law.sgd if optimizer == "sgd" else law.adam
        rate = slower * inward ** powers[0] * outward ** powers[1]
        found.append(Rule(tensor, size, multiplier, rate))
    return found


def _gain(gains: Mapping[str, float], name: str) -> float:
    return next((g for pattern, g in gains.items() if fnmatchcase(name, pattern)), 1.0)


def _check_options(kind: Kind, optimizer: Optimizer, alpha: float, gain: Gain) -> None:
    for what, given, known in (("kind", kind, Kind), ("optimizer", optimizer, Optimizer)):
        if given not in get_args(known):
            raise UnknownName(what, given, get_args(known))
    if not (isfinite(alpha) and alpha > 0):
        raise LazyrichError(f"alpha={alpha}: a factor above zero.")
    for each in gain.values() if isinstance(gain, Mapping) else (gain,):
        if not (isfinite(each) and each >= 0):
            raise LazyrichError(f"gain={gain}: a size of the weights is zero or more.")


def _check_model(
    kind: Kind, model: nn.Module, base: Base | None, tensors: Sequence[Tensor]
) -> None:
    hidden = [t.name for t in tensors if t.role == "hidden"]
    if kind == "mean-field" and hidden:
        raise LazyrichError(
            f"{hidden[0]} lies between two hidden layers, and the mean-field scaling is of one: "
            "with more, all units of a layer become the same. 'mup' is what it becomes in depth."
        )
    if kind == "mup" and base is not None:
        other = base if isinstance(base, nn.Module) else base[0]
        for name, module in layers_of(model):
            if not isinstance(module, nn.MultiheadAttention):
                continue
            wide, narrow = module.head_dim, other.get_submodule(name).head_dim
            if wide != narrow:
                raise LazyrichError(
                    f"{name}: its heads have {wide} units, and {narrow} in the base. The maximal "
                    "update needs logits over head_dim, not over its root: let the number of heads "
                    "grow instead of their size."
                )


def _outputs(tensors: Sequence[Tensor]) -> str:
    """The layer that alpha scales."""
    layers = [t.module for t in tensors if t.role == "output"]
    if len(layers) != 1:
        told = ", ".join(layers) or "none"
        raise LazyrichError(f"alpha scales the one layer that makes the outputs; found: {told}.")
    return layers[0]
