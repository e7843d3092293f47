"""Recursive Feature Machines as published: plain loops, autograd, one float64 number at a time."""

import torch


def kernel(x, z, m, bandwidth, exponent):
    """Between two points; a point has no gradient at itself."""
    difference = x - z
    squared = difference @ m @ difference
    if float(squared.detach()) < 1e-20:
        return torch.ones((), dtype=torch.float64)
    return torch.exp(-((squared.sqrt() / bandwidth) ** exponent))


def gram(x, z, m, bandwidth, exponent):
    return torch.stack([torch.stack([kernel(a, b, m, bandwidth, exponent) for b in z]) for a in x])


def agop(x, alpha, m, bandwidth, exponent, weights, center, centers=None):
    """Over x, of the kernel predictor with its centers there or elsewhere: [d, d], by autograd."""
    centers = x if centers is None else centers
    gradients = torch.zeros(len(x), alpha.shape[1], x.shape[1], dtype=torch.float64)
    for j in range(len(x)):
        for output in range(alpha.shape[1]):
            at = x[j].clone().requires_grad_()
            values = [kernel(at, z, m, bandwidth, exponent) for z in centers]
            f = sum(alpha[i, output] * values[i] for i in range(len(centers)))
            if f.requires_grad:
                (gradients[j, output],) = torch.autograd.grad(f, at)
    if center:
        gradients = gradients - torch.einsum("n,ncd->cd", weights, gradients) / weights.sum()
    return torch.einsum("n,nci,ncj->ij", weights, gradients, gradients) / weights.sum()


def normalized(m, rule):
    if rule == "max":
        return m / m.max()
    return m * len(m) / m.trace() if rule == "trace" else m


def machine(
    x,
    y,
    *,
    bandwidth,
    exponent=1.0,
    reg=1e-3,
    iterations=3,
    diagonal=False,
    normalize=None,
    center=False,
    weights=None,
):
    """Coefficients and M after each iteration, the first with the identity."""
    n, d = x.shape
    weights = torch.ones(n, dtype=torch.float64) if weights is None else weights
    m = torch.eye(d, dtype=torch.float64)
    found = []
    for _ in range(iterations + 1):
        k = gram(x, x, m, bandwidth, exponent)
        alpha = torch.linalg.solve(k + torch.diag(reg / weights), y)
        found.append((alpha, m))
        m = agop(x, alpha, m, bandwidth, exponent, weights, center)
        m = normalized(m.diagonal().diag() if diagonal else m, normalize)
    return found
