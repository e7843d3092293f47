"""On the n eigenfunctions of the kernel as an SVD of the array gives them, no moments."""

import numpy as np


def _functions(x, centered):
    left, sizes, _ = np.linalg.svd(x - x.mean(0) if centered else x, full_matrices=False)
    kept = sizes > 1e-7 * sizes[0]
    return left[:, kept], sizes[kept]


def _numbered(values):
    return {k + 1: value for k, value in enumerate(values)}


def relative_eigenvalue(x, labels, outputs, centered=False):
    sizes = _functions(x, centered)[1]
    return _numbered((sizes / sizes[0]) ** 2)


def _cumulative(x, targets, centered):
    targets = targets - targets.mean(0) if centered else targets
    left, sizes, _ = np.linalg.svd(targets, full_matrices=False)
    basis = left[:, sizes > 1e-5 * sizes[0]]
    seen = ((basis.T @ _functions(x, centered)[0]) ** 2).sum(0)
    return _numbered(seen.cumsum() / basis.shape[1])


def cumulative_quality(x, labels, outputs, centered=False):
    indicators = (labels[:, None] == np.unique(labels)[None]).astype(float)
    return _cumulative(x, indicators, centered)


def cumulative_utilization(x, labels, outputs, centered=False):
    return _cumulative(x, outputs, centered)
