"""The tangent kernel by the book: one sample, one output and one backward pass at a time."""

import numpy as np
import torch
from torch import Tensor, nn


def jacobian(model: nn.Module, x: Tensor, names: list[str] | None = None) -> Tensor:
    """[n, c, P] over parameters that require gradients, in the order of the model."""
    named = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
    parameters = [p for k, p in named if names is None or k in names]
    rows = []
    for sample in x:
        outputs = model(sample[None])[0].flatten()
        for output in outputs:
            found = torch.autograd.grad(
                output, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows).unflatten(0, (len(x), -1)).detach()


def kernel(
    model: nn.Module,
    x: Tensor,
    other: Tensor | None = None,
    kind: str = "full",
    logit: int = 0,
    names: list[str] | None = None,
) -> Tensor:
    """Any kind of it."""
    a = jacobian(model, x, names)
    b = a if other is None else jacobian(model, other, names)
    each = torch.einsum("icp,jdp->icjd", a, b)
    if kind == "full":
        return each.flatten(2, 3).flatten(0, 1)
    if kind == "sum_logits":
        return each.sum((1, 3)) / a.shape[1]
    if kind == "single":
        return each[:, logit, :, logit]
    classes = torch.einsum("icjc->cij", each)
    return classes.sum(0) if kind == "trace" else classes


def arc_cosine(x: np.ndarray, depth: int) -> np.ndarray:
    """Of an infinitely wide ReLU network, by a million draws of its recursion's expectations."""
    random = np.random.default_rng(0)
    n, d = x.shape
    covariance = x @ x.T / d
    found = covariance.copy()
    for _ in range(depth):
        slopes, values = np.empty((n, n)), np.empty((n, n))
        for i in range(n):
            for j in range(n):
                pair = covariance[np.ix_([i, j], [i, j])]
                root = np.linalg.cholesky(pair + 1e-12 * np.eye(2))
                u, v = root @ random.standard_normal((2, 1_000_000))
                values[i, j] = 2 * np.mean(np.maximum(u, 0) * np.maximum(v, 0))
                slopes[i, j] = 2 * np.mean((u > 0) & (v > 0))
        covariance = values
        found = covariance + found * slopes
    return found
