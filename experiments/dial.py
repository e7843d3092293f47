"""A network that one number turns from lazy to rich: only what it learns counts, times a scale."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional

_LOOKED_UP = 10  # steps between two looks at the curvature


class Dial(nn.Module):
    """scale * (network - network at the start): lazy where the scale is large.

    Args:
        centered: whether the start is subtracted. Without, it is a network that is trained on its
            targets over the scale.

    Reference:
        Chizat, Oyallon & Bach 2019, arXiv:1812.07956.
    """

    def __init__(self, network: nn.Sequential, scale: float, *, centered: bool = True) -> None:
        super().__init__()
        self.network, self.scale, self.centered = network, scale, centered
        self.start = deepcopy(network).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.network(x)
        return self.scale * (outputs - self.start(x) if self.centered else outputs)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer reads."""
        return self.network[:-1](x)


def descend(
    dial: Dial, x: Tensor, targets: Tensor, *, most: int, speed: float = 0.3, decay: float = 0.0
) -> Iterator[tuple[int, float]]:
    """Full-batch gradient descent with momentum; step and mean squared error before it.

    The loss is over the squared scale, so that all scales learn equally fast at first. The rate is
    `speed` over the largest eigenvalue of the loss's Gauss-Newton matrix, which a rich network
    changes: it is looked up every few steps.
    """
    curvature = _Curvature(dial.network, x)
    sgd = torch.optim.SGD(dial.network.parameters(), lr=0.0, momentum=0.9, weight_decay=decay)
    for step in range(most):
        if step % _LOOKED_UP == 0:
            sgd.param_groups[0]["lr"] = speed * targets.numel() / (2 * curvature.largest())
        loss = functional.mse_loss(dial(x), targets)
        yield step, loss.item()
        sgd.zero_grad()
        (loss / dial.scale**2).backward()
        sgd.step()


class _Curvature:
    """Largest eigenvalue of the tangent kernel: power iteration, each time from the last vector."""

    def __init__(self, network: nn.Module, x: Tensor) -> None:
        self.network, self.x = network, x
        self.vector = torch.ones_like(network(x).detach())
        self.rounds = 20

    def largest(self) -> float:
        parameters = list(self.network.parameters())
        outputs = self.network(self.x)
        weights = torch.zeros_like(outputs, requires_grad=True)
        back = grad(outputs, parameters, weights, create_graph=True)  # linear in the weights
        for _ in range(self.rounds):
            unit = self.vector / self.vector.norm()
            towards = grad(outputs, parameters, unit, retain_graph=True)
            self.vector = grad(back, weights, towards, retain_graph=True)[0]
        self.rounds = 3
        return float(self.vector.norm())
