"""By the matrices themselves; the model's kernel is the layer's and that at the start together."""

import numpy as np


def kernels(x, initial):
    return x @ x.T, initial @ initial.T


def without_mean(kernel):
    h = np.eye(len(kernel)) - 1 / len(kernel)
    return h @ kernel @ h


def one_hot(labels):
    return np.equal.outer(labels, np.unique(labels)).astype(float)


def cosine(a, b):
    return np.trace(a @ b) / np.sqrt(np.trace(a @ a) * np.trace(b @ b))


def ntk_change(x, labels, outputs, initial):
    now, before = kernels(x, initial)
    return np.linalg.norm(now - before) / np.linalg.norm(before)


def ntk_growth(x, labels, outputs, initial):
    now, before = kernels(x, initial)
    slope = np.linalg.lstsq(before.reshape(-1, 1), now.ravel(), rcond=None)[0]
    return np.log(slope[0])


def ntk_rotation(x, labels, outputs, initial):
    return np.sqrt(1 - cosine(*kernels(x, initial)) ** 2)


def ntk_distance(x, labels, outputs, initial, centered=False):
    pair = kernels(x, initial)
    return 1 - cosine(*map(without_mean, pair)) if centered else 1 - cosine(*pair)


def ntk_alignment(x, labels, outputs, initial):
    y = one_hot(labels)
    return cosine(without_mean(kernels(x, initial)[0]), without_mean(y @ y.T))


def ntk_target_share(x, labels, outputs, initial):
    y = one_hot(labels) - one_hot(labels).mean(0)
    now = kernels(x, initial)[0]
    return sum(c @ now @ c for c in y.T) / np.sum(y**2) / np.trace(now)


def ntk_share(x, labels, outputs, initial):
    now, before = kernels(x, initial)
    return np.trace(now) / np.trace(now + before)


def ntk_layer_change(x, labels, outputs, initial):
    return ntk_change(x, labels, outputs, initial)
