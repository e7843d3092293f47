"""With the d x d pseudo-inverse, class by class."""

import numpy as np


def nc1(x, labels, outputs):
    classes = np.unique(labels)
    means = np.stack([x[labels == c].mean(0) for c in classes])
    within = sum(np.cov(x[labels == c].T, bias=True) * (labels == c).sum() for c in classes)
    between = np.cov(means.T, bias=True)
    return np.trace(within / len(x) @ np.linalg.pinv(between, rcond=1e-12)) / len(classes)
