"""On the eigenvalues of the n x n Gram matrix."""

import numpy as np


def matrix_entropy(x, labels, outputs, order=1.0, centered=False):
    x = x - x.mean(0) if centered else x
    values = np.linalg.eigvalsh(x @ x.T)
    shares = values[values > 1e-13 * values[-1]] / values.sum()
    if order == 1:
        return -(shares * np.log(shares)).sum()
    return np.log((shares**order).sum()) / (1 - order)
