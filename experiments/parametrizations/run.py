"""Four parametrizations at five widths: who learns features, and at which learning rates."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.training import trained
from experiments.width_laws.run import N, problem
from lazyrich import Records, kernel
from lazyrich.parametrization import Kind, parametrize, slope
from lazyrich.statistics import Weights

DEPTH: Mapping[Kind, int] = {"standard": 2, "ntk": 2, "mup": 2, "mean-field": 1}
REFERENCE = 256
"""The width whose critical rate sets the rate at every width."""
MOVED = ("update_share", "neuron_distribution_change")


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, steps, most = {"quick": (2, 5, 64), "laptop": (8, 100, 1024), "full": (16, 150, 2048)}[
        size
    ]
    widths = [most // 2**k for k in range(4, -1, -1)]
    return {
        f"{kind}, seed {seed}": partial(_cell, kind, seed, steps, widths)
        for seed in range(seeds)
        for kind in DEPTH
    }


def network(kind: Kind, width: int, seed: int, lr: float) -> tuple[nn.Module, list[dict]]:
    """The textbook's form at a rate."""
    parts: list[nn.Module] = []
    for wide, narrow in pairwise([N, *[width] * DEPTH[kind]]):
        parts += [nn.Linear(wide, narrow, bias=False), nn.Tanh()]
    model = nn.Sequential(*parts, nn.Linear(width, 1, bias=False)).double()
    return model, parametrize(model, kind, lr=lr, gain={"0.weight": 1.0, "*": 1.6}, seed=seed)


def rates(model: nn.Module, groups: list[dict]) -> dict[str, float]:
    """Learning rates by parameter: gradient descent follows the kernel weighted by them."""
    by_id = {id(p): group["lr"] for group in groups for p in group["params"]}
    return {name: by_id[id(p)] for name, p in model.named_parameters()}


def _rate(kind: Kind) -> float:
    """Half the critical one at the width of reference."""
    model, groups = network(kind, REFERENCE, 1000, 1.0)
    followed = lz.ntk(model, problem()[0], kind="full", weights=rates(model, groups))
    return 0.5 * kernel.critical_rate(followed)


def _cell(kind: Kind, seed: int, steps: int, widths: Sequence[int]) -> Records:
    run, lr = f"{kind}, seed {seed}", _rate(kind)
    return sum((_trained(run, kind, width, seed, steps, lr) for width in widths), Records())


def _trained(run: str, kind: Kind, width: int, seed: int, steps: int, lr: float) -> Records:
    x, y = problem()
    rate = lr * REFERENCE / width if kind == "standard" else lr  # or it would diverge
    model, groups = network(kind, width, seed, rate)
    initial = deepcopy(model).requires_grad_(False)
    weights = rates(model, groups)
    before = lz.ntk(model, x, kind="full", weights=weights)
    optimizer = torch.optim.SGD(groups)
    trained(model, x, y, epochs=steps, optimizer=optimizer, loss=functional.mse_loss)
    after = lz.ntk(model, x, kind="full", weights=weights)
    model.requires_grad_(False)
    features = [net[:-2](x) for net in (model, initial)]  # before the last activation
    values = {
        "feature_change": (features[0] - features[1]).square().mean().sqrt(),
        "outputs_at_start": initial(x).square().mean().sqrt(),
        "critical_rate": rate * kernel.critical_rate(before),
        "ntk_change": (after.matrix - before.matrix).norm() / before.matrix.norm(),
        "loss": functional.mse_loss(model(x), y),
    }
    first, first_initial = (Weights.of(net).by_module()["0"] for net in (model, initial))
    values |= {m: lz.CATALOGUE[m](first, first_initial) for m in MOVED}
    return Records(
        told(run, measure, float(value), layer=f"width {width}", step=steps, n=N, seed=seed)
        for measure, value in values.items()
    )


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    return {
        f"{measure}_{kind.replace('-', '_')}": _slopes(records, kind, measure)
        for kind in DEPTH
        for measure in ("feature_change", "ntk_change", "outputs_at_start", "critical_rate")
    } | {
        f"neurons_{kind.replace('-', '_')}": _slopes(records, kind, MOVED[1])
        for kind in ("ntk", "mean-field")
    }


def _slopes(records: Records, kind: str, measure: str) -> list[float]:
    runs = [run for run in records.unique("run") if run.startswith(f"{kind}, ")]
    rows = [records.where(run=run, measure=measure) for run in runs]
    widths = [int(r.layer.split()[1]) for r in rows[0]] if rows else []
    return [slope(widths, each.values()).value for each in rows]
