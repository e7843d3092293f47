"""By the singular values of the rows that the kernel is of."""

import numpy as np


def decomposed(x):
    axes, sizes, _ = np.linalg.svd(x, full_matrices=False)
    kept = sizes**2 > len(x) * 2.0**-52 * sizes[0] ** 2
    return sizes[kept] ** 2, axes[:, kept]


def ntk_spectrum(x, labels, outputs, initial):
    return dict(enumerate(decomposed(x)[0], 1))


def ntk_target_energy(x, labels, outputs, initial):
    y = np.equal.outer(labels, np.unique(labels)).astype(float)
    y = y - y.mean(0)
    axes = decomposed(x)[1]
    found = {}
    for k in range(1, axes.shape[1] + 1):
        projector = axes[:, :k] @ axes[:, :k].T
        found[k] = np.trace(y.T @ projector @ y) / np.trace(y.T @ y)
    return found


def ntk_participation(x, labels, outputs, initial):
    values = decomposed(x)[0]
    return values.sum() ** 2 / (values**2).sum()


def ntk_entropy_rank(x, labels, outputs, initial):
    shares = decomposed(x)[0] / decomposed(x)[0].sum()
    return np.prod(shares**-shares)


def ntk_condition(x, labels, outputs, initial):
    values = decomposed(x)[0]
    return values[0] / values[-1]
