"""HSIC_1 of Song et al. 2012, equation 5, on kernels whose diagonals are set to zero."""

import numpy as np


def hsic_1(k, m):
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    ones = np.ones(n)
    whole = (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    crossed = 2 / (n - 2) * (ones @ k @ m @ ones)
    return (np.trace(k @ m) + whole - crossed) / (n * (n - 3))
