"""The formula as printed; the debiased one by means over distinct samples of n x n arrays."""

import numpy as np

from .unbiased import hsic_1


def effective_dimension(x, labels, outputs):
    eigenvalues = np.linalg.eigvalsh(np.cov(x.T, bias=True))
    return eigenvalues.sum() ** 2 / (eigenvalues**2).sum()


def effective_dimension_debiased(x, labels, outputs):
    """(tr S)^2 from pairs of squared distances |x_i - x_j|^2 / 2 that share no sample."""
    n = len(x)
    centered = x - x.mean(0)
    pairs = ((centered[:, None] - centered[None]) ** 2).sum(2) / 2
    disjoint = pairs.sum() ** 2 - 4 * (pairs.sum(1) ** 2).sum() + 2 * (pairs**2).sum()
    squared_trace = disjoint / (n * (n - 1) * (n - 2) * (n - 3))
    return squared_trace / hsic_1(centered @ centered.T, centered @ centered.T)
