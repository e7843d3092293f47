"""The formulas on the anchors themselves: vectors of all units, draw by draw."""

import numpy as np

from .capacity import capacity, jackknife, solve


def anchors(s):
    """Anchors by draw and manifold, NaN for none, of the draws in which they are unique."""
    found = np.zeros((len(s.targets), s.p, s.points.shape[1]))
    instead = {"zero": 0.0, "drop": np.nan}.get(s.conventions.anchors)
    for k, weights in enumerate(s.weights):
        for i in range(s.p):
            own = s.member == i
            if weights[own].sum() > 0:
                found[k, i] = weights[own] @ s.points[own] / weights[own].sum()
            elif s.conventions.anchors == "support":
                found[k, i] = s.points[own][s.slack(k)[own].argmax()]
            else:
                found[k, i] = instead
    unique = np.array([s.rank >= len(s.points) or not s.inside(k) for k in range(len(found))])
    return found, unique


def shapes(s):
    """Dimension, radius and three alignments, less their bias."""
    found, unique = anchors(s)
    scale = s.scale if s.conventions.alignment == "product" else None

    def plain(kept):
        return _shapes(found[kept & unique], s.targets[kept & unique], s.conventions, scale)

    return jackknife(s.group, plain)


def _shapes(anchor, targets, conventions, scale):
    center = np.nanmean(anchor, 0)
    b, c, axis, mixed = [], [], [], []
    for s, t in zip(anchor, targets, strict=True):
        moved = np.nan_to_num(s - center)
        b.append((np.linalg.pinv(moved, rcond=1e-6) @ (moved @ t)) @ t)
        both = np.linalg.pinv(np.hstack([center, moved]), rcond=1e-6)
        c.append(((both @ (moved @ t)) ** 2).sum())
        axis.append(_aligned(s - center, s - center, scale))
        mixed.append(_aligned(center, s - center, scale))
    b, c = np.array(b), np.array(c)
    ratio = (
        c.mean() / (b - c).mean()
        if conventions.radius == "ratio_of_means"
        else (c / (b - c)).mean()
    )
    alignments = [[_aligned(center, center, scale)], axis, mixed]
    sizes = [_over_pairs(np.nanmean(np.abs(a), 0)) for a in alignments]
    return np.array([b.mean() / len(center), ratio**0.5, *sizes])


def _aligned(left, right, scale):
    """Cosines, or products in a scale."""
    if scale is not None:
        return left @ right.T / scale
    left, right = (a / np.linalg.norm(a, axis=1)[:, None] for a in (left, right))
    return left @ right.T


def _over_pairs(matrix):
    apart = ~np.eye(len(matrix), dtype=bool)
    return matrix[apart].mean() if apart.any() else np.nan


def manifold_dimension(x, labels, outputs):
    return shapes(solve(x, labels))[0]


def manifold_radius(x, labels, outputs):
    return shapes(solve(x, labels))[1]


def center_alignment(x, labels, outputs):
    return shapes(solve(x, labels))[2]


def axis_alignment(x, labels, outputs):
    return shapes(solve(x, labels))[3]


def center_axis_alignment(x, labels, outputs):
    return shapes(solve(x, labels))[4]


def approximate_capacity(x, labels, outputs):
    dimension, radius, *_ = shapes(solve(x, labels))
    return (1 + radius**-2) / dimension


def utility(x, labels, outputs):
    return capacity(x, labels, outputs) / approximate_capacity(x, labels, outputs)


def single_manifold_dimension(x, labels, outputs):
    s = solve(x, labels)
    return np.mean([shapes(s.alone(i))[0] for i in range(s.p)])


def single_manifold_radius(x, labels, outputs):
    s = solve(x, labels)
    return np.mean([shapes(s.alone(i))[1] for i in range(s.p)])
