"""A network that one number turns from lazy to rich: only what it learns counts, times a scale."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp
from torch.nn import functional


class Dial(nn.Module):
    """scale * (network - network at the start): lazy where the scale is large.

    Reference:
        Chizat, Oyallon & Bach 2019, arXiv:1812.07956.
    """

    def __init__(self, network: nn.Sequential, scale: float) -> None:
        super().__init__()
        self.network, self.scale = network, scale
        self.start = deepcopy(network).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (self.network(x) - self.start(x))

    def features(self, x: Tensor) -> Tensor:
        """What the last layer reads."""
        return self.network[:-1](x)


def descend(
    dial: Dial, x: Tensor, targets: Tensor, *, most: int, speed: float = 0.3, decay: float = 0.0
) -> Iterator[tuple[int, float]]:
    """Full-batch gradient descent with momentum; step and mean squared error before it.

    The loss is over the squared scale, so that all scales learn equally fast at first; the rate is
    `speed` over the loss's largest curvature at the start.
    """
    curvature = 2 * _largest(dial.network, x) / targets.numel()
    sgd = torch.optim.SGD(
        dial.network.parameters(), lr=speed / curvature, momentum=0.9, weight_decay=decay
    )
    for step in range(most):
        loss = functional.mse_loss(dial(x), targets)
        yield step, float(loss)
        sgd.zero_grad()
        (loss / dial.scale**2).backward()
        sgd.step()


def _largest(network: nn.Module, x: Tensor, rounds: int = 30) -> float:
    """Largest eigenvalue of the tangent kernel, by power iteration."""
    parameters = {k: p.detach() for k, p in network.named_parameters()}

    def outputs(values: dict[str, Tensor]) -> Tensor:
        return functional_call(network, values, (x,))

    back = vjp(outputs, parameters)[1]
    size, v = 0.0, torch.ones_like(network(x).detach())
    for _ in range(rounds):
        v = v / v.norm()
        v = jvp(outputs, (parameters,), (back(v)[0],))[1]
        size = float(v.norm())
    return size
