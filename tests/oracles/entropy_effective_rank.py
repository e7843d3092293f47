"""On the singular values of the array, or of its covariance."""

import numpy as np


def entropy_effective_rank(x, labels, outputs, of="covariance", centered=True):
    x = x - x.mean(0) if centered else x
    matrix = x.T @ x if of == "covariance" else x
    sizes = np.linalg.svd(matrix, compute_uv=False)
    shares = sizes[sizes > 1e-12 * sizes[0]] / sizes.sum()
    return np.exp(-(shares * np.log(shares)).sum())
