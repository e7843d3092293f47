"""On the singular values of the array as it is."""

import numpy as np


def rankme(x, labels, outputs, centered=False):
    sizes = np.linalg.svd(x - x.mean(0) if centered else x, compute_uv=False)
    shares = sizes / sizes.sum() + 1e-7
    return np.exp(-(shares * np.log(shares)).sum())
