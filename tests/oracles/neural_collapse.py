"""With the d x d pseudo-inverse and pairs of classes, one by one."""

from itertools import combinations

import numpy as np


def _class_means(x, labels):
    return np.stack([x[labels == c].mean(0) for c in np.unique(labels)])


def nc1(x, labels, outputs):
    classes = np.unique(labels)
    means = _class_means(x, labels)
    within = sum(np.cov(x[labels == c].T, bias=True) * (labels == c).sum() for c in classes)
    between = np.cov(means.T, bias=True)
    return np.trace(within / len(x) @ np.linalg.pinv(between, rcond=1e-12)) / len(classes)


def nc2_equinorm(x, labels, outputs):
    means = _class_means(x, labels)
    sizes = [np.linalg.norm(mean - means.mean(0)) for mean in means]
    return np.std(sizes) / np.mean(sizes)


def _cosines(x, labels):
    means = _class_means(x, labels)
    gaps = means - means.mean(0)
    return [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in combinations(gaps, 2)]


def nc2_equiangular(x, labels, outputs):
    return np.std(_cosines(x, labels))


def nc2_maximal_angle(x, labels, outputs):
    apart = 1 / (len(np.unique(labels)) - 1)
    return np.mean([abs(cosine + apart) for cosine in _cosines(x, labels)])


def nc3(x, labels, outputs, head):
    means = _class_means(x, labels)
    gaps = means - means.mean(0)
    weights = head[np.unique(labels)]
    cosine = (weights * gaps).sum() / np.linalg.norm(weights) / np.linalg.norm(gaps)
    return 2 - 2 * cosine


def nc4(x, labels, outputs):
    classes, means = np.unique(labels), _class_means(x, labels)
    nearest = [classes[np.argmin([np.linalg.norm(row - m) for m in means])] for row in x]
    return np.mean(np.array(nearest) != outputs.argmax(1))
