"""On n x n kernels: plain by centering with H, debiased by sums over different samples."""

import numpy as np


def _hsic1(k, m):
    """Song et al. 2012, equation 5, with the diagonals taken out."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    ones = np.ones(n)
    whole = (k * m).sum() + ones @ k @ ones * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return (whole - 2 / (n - 2) * ones @ k @ m @ ones) / (n * (n - 3))


def initial_similarity(x, labels, outputs, initial):
    k, m = (a - a.mean(0) for a in (x, initial))
    k, m = k @ k.T, m @ m.T
    return _hsic1(k, m) / np.sqrt(_hsic1(k, k) * _hsic1(m, m))


def initial_similarity_plain(x, labels, outputs, initial):
    k, m = ((a - a.mean(0)) @ (a - a.mean(0)).T for a in (x, initial))
    return (k * m).sum() / np.linalg.norm(k) / np.linalg.norm(m)
