"""Least squares with an intercept, and what its residuals leave."""

import numpy as np


def linear_regression(x, labels, outputs, other):
    n, d = x.shape
    if n <= d:
        return np.nan
    design = np.column_stack([x - x.mean(0), np.ones(n)])
    residual = other - design @ np.linalg.lstsq(design, other, rcond=None)[0]
    return 1 - (residual**2).sum() / ((other - other.mean(0)) ** 2).sum()
