"""Tangent kernels of infinitely wide networks, which finite ones are held to."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import LazyrichError


def arc_cosine_ntk(
    x: Float[Tensor, "n d"], other: Float[Tensor, "m d"] | None = None, *, depth: int = 1
) -> Float[Tensor, "n m"]:
    r"""Tangent kernel of an infinitely wide ReLU network without biases.

    $\Theta^{(l)} = \Sigma^{(l)} + \Theta^{(l-1)} \dot\Sigma^{(l)}$ with
    $\Sigma^{(0)} = x x'^\top / d$ and, at the angle t of $\Sigma^{(l-1)}$ and the product s of its
    lengths, $\Sigma^{(l)} = s (\sin t + (\pi - t) \cos t) / \pi$ and
    $\dot\Sigma^{(l)} = (\pi - t) / \pi$

    That of $h_1 = W_1 x / \sqrt d$ and $h_{l+1} = \sqrt{2 / w}\, W_{l+1} \operatorname{relu}(h_l)$
    with standard normal weights and w to infinity.

    Reference: Jacot, Gabriel & Hongler 2018, arXiv:1806.07572; closed form after Cho & Saul 2009,
    Arora et al. 2019, arXiv:1904.11955.

    Args:
        x, other: samples; None for x with itself.
        depth: hidden layers.

    Raises:
        LazyrichError: no hidden layer.
    """
    if depth < 1:
        raise LazyrichError(f"depth={depth}: one hidden layer or more.")
    x = x.double()
    y = x if other is None else other.double()
    covariance = x @ y.T / x.shape[1]
    sizes = x.norm(dim=1)[:, None] * y.norm(dim=1) / x.shape[1]  # kept by every layer
    found = covariance
    for _ in range(depth):
        cosine = torch.where(sizes > 0, covariance / sizes, torch.zeros_like(sizes)).clamp(-1, 1)
        angle = cosine.acos()
        covariance = sizes * (angle.sin() + (pi - angle) * cosine) / pi
        found = covariance + found * (pi - angle) / pi
    return found
