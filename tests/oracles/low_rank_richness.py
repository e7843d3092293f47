"""As the definition reads: kernels of n x n, a projector by pseudo-inverse, centering by H."""

import numpy as np

from .unbiased import hsic_1


def _kernels(x, outputs, kind="literal"):
    n = len(x)
    h = np.eye(n) - 1 / n
    centered = x - x.mean(0)
    f = outputs - outputs.mean(1, keepdims=True) if kind == "gauge" else outputs
    f = f if kind == "literal" else f - f.mean(0)
    left, sizes, _ = np.linalg.svd(f, full_matrices=False)
    basis = left[:, sizes > 1e-5 * sizes[0]]
    return centered @ centered.T, h @ basis @ basis.T @ h


def low_rank_richness(x, labels, outputs, kind="literal"):
    k, p = _kernels(x, outputs, kind)
    return 1 - (k * p).sum() / (np.linalg.norm(k) * np.linalg.norm(p))


def low_rank_richness_adjusted(x, labels, outputs, kind="literal"):
    """Explained variance as in adjusted R2, with as many parameters as the projection's trace."""
    n = len(x)
    k, p = _kernels(x, outputs, kind)
    parameters, everything = np.trace(p), np.trace(k)
    residual = everything - (k * p).sum()
    explained = everything / (n - 1) - residual / (n - 1 - parameters)
    return 1 - explained / np.sqrt(np.linalg.norm(p) ** 2 * hsic_1(k, k))


def low_rank_richness_hc2(x, labels, outputs, kind="literal"):
    """Each row's squared residual over the share of its own noise that the fit leaves."""
    n = len(x)
    h = np.eye(n) - 1 / n
    f = outputs - outputs.mean(1, keepdims=True) if kind == "gauge" else outputs
    f = f if kind == "literal" else f - f.mean(0)
    left, sizes, _ = np.linalg.svd(f, full_matrices=False)
    basis = left[:, sizes > 1e-5 * sizes[0]]
    rest = np.eye(n) - basis @ basis.T
    noise = ((rest @ h @ x) ** 2).sum(1) / np.diag(rest @ h @ rest)
    k, p = _kernels(x, outputs, kind)
    explained = np.trace(k) / (n - 1) - noise.mean()
    return 1 - explained / np.sqrt(np.linalg.norm(p) ** 2 * hsic_1(k, k))


def output_rank(x, labels, outputs, kind="literal"):
    return np.linalg.norm(_kernels(x, outputs, kind)[1]) ** 2


def _reachable(x, outputs, kind):
    k, p = _kernels(x, outputs, kind)
    kernel, projector = (np.sort(np.linalg.eigvalsh(m))[::-1] for m in (k, p))
    return (kernel * projector).sum()


def richness_shape(x, labels, outputs, kind="literal"):
    k, p = _kernels(x, outputs, kind)
    return _reachable(x, outputs, kind) / (np.linalg.norm(k) * np.linalg.norm(p))


def richness_align(x, labels, outputs, kind="literal"):
    k, p = _kernels(x, outputs, kind)
    return (k * p).sum() / _reachable(x, outputs, kind)
