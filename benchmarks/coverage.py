"""How often the 95 % jackknife intervals hold the true value, over simulated data sets.

    python benchmarks/coverage.py [--sets 500] [--n 300 1000] [--blocks 10] [--tails gauss t5 t3]

d = 40 features with variances 1/k in 4 classes, and 4 outputs that follow the features but not
them alone. Tails: Gaussian; or the radius of every sample shared by all its features, so that
each is Student's t with 5 or 3 degrees of freedom (scaled to the same covariance). The truth comes
from the moments of the distribution itself.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from math import sqrt

import numpy as np
import torch

import lazyrich as lz
from lazyrich import CATALOGUE
from lazyrich.statistics import Batch, ClassMoments, JointMoments, Moments

D, C = 40, 4
MEASURES = {
    "effective_dimension_debiased": "effective_dimension",
    "low_rank_richness_adjusted": "low_rank_richness",
    "low_rank_richness_hc2": "low_rank_richness",
    "kernel_target_alignment_debiased": "kernel_target_alignment",
}
WITHIN = 1 / torch.arange(1, D + 1, dtype=torch.float64)
NOISE = 0.3
g = torch.Generator().manual_seed(0)
MEANS = 0.4 * torch.randn(C, D, generator=g, dtype=torch.float64) * WITHIN.sqrt()
READOUT = torch.randn(D, C, generator=g, dtype=torch.float64)
SHIFT = torch.randn(C, generator=g, dtype=torch.float64)


def drawn(n: int, tails: str, g: torch.Generator) -> Batch:
    labels = torch.randint(0, C, (n,), generator=g)
    x = torch.randn(n, D, generator=g, dtype=torch.float64) * WITHIN.sqrt()
    if tails != "gauss":
        nu = int(tails[1:])
        chi = torch.randn(n, nu, generator=g, dtype=torch.float64).square().sum(1, keepdim=True)
        x = x * ((nu - 2) / chi).sqrt()
    x = x + MEANS[labels]
    noise = NOISE * torch.randn(n, C, generator=g, dtype=torch.float64)
    return Batch(x, labels, x @ READOUT + SHIFT + noise)


def truth() -> dict[str, float]:
    """The plain measures on the moments of the distribution."""
    count = torch.tensor(1e9, dtype=torch.float64)
    mean, gaps = MEANS.mean(0), MEANS - MEANS.mean(0)
    within = WITHIN.diag()
    covariance = within + gaps.T @ gaps / C
    # the tail matters to the debiased measures alone: it is borrowed from rows, and not read
    rows = JointMoments.of(drawn(50, "gauss", torch.Generator().manual_seed(0)))
    x = Moments(count, mean, covariance * count)
    spread = READOUT.T @ covariance @ READOUT + NOISE**2 * torch.eye(C)
    f = Moments(count, mean @ READOUT + SHIFT, spread * count)
    features = type(rows.features)(x, rows.features.tail)
    joint = JointMoments(features, f, covariance @ READOUT * count, rows.resolution)
    classes = ClassMoments(
        torch.arange(C),
        (count / C).repeat(C),
        MEANS,
        (count / C * within.trace()).repeat(C),
        within * count,
        rows.features.tail,
        x.precision,
    )
    found = {}
    for debiased, plain in MEASURES.items():
        kinds = {Moments: x, JointMoments: joint, ClassMoments: classes}
        found[debiased] = CATALOGUE[plain].evaluate(kinds[CATALOGUE[plain].needs]).found.value
    return found


def coverage(n: int, tails: str, sets: int, blocks: int) -> None:
    true = truth()
    rows: dict[str, list[tuple[float, float, float]]] = {}
    g = torch.Generator().manual_seed(n)
    for seed in range(sets):
        b = drawn(n, tails, g)
        names = [*MEASURES, *dict.fromkeys(MEASURES.values())]
        order = torch.randperm(n, generator=g)
        b = b.rows(order)
        records = lz.measure_arrays(
            b.x, names, labels=b.labels, outputs=b.outputs, interval=blocks, seed=seed
        )
        for r in records:
            rows.setdefault(r.measure, []).append((r.value, r.low, r.high))
    for debiased, plain in MEASURES.items():
        for name in (debiased, plain) if plain in rows else (debiased,):
            value, low, high = (
                np.array(column, float) for column in zip(*rows.pop(name), strict=True)
            )
            inside = float(((low <= true[debiased]) & (true[debiased] <= high)).mean())
            error = 1.96 * sqrt(inside * (1 - inside) / sets)
            print(
                f"{tails:<6}{n:>6}  {name:<34}{true[debiased]:8.4f}{value.mean():9.4f}"
                f"{value.std():9.4f}{(high - low).mean() / 2:9.4f}"
                f"{100 * inside:8.1f} +- {100 * error:.1f} %"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--n", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--tails", nargs="+", default=["gauss", "t5", "t3"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'tails':<6}{'n':>6}  {'measure':<34}    true     mean   spread  +-half     holds")
    for tails in options.tails:
        for n in options.n:
            coverage(n, tails, options.sets, options.blocks)


if __name__ == "__main__":
    main()
