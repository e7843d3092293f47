"""On n x n kernels: plain by centering with H, debiased by sums over different samples."""

import numpy as np

from .unbiased import hsic_1


def cka(x, labels, outputs, other, kind="debiased"):
    k, m = ((a - a.mean(0)) @ (a - a.mean(0)).T for a in (x, other))
    if kind == "plain":
        return (k * m).sum() / np.linalg.norm(k) / np.linalg.norm(m)
    return hsic_1(k, m) / np.sqrt(hsic_1(k, k) * hsic_1(m, m))
