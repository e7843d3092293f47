"""Which tensors a model has, how they act, and along which axes they grow with its width."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from .errors import LazyrichError, ShapeError, UnknownName

Role = Literal["input", "hidden", "output", "vector", "fixed"]
Base = nn.Module | Sequence[nn.Module]
INSIDE = "parametrizations"
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
_MATRICES = ("weight", "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Axes(NamedTuple):
    """Axes of a matrix over outputs and inputs of a layer."""

    outputs: int
    inputs: int


class Multiplier(nn.Module):
    """A parametrization: what is used is the factor times what is trained.

    The factor is a buffer, so that a state dict carries it, and no model without it can load that.
    """

    factor: torch.Tensor

    def __init__(self, factor: float, like: torch.Tensor) -> None:
        super().__init__()
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.register_buffer("factor", torch.tensor(factor, dtype=dtype, device=like.device))

    def forward(self, trained: torch.Tensor) -> torch.Tensor:
        """What the layer uses."""
        return self.factor * trained

    def right_inverse(self, used: torch.Tensor) -> torch.Tensor:
        """What is trained, where a weight is assigned to the layer."""
        return used / self.factor


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model, and what it does there.

    Attributes:
        module, parameter: where it is; the module's name is empty for the model itself.
        shape: as the forward pass sees it.
        axes: of a matrix; None for biases, gains, and what is added to features.
        fan_in: summands of one output of a matrix; 1 where there is no sum.
        table: whether its rows are picked one by one, as embeddings are.
        start: what biases and gains start from, 0 or 1; None where numbers are drawn.
        role: `hidden` grows along inputs and outputs, `input` and `vector` along outputs alone,
            `output` along inputs alone, `fixed` not at all.
        growth: how many times wider inputs and outputs are than those of the base.
    """

    module: str
    parameter: str
    shape: tuple[int, ...]
    axes: Axes | None = None
    fan_in: int = 1
    table: bool = False
    start: float | None = None
    role: Role = "fixed"
    growth: tuple[float, float] = (1.0, 1.0)

    @property
    def name(self) -> str:
        return f"{self.module}.{self.parameter}" if self.module else self.parameter


def tensors_with_roles(
    model: nn.Module, base: Base | None, stated: Mapping[str, float]
) -> list[Tensor]:
    """All tensors of a model with their roles.

    Args:
        base: a model of another width, or two of different widths of which the first is the base.
            None for the order of an `nn.Sequential`: its first matrix takes the input, its last
            makes the output, and the base has width 1.
        stated: patterns of names of parameters that no known layer holds, but which are vectors.

    Raises:
        LazyrichError: a tensor whose role cannot be told; the message names it.
    """
    found = _tensors(model, stated)
    if base is None:
        return _by_order(model, found)
    models = [base] if isinstance(base, nn.Module) else list(base)
    if not models or len(models) > 2 or not all(isinstance(m, nn.Module) for m in models):
        raise LazyrichError("base= takes a model of another width, or two models (base, wider).")
    beside = [{t.name: t for t in _tensors(m, stated)} for m in models]
    for other in beside:
        for name in [t.name for t in found if t.name not in other] + list(other):
            if name not in other or name not in {t.name for t in found}:
                raise LazyrichError(f"{name} is in one of the model and its base alone.")
    first, last = beside[0], beside[-1]
    grown = [
        _by_shape(t, first[t.name], last[t.name].shape if len(beside) > 1 else t.shape)
        for t in found
    ]
    if all(t.role == "fixed" for t in grown):
        raise ShapeError(
            "the model is as wide as its base, so that nothing tells what grows with the width: "
            "pass two models of different widths, base=(base, wider)."
        )
    return grown


def layers_of(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules by name, without those that parametrize others."""
    return ((n, m) for n, m in model.named_modules() if INSIDE not in n.split("."))


def _tensors(model: nn.Module, stated: Mapping[str, float]) -> list[Tensor]:
    found: list[Tensor] = []
    owners: dict[int, str] = {}
    for module_name, module in layers_of(model):
        own = [n for n, p in module._parameters.items() if p is not None]
        own += list(getattr(module, INSIDE, ()))
        for parameter in own:
            tensor = _tensor(module_name, module, parameter, stated)
            held = id(original(module, parameter))
            if held in owners:
                raise LazyrichError(
                    f"{owners[held]} and {tensor.name} are one tensor, which would need two roles: "
                    "give each layer its own."
                )
            owners[held] = tensor.name
            found.append(tensor)
    if not found:
        raise LazyrichError("the model has no parameters.")
    return found


def original(module: nn.Module, parameter: str) -> nn.Parameter:
    """What is trained, which a multiplier may stand before.

    Raises:
        LazyrichError: another parametrization than a multiplier.
    """
    held: Any = getattr(module, INSIDE, {})
    if parameter not in held:
        return module._parameters[parameter]  # type: ignore[return-value]
    for each in held[parameter]:
        if not isinstance(each, Multiplier):
            raise LazyrichError(
                f"{parameter} of a {type(module).__name__} has a parametrization already, "
                f"{type(each).__name__}: its scale would undo the one that is set here."
            )
    return held[parameter].original  # type: ignore[no-any-return]


def multiplied(module: nn.Module, parameter: str) -> float:
    """The factor from what is trained to what is used."""
    held: Any = getattr(module, INSIDE, {})
    return prod(float(m.factor) for m in held[parameter]) if parameter in held else 1.0


def _tensor(
    module_name: str, module: nn.Module, parameter: str, stated: Mapping[str, float]
) -> Tensor:
    name = f"{module_name}.{parameter}" if module_name else parameter
    held = original(module, parameter)
    if isinstance(held, UninitializedParameter):
        raise LazyrichError(f"{name} has no shape yet: run one batch through the model first.")
    tensor = Tensor(module_name, parameter, tuple(held.shape))
    if isinstance(module, _NORMS) and parameter in ("weight", "bias"):
        return replace(tensor, start=float(parameter == "weight"))
    axes = _axes(module)
    if axes is not None and parameter in _MATRICES:
        table = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        fan_in = 1 if table else prod(tensor.shape) // tensor.shape[axes.outputs]
        return replace(tensor, axes=axes, fan_in=fan_in, table=table)
    if axes is not None and parameter in ("bias", "in_proj_bias"):
        return replace(tensor, start=0.0)
    if any(fnmatchcase(name, pattern) for pattern in stated):
        return tensor
    raise LazyrichError(
        f"{name}: nobody can tell what this parameter of {type(module).__name__} does. "
        f"If it is added to features or multiplies them, as position embeddings do, say what its "
        f"entries deviate by at the start: gain={{{name!r}: 0.02}}. "
        "Known are linear, convolutional, attention, embedding and normalization layers."
    )


def _axes(module: nn.Module) -> Axes | None:
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Axes(1, 0)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return None
    if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)):
        return Axes(0, 1)
    # of GPT-2: a Linear with weights [in, out], also where a parametrization has renamed it
    kinds = {kind.__name__ for kind in type(module).__mro__}
    return Axes(1, 0) if "Conv1D" in kinds else None


def _by_shape(tensor: Tensor, base: Tensor, other: tuple[int, ...]) -> Tensor:
    """Its role: axes that differ grow."""
    shapes = tensor.shape, base.shape, other
    if len({len(s) for s in shapes}) > 1 or tensor.axes != base.axes:
        raise ShapeError(
            f"{tensor.name} has shape {tensor.shape}, and {base.shape} in the base: another layer."
        )
    grows = [i for i, size in enumerate(base.shape) if size != other[i]]
    strange = [i for i, size in enumerate(base.shape) if size != tensor.shape[i] and i not in grows]
    allowed = range(len(other)) if tensor.axes is None else tensor.axes
    strange += [i for i in grows if i not in allowed]
    if strange or (tensor.axes is None and len(grows) > 1):
        raise ShapeError(
            f"{tensor.name} has shape {tensor.shape}, {base.shape} in the base and {other} in "
            f"another width: axis {(strange or grows)[-1]} does not grow with the width of layers."
        )
    if tensor.axes is None:
        growth = prod(tensor.shape[i] / base.shape[i] for i in grows)
        return replace(tensor, role="vector" if grows else "fixed", growth=(1.0, growth))
    rows, columns = tensor.axes
    inward, outward = columns in grows, rows in grows
    if tensor.table and inward:
        raise ShapeError(f"{tensor.name} has as many rows as words: these grow beside the base.")
    growth_in = tensor.shape[columns] / base.shape[columns]
    growth_out = tensor.shape[rows] / base.shape[rows]
    return replace(tensor, role=_role(inward, outward), growth=(growth_in, growth_out))


def _role(inward: bool, outward: bool) -> Role:
    if inward:
        return "hidden" if outward else "output"
    return "input" if outward else "fixed"


def _by_order(model: nn.Module, found: Sequence[Tensor]) -> list[Tensor]:
    """Roles in a stack of layers, beside a base of width 1."""
    for name, module in layers_of(model):
        whole = all(n == INSIDE for n, _ in module.named_children())
        grouped = isinstance(module, nn.modules.conv._ConvNd) and module.groups > 1
        if grouped or not (whole or isinstance(module, nn.Sequential)):
            raise LazyrichError(
                f"{name or 'the model'} is a {'grouped ' * grouped}{type(module).__name__}: "
                "without base= the roles of layers come from their order, which only a plain "
                "nn.Sequential tells. Pass base=, the same model of another width."
            )
    matrices = [i for i, t in enumerate(found) if t.axes is not None]
    if len(matrices) < 2:
        raise LazyrichError("one layer has no width: two layers or more are needed.")
    first, last = matrices[0], matrices[-1]
    given = []
    for place, tensor in enumerate(found):
        inward, outward = first < place <= last, first <= place < last
        role = _role(inward, outward)
        if tensor.axes is None:
            role = "vector" if outward else "fixed"
        wide = tensor.shape[0 if tensor.axes is None else tensor.axes.outputs]
        growth = float(tensor.fan_in), float(wide) if outward else 1.0
        given.append(replace(tensor, role=role, growth=growth))
    return given


def checked_patterns(patterns: Mapping[str, float], names: Sequence[str]) -> None:
    """Refuse a pattern that no tensor has.

    Raises:
        UnknownName: with the nearest names.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnknownName("tensor", pattern, names)
