"""Dense and one by one: vectors of all units, NNLS for every target, nothing in Gram space.

Only the random numbers are the package's: the same dichotomies and normals, in the order that the
points' lengths set.
"""

from functools import lru_cache

import numpy as np
from scipy.optimize import nnls

from lazyrich.measures._solvers.conventions import STANDARD
from lazyrich.measures._solvers.dichotomies import GROUPS, draw


class Solved:
    """Multipliers of the points for each target, with all that they were found from."""

    def __init__(self, points, member, signs, targets, group, conventions):
        self.points, self.member, self.signs = points, member, signs
        self.targets, self.group, self.conventions = targets, group, conventions
        self.p, self.rank = int(member.max()) + 1, np.linalg.matrix_rank(points, rtol=1e-6)
        lengths = np.linalg.norm(points, axis=1)
        self.scale = (lengths**2).mean()
        self.weights, self.near, self.flat = [], [], []
        for y, t in zip(signs, targets, strict=True):
            rays = y[member][:, None] * points / lengths[:, None]
            found = nnls(rays.T, t, maxiter=9999)[0]
            self.weights.append(found / lengths)
            self.near.append(found @ rays)
            self.flat.append(self.inside(-1) and nnls(rays.T, -rays.sum(0), maxiter=9999)[1] < 1e-7)
        self.support = np.array([self.count(k) for k in range(len(targets))])

    def inside(self, k):
        return np.linalg.norm(self.targets[k] - self.near[k]) < 1e-8 * self.rank**0.5

    def count(self, k):
        return self.rank if self.inside(k) else (self.weights[k] > 0).sum()

    def slack(self, k):
        return self.signs[k][self.member] * (self.points @ (self.targets[k] - self.near[k]))

    def alone(self, i):
        """The same targets, as far as manifold i can see them, on its own cone."""
        points = self.points[self.member == i]
        _, sizes, axes = np.linalg.svd(points, full_matrices=False)
        axes = axes[sizes > 1e-6 * sizes[0]]
        targets = self.targets @ axes.T @ axes
        ones, member = np.ones((len(targets), 1)), np.zeros(len(points), int)
        return Solved(points, member, ones, targets, self.group, self.conventions)


def ordered(x, labels, conventions):
    """Points and their manifolds, the shortest first."""
    x = x - x.mean(0) * conventions.center
    constant = conventions.constant * np.linalg.norm(x, axis=1).mean()
    x = np.column_stack([x, np.full(len(x), constant)])
    squares = (x**2).sum(1) / (x**2).sum(1).mean()
    classes = sorted(set(labels), key=lambda c: round(squares[labels == c].mean(), 9))
    rows = [sorted(np.flatnonzero(labels == c), key=lambda m: squares[m]) for c in classes]
    member = np.repeat(np.arange(len(classes)), [len(r) for r in rows])
    return x[np.concatenate(rows)], member, np.array(classes)


def solve(x, labels, conventions=STANDARD):
    return _solve(x.tobytes(), x.shape, labels.tobytes(), conventions)


@lru_cache(maxsize=8)
def _solve(x, shape, labels, conventions):
    x, labels = np.frombuffer(x).reshape(shape), np.frombuffer(labels, dtype=np.int64)
    points, member, classes = ordered(x, labels, conventions)
    law = conventions.labels
    if not isinstance(law, str):
        law = np.array(law, float)[:, np.argsort(np.argsort(classes))]
    rng = np.random.default_rng([0, 0, 0])
    drawn = draw(law, len(classes), len(points), conventions.draws, rng)
    unit = points / np.linalg.norm(points, axis=1)[:, None]
    left, sizes, right = np.linalg.svd(unit, full_matrices=False)
    kept = sizes > 1e-6 * sizes[0]
    targets = drawn.normals.numpy() @ left[:, kept] @ right[kept]
    targets *= kept.sum() ** 0.5 / np.linalg.norm(targets, axis=1, keepdims=True)
    return Solved(points, member, drawn.signs.numpy(), targets, drawn.group.numpy(), conventions)


def jackknife(group, value):
    """A value less its bias: of all draws, and without each group."""
    everything = value(group >= 0)
    without = [value(group != g) for g in range(GROUPS)]
    return GROUPS * everything - (GROUPS - 1) * np.mean(without, axis=0)


def capacity(x, labels, outputs, conventions=STANDARD):
    s = solve(x, labels, conventions)
    return jackknife(s.group, lambda kept: s.p / s.support[kept].mean())


def simulated_capacity(x, labels, outputs):
    s = solve(x, labels)
    dimensions = s.support - 0.5 * ~np.array(s.flat)
    return jackknife(s.group, lambda kept: s.p / dimensions[kept].mean())


def separability_curve(x, labels, outputs):
    s = solve(x, labels)
    flat = np.array(s.flat)
    share = [0.0]
    for n in range(1, s.rank + 1):
        alike = s.support[~flat & (s.support % 2 != n % 2)]
        share.append((alike < n).mean() * (~flat).mean())
    rising = [max(share[: n + 1]) for n in range(len(share))]
    falling = [min(share[n:]) for n in range(len(share))]
    share = (np.array(rising) + falling) / 2
    n = next(n for n, p in enumerate(share) if p >= 0.01)
    return {1: np.interp(0.01, share[n - 1 : n + 1], [n - 1, n])}


def single_manifold_capacity(x, labels, outputs):
    s = solve(x, labels)
    each = [s.alone(i).support for i in range(s.p)]
    return jackknife(s.group, lambda kept: s.p / sum(v[kept].mean() for v in each))
