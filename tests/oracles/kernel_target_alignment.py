"""On n x n kernels."""

import numpy as np

from .unbiased import hsic_1


def _kernels(x, labels):
    offset = x - x.mean(0)
    return offset @ offset.T, (labels[:, None] == labels[None]).astype(float)


def kernel_target_alignment(x, labels, outputs, centered=True):
    k, target = _kernels(x, labels) if centered else (x @ x.T, _kernels(x, labels)[1])
    if centered:
        h = np.eye(len(x)) - 1 / len(x)
        k, target = h @ k @ h, h @ target @ h
    return (k * target).sum() / (np.linalg.norm(k) * np.linalg.norm(target))


def kernel_target_alignment_debiased(x, labels, outputs):
    k, target = _kernels(x, labels)
    return hsic_1(k, target) / np.sqrt(hsic_1(k, k) * hsic_1(target, target))
