"""With the d x d pseudo-inverse of the total covariance."""

import numpy as np


def variability_collapse_index(x, labels, outputs):
    means = np.zeros_like(x)
    for c in np.unique(labels):
        means[labels == c] = x[labels == c].mean(0)
    centered = means - x.mean(0)
    between = centered.T @ centered / len(x)
    total = np.cov(x.T, bias=True)
    rank = np.linalg.matrix_rank(centered, tol=1e-8 * np.linalg.norm(centered))
    return 1 - np.trace(np.linalg.pinv(total, rcond=1e-12) @ between) / rank
