"""How tangent kernels fluctuate and drift as networks get wider."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

import lazyrich as lz
from experiments.harness import Cell, Size, told
from experiments.training import trained
from lazyrich import Records, kernel
from lazyrich.parametrization import parametrize, slope

ACTIVATIONS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "tanh": (nn.Tanh, 1.6),
    "GELU": (nn.GELU, 1.5),
    "ReLU": (nn.ReLU, sqrt(2)),
}
"""With the gain that keeps activations about as large as the inputs of a layer."""
N = 16
DRAWS = 24
MEASURES = ("ntk_change", "ntk_distance")


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, steps, most, most_deep = {
        "quick": (2, 10, 256, 128),
        "laptop": (10, 200, 4096, 512),
        "full": (20, 200, 16384, 2048),
    }[size]
    fluctuation = {
        f"fluctuation, {name}, {depth} hidden, seed {seed}": partial(
            _fluctuation, name, depth, seed, _widths(32, most_deep)
        )
        for seed in range(seeds // 2 + 1)
        for name in ("tanh", "ReLU")
        for depth in (1, 2)
    }
    drift = {
        f"drift, {name}, seed {seed}": partial(_drift, name, seed, steps, _widths(64, most))
        for seed in range(seeds)
        for name in ACTIVATIONS
    }
    return fluctuation | drift


def _widths(least: int, most: int) -> list[int]:
    """Each twice the one before."""
    return [2**k for k in range(least.bit_length() - 1, most.bit_length())]


def problem() -> tuple[Tensor, Tensor]:
    """Signs without a rule, on a sphere."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, N, generator=g, dtype=torch.float64)
    y = torch.randn(N, 1, generator=g, dtype=torch.float64).sign()
    return x / x.norm(dim=1, keepdim=True) * sqrt(N), y


def network(name: str, width: int, depth: int, seed: int, lr: float = 1.0) -> nn.Sequential:
    """In the NTK parametrization."""
    make, gain = ACTIVATIONS[name]
    sizes = [N, *[width] * depth]
    parts: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        parts += [nn.Linear(wide, narrow, bias=False), make()]
    model = nn.Sequential(*parts, nn.Linear(width, 1, bias=False)).double()
    gains = {f"{i}.weight": gain for i in range(2, 2 * depth + 1, 2)}
    parametrize(model, "ntk", lr=lr, gain=gains, seed=seed)
    return model


def _fluctuation(name: str, depth: int, seed: int, widths: Sequence[int]) -> Records:
    """Spread of kernels at the start over networks, relative to the mean of these."""
    run = f"fluctuation, {name}, {depth} hidden, seed {seed}"
    x, _ = problem()
    found = []
    for width in widths:
        each = range(seed * DRAWS, (seed + 1) * DRAWS)
        kernels = torch.stack(
            [lz.ntk(network(name, width, depth, s), x, certify=False).matrix for s in each]
        )
        spread = (kernels.var(0).sum().sqrt() / kernels.mean(0).norm()).item()
        found.append(told(run, "fluctuation", spread, layer=f"width {width}", n=DRAWS, seed=seed))
    return Records(found)


def _drift(name: str, seed: int, steps: int, widths: Sequence[int]) -> Records:
    """How far training to the same loss moves the kernel of one hidden layer."""
    run = f"drift, {name}, seed {seed}"
    x, y = problem()
    found = Records()
    for width in widths:
        model = network(name, width, 1, seed)
        before = lz.ntk(model, x, kind="full")
        rate = 0.25 * kernel.critical_rate(before)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        trained(model, x, y, epochs=steps, optimizer=optimizer, loss=functional.mse_loss)
        after = lz.ntk(model, x, kind="full")
        loss = functional.mse_loss(model(x), y).item()
        place = {"layer": f"width {width}", "n": N, "seed": seed}
        moved = kernel.measure(after, initial=before, measures=MEASURES)
        rows = [told(run, r.measure, r.value, **place) for r in moved]
        found += Records([*rows, told(run, "loss", loss, **place)], moved.definitions.values())
    return found


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    def slopes(start: str, measure: str) -> list[float]:
        runs = [run for run in records.unique("run") if run.startswith(f"{start}, seed")]
        rows = [records.where(run=run, measure=measure) for run in runs]
        widths = [int(r.layer.split()[1]) for r in rows[0]] if rows else []
        return [slope(widths, each.values()).value for each in rows]

    found = {
        f"fluctuation_{name.lower()}_{depth}": slopes(
            f"fluctuation, {name}, {depth} hidden", "fluctuation"
        )
        for name in ("tanh", "ReLU")
        for depth in (1, 2)
    }
    for name in ACTIVATIONS:
        found[f"drift_{name.lower()}"] = slopes(f"drift, {name}", "ntk_change")
    found["drift_relu_gates"] = found["drift_relu"]
    found["distance_tanh"] = slopes("drift, tanh", "ntk_distance")
    return found
