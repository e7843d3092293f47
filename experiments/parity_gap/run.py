"""The product of two inputs: what a network learns that its first tangent kernel cannot."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.training import mlp
from lazyrich import Records, kernel

ALPHAS = 0.1, 1.0, 3.0, 10.0, 100.0
_INPUTS, _TEST = 30, 1000


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, width, rows, steps = {
        "quick": (1, 32, 60, 30),
        "laptop": (5, 256, 500, 1500),
        "full": (10, 1024, 500, 5000),
    }[size]
    return {
        f"alpha {alpha:g}, seed {seed}": partial(_cell, alpha, seed, width, rows, steps)
        for seed in range(seeds)
        for alpha in ALPHAS
    }


class Scaled(nn.Module):
    """alpha (f - f at the start): the dial from rich, small alpha, to lazy."""

    def __init__(self, network: nn.Module, alpha: float) -> None:
        super().__init__()
        self.network, self.alpha = network, alpha
        self.start = deepcopy(network).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha * (self.network(x) - self.start(x))


def _cell(alpha: float, seed: int, width: int, rows: int, steps: int) -> Records:
    run = f"alpha {alpha:g}, seed {seed}"
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2, (rows + _TEST, _INPUTS), generator=generator).float() * 2 - 1
    y = x[:, :1] * x[:, 1:2]
    x, test, y, wanted = x[:rows], x[rows:], y[:rows], y[rows:]
    model = Scaled(mlp(_INPUTS, width, width, 1, seed=seed), alpha)
    start = deepcopy(model)
    before, across = lz.ntk(model, x), lz.ntk(model, test, x)
    rate = 0.25 * kernel.critical_rate(before)
    sgd = torch.optim.SGD(model.network.parameters(), lr=rate)
    taken, loss = 0, torch.inf
    while taken < steps and loss > 1e-5:
        sgd.zero_grad()
        missed = nn.functional.mse_loss(model(x), y)
        missed.backward()
        sgd.step()
        loss, taken = float(missed.detach()), taken + 1
    after, after_across = lz.ntk(model, x), lz.ntk(model, test, x)
    with torch.no_grad():
        network = model(test)
    linear = kernel.linearized_descent(before.matrix, across.matrix, y, rate, taken)
    converged = kernel.kernel_regression(before.matrix, across.matrix, y).predictions
    later = kernel.kernel_regression(after.matrix, after_across.matrix, y).predictions
    scores = {
        "network": _right(network, wanted),
        "linearized, same step": _right(linear, wanted),
        "first kernel, converged": _right(converged, wanted),
        "last kernel, converged": _right(later, wanted),
    }
    rest = kernel.remainder(model, start, x)["model"]
    rows_ = [
        told(run, "accuracy", v, layer=k, step=taken, n=_TEST, seed=seed) for k, v in scores.items()
    ]
    rows_.append(told(run, "training loss", loss, step=taken, seed=seed))
    rows_.append(told(run, "remainder", rest, step=taken, seed=seed))
    found = kernel.measure(
        after,
        initial=before,
        labels=y,
        measures=["ntk_change", "ntk_growth", "ntk_rotation", "ntk_distance", "ntk_alignment"],
        run=run,
        step=taken,
    )
    return Records(rows_) + found


def _right(outputs: Tensor, wanted: Tensor) -> float:
    return float((outputs.sign().cpu() == wanted.sign()).double().mean())


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    seeds = sorted({r.seed for r in records.where(measure="accuracy")})
    for seed in seeds:
        gaps = {alpha: _gaps(records, alpha, seed) for alpha in ALPHAS}
        values = {
            "rich_gap": gaps[0.1][0],
            "middle_gap": gaps[3.0][0],
            "lazy_gap": gaps[100.0][0],
            "lazy_gap_converged": gaps[100.0][1],
            "rich_network": _score(records, 0.1, seed, "network"),
            "rich_last_kernel": _score(records, 0.1, seed, "last kernel, converged"),
            "rich_change": _value(records, 0.1, seed, "ntk_change"),
            "lazy_change": _value(records, 100.0, seed, "ntk_change"),
            "rich_growth_unseen": _value(records, 1.0, seed, "ntk_distance"),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _gaps(records: Records, alpha: float, seed: int) -> tuple[float, float]:
    """The network less the linearized model at the same step, and less converged regression."""
    network = _score(records, alpha, seed, "network")
    return (
        network - _score(records, alpha, seed, "linearized, same step"),
        network - _score(records, alpha, seed, "first kernel, converged"),
    )


def _score(records: Records, alpha: float, seed: int, layer: str) -> float:
    return _value(records.where(layer=layer), alpha, seed, "accuracy")


def _value(records: Records, alpha: float, seed: int, measure: str) -> float:
    run = f"alpha {alpha:g}, seed {seed}"
    return next((r.value for r in records if r.run == run and r.measure == measure), float("nan"))
