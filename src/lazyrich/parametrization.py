"""How a network grows with its width: initial variances, multipliers and learning rates.

>>> from torch import nn, optim
>>> from lazyrich.parametrization import describe, parametrize
>>> def network(width):
...     return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
>>> model, base = network(256), network(64)
>>> optimizer = optim.Adam(parametrize(model, "mup", base=base, optimizer="adam", lr=0.01))
>>> describe(model, "mup", base=base, optimizer="adam", groups=optimizer.param_groups).problems
[]
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite, sqrt
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from ._coordinate_check import Verdict, coordinate_check, coordinate_verdict
from ._scaling import Gain, Kind, Optimizer, Rule, rules_for
from ._slope import Slope, slope
from ._table import Cells, markup, text
from ._tensor_roles import Base, Multiplier, Role, layers_of, multiplied, original
from .errors import LazyrichError

__all__ = [
    "Description",
    "Slope",
    "Verdict",
    "coordinate_check",
    "coordinate_verdict",
    "describe",
    "parametrize",
    "slope",
]


def parametrize(
    model: nn.Module,
    kind: Kind,
    *,
    base: Base | None = None,
    optimizer: Optimizer = "sgd",
    lr: float,
    alpha: float = 1.0,
    gain: Gain = 1.0,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Draw a model's weights anew, set its multipliers, and say how fast each tensor learns.

    At the width of the base all kinds are the same network with the same training; they differ in
    how it grows from there. Biases start at 0, gains of normalization layers at 1.

    Multipliers are parametrizations of torch that stand before a weight: `layer.weight` is what
    the layer uses, `layer.parametrizations.weight.original` what is trained. They are part of the
    state dict, and a model of another parametrization refuses to load it.

    Args:
        model: changed in place. Linear, convolutional, embedding, attention and normalization
            layers are known.
        kind: `standard`: variance 1 / fan-in and one learning rate, as PyTorch does it. `ntk`:
            variances that do not depend on the width, and multipliers 1 / sqrt(fan-in).
            `mean-field`: f = 1/n sum over n units, for one hidden layer. `mup`: maximal update, the
            same for any depth.
        base: the same model of another width; what differs in shape is what grows. Or two models
            of different widths, of which the first is the base. None for an `nn.Sequential`: the
            first matrix takes the input, the last makes the output, and the base has width 1,
            which gives the textbook's formulas.
        optimizer: `sgd`, with or without momentum, or `adam` for all that divide a gradient by its
            size, such as AdamW.
        lr: at the base.
        alpha: factor on the outputs, and 1 / alpha^2 on the rates of `sgd`, 1 / alpha on those of
            `adam`: large is lazy (Chizat, Oyallon & Bach 2019). The outputs at the start grow with
            it; take them off.
        gain: standard deviation of the weights times the root of the fan-in, at the base, such as
            sqrt(2) before ReLU; or by patterns of names, `{"head.weight": 0}`, 1 for others. For a
            parameter of an unknown layer its standard deviation.
        seed: of the weights.

    Returns:
        Groups of parameters that require gradients, for an optimizer of torch.

    Raises:
        LazyrichError: a tensor whose role cannot be told, which the message names.
        UnknownName: a kind, optimizer or pattern that does not exist.

    Reference: Jacot et al. 2018, arXiv:1806.07572; Mei et al. 2018, doi:10.1073/pnas.1806579115;
    Yang & Hu 2021, arXiv:2011.14522; Yang et al. 2022, arXiv:2203.03466, table 8, for `mup`; Yang &
    Littwin 2023, arXiv:2308.01814, for `ntk` with Adam.
    """
    if not (isfinite(lr) and lr > 0):
        raise LazyrichError(f"lr={lr}: a learning rate above zero.")
    rules = rules_for(model, kind, base, optimizer, alpha, gain)
    if any(is_parametrized(module) for _, module in layers_of(model)):
        raise LazyrichError("the model has multipliers already: build it again to change them.")
    generator = torch.Generator().manual_seed(seed)
    groups: dict[tuple[Role, float], dict[str, Any]] = {}
    for rule in rules:
        module = model.get_submodule(rule.tensor.module)
        if rule.multiplier is not None:
            factor = Multiplier(rule.multiplier, original(module, rule.tensor.parameter))
            register_parametrization(module, rule.tensor.parameter, factor)
        held = original(module, rule.tensor.parameter)
        _start(held, rule, module, generator)
        if held.requires_grad:
            role, rate = rule.tensor.role, lr * rule.rate
            new = {"params": [], "lr": rate, "role": role}
            groups.setdefault((role, rate), new)["params"].append(held)
    return list(groups.values())


@dataclass(frozen=True)
class Described:
    """What a tensor has, beside what its parametrization wants.

    Attributes:
        tensor: its name; `role`, `shape` and `fan_in` tell what it does.
        size: root mean square of its entries now, and `wanted_size` at the start of training.
        multiplier: of the tensor where it is used.
        rate: learning rate relative to the base's, None without groups.
        problem: what is not as it should be.
    """

    tensor: str
    role: Role
    shape: tuple[int, ...]
    fan_in: int
    size: float
    wanted_size: float
    multiplier: float
    wanted_multiplier: float
    rate: float | None
    wanted_rate: float
    problem: str = ""


class Description(Sequence[Described]):
    """One row for each tensor; printed as a table."""

    def __init__(self, rows: Iterable[Described]) -> None:
        self._rows = tuple(rows)

    @property
    def problems(self) -> list[str]:
        """What is not as it should be, tensor by tensor."""
        return [f"{row.tensor}: {row.problem}" for row in self if row.problem]

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __str__(self) -> str:
        return text(self._cells())

    def _repr_html_(self) -> str:
        return markup(self._cells())

    def _cells(self) -> Cells:
        head = ["name", "role", "shape", "fan-in", "size", "wanted size", "multiplier"]
        head += ["wanted multiplier", "rate", "wanted rate", "note"]
        rows = [
            [r.tensor, r.role, "x".join(map(str, r.shape)), str(r.fan_in)]
            + [_short(v) for v in (r.size, r.wanted_size, r.multiplier, r.wanted_multiplier)]
            + [_short(r.rate), _short(r.wanted_rate), r.problem]
            for r in self
        ]
        return Cells(head, rows)


def describe(
    model: nn.Module,
    kind: Kind,
    *,
    base: Base | None = None,
    optimizer: Optimizer = "sgd",
    alpha: float = 1.0,
    gain: Gain = 1.0,
    groups: Iterable[Mapping[str, Any]] | None = None,
) -> Description:
    """What each tensor of a model really has, beside what a parametrization wants.

    Of any model, whether `parametrize` has set it or somebody else; multipliers that are written
    into a forward pass are not seen. Sizes are those now: ask before training.

    Args:
        model: is only read.
        kind, base, optimizer, alpha, gain: as in `parametrize`.
        groups: `optimizer.param_groups`, to see the learning rates, too.

    Raises:
        As `parametrize`.
    """
    rules = rules_for(model, kind, base, optimizer, alpha, gain)
    held = [original(model.get_submodule(r.tensor.module), r.tensor.parameter) for r in rules]
    rates = None if groups is None else _rates(rules, held, list(groups))
    return Description(
        _described(rule, tensor, model, rates) for rule, tensor in zip(rules, held, strict=True)
    )


@torch.no_grad()
def _start(held: nn.Parameter, rule: Rule, module: nn.Module, generator: torch.Generator) -> None:
    if rule.tensor.start is not None:
        held.fill_(rule.tensor.start)
        return
    drawn = torch.randn(held.shape, dtype=torch.float64, generator=generator)
    held.copy_(rule.size * drawn)
    padding = getattr(module, "padding_idx", None)
    if rule.tensor.table and padding is not None:
        held[padding] = 0


def _rates(
    rules: Sequence[Rule], held: Sequence[nn.Parameter], groups: Sequence[Mapping[str, Any]]
) -> dict[int, float]:
    """Learning rates by the id of the tensor, relative to the base: the one most tensors imply."""
    by_id = {id(p): float(group["lr"]) for group in groups for p in group["params"]}
    implied = [by_id[id(p)] / r.rate for r, p in zip(rules, held, strict=True) if id(p) in by_id]
    if not implied:
        raise LazyrichError("groups: none of them holds a tensor of this model.")
    return {place: rate / median(implied) for place, rate in by_id.items()}


def _described(
    rule: Rule, held: nn.Parameter, model: nn.Module, rates: Mapping[int, float] | None
) -> Described:
    module, tensor = model.get_submodule(rule.tensor.module), rule.tensor
    multiplier = multiplied(module, tensor.parameter)
    size = float(held.detach().double().square().mean().sqrt())
    wanted = 1.0 if rule.multiplier is None else rule.multiplier
    rate = None if rates is None else rates.get(id(held))
    problems = []
    slack = 0.01 + (5 / sqrt(2 * held.numel()) if tensor.start is None else 0)
    if abs(size - rule.size) > slack * rule.size + 1e-12:
        problems.append("size")
    if not isclose(multiplier, wanted, rel_tol=0.01):
        problems.append("multiplier")
    if rates is not None and held.requires_grad and rate is None:
        problems.append("in no group")
    if rate is not None and not isclose(rate, rule.rate, rel_tol=0.01):
        problems.append("learning rate")
    return Described(
        tensor.name,
        tensor.role,
        tensor.shape,
        tensor.fan_in,
        size,
        rule.size,
        multiplier,
        wanted,
        rate,
        rule.rate,
        ", ".join(problems),
    )


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
