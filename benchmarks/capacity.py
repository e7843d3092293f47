"""Manifold capacity and geometry beside the loop over a QP solver that peers use, in one run.

    python benchmarks/capacity.py [--solver cvxopt] [--kind rectified] [--draws 200]

10 classes of 50 points in 1,000 units, 200 dichotomies and targets, the same for both. The loop
follows the published algorithm: points reduced to their span by QR, one quadratic program for each
target through qpsolvers, P x P pseudo-inverses of the anchors. Needs qpsolvers with cvxopt or
daqp. `ours` are the same values; `ours, all` adds what records hold beside them: jackknife errors,
the null level, and each manifold by itself.

The floor of the exact problem is the Gram matrix, N T^2 multiplications for T = P M points in N
units, and for each target one Cholesky factor of its support, V^3 / 3 with V = P / capacity, which
any method has to solve at least once to know that it is right. Beyond it: one eigendecomposition
(about 9 T^3, once) and 40 single-precision products with T x T a target (80 T^2). So the cost grows
linearly in N and in targets, quadratically in P and M while supports are small, and cubically
where they are not (low capacity, many points).
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
import torch
from scipy.linalg.lapack import dposv

sys.path.insert(0, str(Path(__file__).parents[1]))
from lazyrich.measures._solvers.manifold_solution import Solution
from lazyrich.measures._solvers.shared_solves import solutions
from lazyrich.measures.capacity import capacity
from lazyrich.measures.manifold_geometry import Conventions, solve_manifolds
from lazyrich.statistics import Batch, Clouds

KINDS = ("rectified", "apart", "collapsed")
# the defaults leave radii wrong by up to 3 percent: anchors need sharper multipliers than capacity
TIGHT: dict[str, dict[str, float]] = {
    "cvxopt": dict.fromkeys(("abstol", "reltol", "feastol"), 1e-12),
    "daqp": {},
}
CUTOFF = 1e-8  # multipliers below so much of the largest are taken for zero
NAMES = ("capacity by norm", "dimension", "radius", "center", "axis", "center-axis")


def points(kind: str, p: int, m: int, n: int) -> Batch:
    """p classes of m points in n units."""
    rng = np.random.default_rng(0)
    if kind == "rectified":  # two random layers on Gaussian classes: a common mean, a fast spectrum
        latent = rng.standard_normal((p, 1, 40)) + rng.standard_normal((p, m, 40))
        hidden = np.maximum(latent @ rng.standard_normal((40, 400)) / 40**0.5, 0)
        x = np.maximum(hidden @ rng.standard_normal((400, n)) / 20, 0)
    else:
        spread = {"apart": 1.5, "collapsed": 0.05}[kind]
        x = rng.standard_normal((p, 1, n)) + spread * rng.standard_normal((p, m, n))
    x, labels = torch.from_numpy(x.reshape(p * m, n)), torch.arange(p).repeat_interleave(m)
    return Batch(x, labels, None, torch.arange(p * m))


def timed(job: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of some runs."""
    seconds = []
    for _ in range(repeats):
        start = process_time()
        job()
        seconds.append(process_time() - start)
    return min(seconds)


def ours(batch: Batch, conventions: Conventions) -> np.ndarray:
    """The values from activations on, nothing kept from before."""
    s = solutions(Clouds.of(batch), conventions, 0)[0]
    found = s.capacities() | s.shapes()
    return np.array(
        [found[k] for k in ("by_norm", "dimension", "radius", "center", "axis", "center_axis")]
    )


def ours_all(batch: Batch, conventions: Conventions) -> None:
    clouds = Clouds.of(batch)
    capacity.evaluate(clouds)
    solve_manifolds(clouds, conventions=conventions)


def loop(batch: Batch, s: Solution, solver: str) -> tuple[np.ndarray, float]:
    """One quadratic program after the other, then the formulas on the anchors; and CPU seconds."""
    from qpsolvers import Problem, solve_problem

    x, targets = targets_of(batch, s)
    start = process_time()
    reduced = np.linalg.qr(x.T, mode="r").T
    basis = np.linalg.lstsq(reduced, x, rcond=None)[0]  # coordinates to units
    member, p = s.manifolds.member.numpy(), s.p
    squared, anchors, vectors = [], [], []
    for y, t in zip(s.signs.numpy(), targets @ basis.T, strict=True):
        signed = y[member][:, None] * reduced
        problem = Problem(np.eye(len(t)), -t, signed, np.zeros(len(signed)))
        found = solve_problem(problem, solver=solver, **TIGHT[solver])
        squared.append(((t - found.x) ** 2).sum())
        weights = np.where(found.z > CUTOFF * found.z.max(), found.z, 0)
        rows = [weights[member == i] @ reduced[member == i] for i in range(p)]
        sums = [weights[member == i].sum() for i in range(p)]
        anchors.append([r / w if w else r for r, w in zip(rows, sums, strict=True)])
        vectors.append(t)
    values = shapes(np.array(anchors), np.array(vectors))
    return np.array([p / np.mean(squared), *values]), process_time() - start


def targets_of(batch: Batch, s: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Centered points in the solution's order, and the vectors of units that it projects."""
    x = (batch.x - batch.x.mean(0)).numpy()
    squares = (x**2).sum(1)
    member = batch.labels.numpy()
    rows = []
    for label in s.manifolds.classes.tolist():
        own = np.flatnonzero(member == label)
        rows.append(own[np.argsort(squares[own])])
    x = x[np.concatenate(rows)]
    heights = (s.targets @ s.rays.coordinates.T).numpy() * np.linalg.norm(x, axis=1)
    return x, np.linalg.lstsq(x, heights.T, rcond=1e-10)[0].T


def shapes(anchors: np.ndarray, vectors: np.ndarray) -> list[float]:
    center = anchors.mean(0)
    b, c, axis, mixed = [], [], [], []
    for s, t in zip(anchors, vectors, strict=True):
        moved = s - center
        height, own = moved @ t, moved @ moved.T
        b.append(height @ np.linalg.pinv(own, rcond=1e-10, hermitian=True) @ height)
        both = center @ center.T + own
        c.append(height @ np.linalg.pinv(both, rcond=1e-10, hermitian=True) @ height)
        axis.append(alignment(moved, moved))
        mixed.append(alignment(center, moved))
    b, c = np.array(b), np.array(c)
    radius = (c.mean() / (b - c).mean()) ** 0.5
    return [
        b.mean() / len(center),
        radius,
        alignment(center, center),
        np.mean(axis),
        np.mean(mixed),
    ]


def alignment(left: np.ndarray, right: np.ndarray) -> float:
    left, right = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (left, right))
    apart = ~np.eye(len(left), dtype=bool)
    return float(np.abs(left @ right.T)[apart].mean())


def floor(batch: Batch, conventions: Conventions) -> tuple[float, float]:
    """Seconds of the Gram matrix and of one Cholesky factor a target; mean support."""
    x = batch.x - batch.x.mean(0)
    s = solutions(Clouds.of(batch), conventions, 0)[0]
    gram = s.rays.gram.numpy()
    supports = [np.flatnonzero(row) for row in (s.found.multipliers > 0).numpy()]

    def factors() -> None:
        for at in filter(len, supports):
            dposv(gram[np.ix_(at, at)], gram[at, 0], lower=1)

    return timed(lambda: x @ x.T) + timed(factors), float(s.found.support.mean())


def compare(kind: str, draws: int, solver: str) -> None:
    batch = points(kind, 10, 50, 1000)
    conventions = Conventions(draws=draws)
    mine = ours(batch, conventions)
    seconds = timed(lambda: ours(batch, conventions))
    everything = timed(lambda: ours_all(batch, conventions))
    same_targets = solutions(Clouds.of(batch), conventions, 0)[0]
    theirs, slow = loop(batch, same_targets, solver)
    gap = np.abs(mine / theirs - 1).max()
    print(f"\n{kind}: P = 10, M = 50, N = 1000, {draws} targets, one thread, CPU seconds")
    for name, a, b in zip(NAMES, mine, theirs, strict=True):
        print(f"  {name:<18} {a:.8f}   loop {b:.8f}")
    print(f"  largest relative difference {gap:.1e}")
    print(f"  loop over {solver:<10} {slow:8.2f} s")
    print(f"  ours               {seconds:8.3f} s   {slow / seconds:6.0f} times faster")
    print(f"  ours, all          {everything:8.3f} s   {slow / everything:6.0f} times faster")


def growth(kind: str) -> None:
    print(f"\ngrowth ({kind}): seconds, floor, ratio, mean support V")
    base = {"P": 10, "M": 50, "N": 1000, "targets": 200}
    changes = {
        "P": (2, 5, 10, 20),
        "M": (12, 25, 50, 100),
        "N": (500, 4000, 16000),
        "targets": (50, 1000),
    }
    for name, values in changes.items():
        for value in values:
            size = base | {name: value}
            batch = points(kind, size["P"], size["M"], size["N"])
            conventions = Conventions(draws=size["targets"], points=size["M"])
            seconds = timed(lambda b=batch, c=conventions: ours(b, c), 2)
            least, support = floor(batch, conventions)
            print(
                f"  {name:>7} = {value:<6} {seconds:8.3f} {least:8.3f} {seconds / least:6.1f} "
                f"  V = {support:.0f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="cvxopt", choices=["cvxopt", "daqp"])
    parser.add_argument("--kind", default=None, choices=KINDS)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in [options.kind] if options.kind else KINDS:
        compare(kind, options.draws, options.solver)
    growth(options.kind or "rectified")


if __name__ == "__main__":
    main()
