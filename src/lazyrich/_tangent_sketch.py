"""A tangent kernel by random directions in parameter space, in forward mode."""

from collections.abc import Mapping
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from ._forward_mode import pushed
from ._inputs import Inputs
from ._network import Network
from ._tangent_gram import Pairs, product


def sketched(
    network: Network,
    sides: tuple[Inputs, Inputs | None],
    seeds: Float[Tensor, "r c"],
    pairs: Pairs,
    weights: Mapping[str, float],
    probes: int,
    seed: int,
) -> tuple[Tensor, float]:
    r"""$\hat K = \frac1k \sum_s (J v_s)(J v_s)^\top$ for k standard normal directions.

    Unbiased, with $E \lVert \hat K - K \rVert^2 / \lVert K \rVert^2 = (1 + \rho) / k$ for the full
    kernel, where $\rho = (\operatorname{tr} K)^2 / \lVert K \rVert^2$. The error that is told is
    estimated from how the directions differ, which is that in expectation and serves all kinds.
    """
    random = torch.Generator().manual_seed(seed)
    pushed: list[list[Tensor]] = [[] for side in sides if side is not None]
    for _ in range(probes):
        direction = {
            name: torch.randn(p.shape, generator=random, dtype=p.dtype).to(p.device)
            * sqrt(weights[name])
            for name, p in network.parameters.items()
        }
        for z, side in zip(pushed, (s for s in sides if s is not None), strict=True):
            z.append(_pushed(network, side, direction) @ seeds.T)
    z = [torch.stack(each, -1).double() for each in pushed]
    matrix = product(z[0], z[1] if len(z) > 1 else None, pairs) / probes
    return matrix, _error(z[0], z[-1], matrix, pairs)


def _pushed(network: Network, inputs: Inputs, direction: dict[str, Tensor]) -> Tensor:
    """J v, for all samples and outputs at once."""
    at = {name: p.detach() for name, p in network.parameters.items()}
    with network.same_draws():
        return pushed(lambda p: network.at(p, inputs), at, direction)[1]


def _error(
    a: Float[Tensor, "n r k"], b: Float[Tensor, "m r k"], mean: Tensor, pairs: Pairs
) -> float:
    """Standard error of a mean over directions beside its size, both in Frobenius norm."""
    k = a.shape[-1]
    if pairs == "all":
        squares = (a.square().sum((0, 1)) * b.square().sum((0, 1))).sum()
    else:
        crossed = torch.einsum("ick,idk->cdk", a, a) * torch.einsum("ick,idk->cdk", b, b)
        squares = crossed.sum() if pairs == "sum" else crossed.diagonal().sum()
    square = mean.square().sum()
    variance = (squares / k - square) / (k - 1)
    return float((variance / (square - variance).clamp(min=0)).sqrt())
