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


def effective_dimension_units_debiased(x, labels, outputs):
    covariance = np.cov(x.T, bias=True)
    different = ~np.eye(len(covariance), dtype=bool)
    variances = np.diag(covariance)
    return np.outer(variances, variances)[different].sum() / (covariance[different] ** 2).sum()


def effective_dimension_both_debiased(x, labels, outputs):
    """Over all units together, less what each unit gives alone."""
    n = len(x)
    centered = x - x.mean(0)

    def parts(rows):
        pairs = ((rows[:, None] - rows[None]) ** 2).sum(2) / 2
        disjoint = pairs.sum() ** 2 - 4 * (pairs.sum(1) ** 2).sum() + 2 * (pairs**2).sum()
        trace = disjoint / (n * (n - 1) * (n - 2) * (n - 3))
        return np.array([trace, hsic_1(rows @ rows.T, rows @ rows.T)])

    above, below = parts(centered) - sum(parts(unit[:, None]) for unit in centered.T)
    return above / below
