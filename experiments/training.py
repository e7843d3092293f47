"""Networks and their training, as the papers do it: small, seeded, plain."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Loss = Callable[[Tensor, Tensor], Tensor]


def mlp(
    *sizes: int, seed: int, first: float = 1.0, bias: bool = True, activation: type = nn.ReLU
) -> nn.Sequential:
    """Linear layers with activations between them.

    Args:
        first: factor on the initial weights of the first layer.
    """
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        parts += [nn.Linear(wide, narrow, bias=bias), activation()]
    model = nn.Sequential(*parts[:-1])
    with torch.no_grad():
        model[0].weight.mul_(first)  # type: ignore[union-attr, operator]
    return model


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error beside one-hot labels."""
    return functional.mse_loss(outputs, functional.one_hot(labels, outputs.shape[1]).float())


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    optimizer: torch.optim.Optimizer,
    loss: Loss = functional.cross_entropy,
    batch: int = 0,
    seed: int = 0,
) -> Iterator[int]:
    """Epoch after epoch, each after its updates; all samples at once where batch is 0."""
    each = -(-len(x) // (batch or len(x)))
    options = {"optimizer": optimizer, "loss": loss, "batch": batch, "seed": seed}
    for step in updates(model, x, y, steps=epochs * each, **options):  # type: ignore[arg-type]
        if step % each == 0:
            yield step // each


def updates(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    steps: int,
    optimizer: torch.optim.Optimizer,
    loss: Loss = functional.cross_entropy,
    batch: int = 0,
    seed: int = 0,
) -> Iterator[int]:
    """Step after step, each after its update, through the samples in ever new orders."""
    generator = torch.Generator().manual_seed(seed)
    step = 0
    while step < steps:
        order = torch.randperm(len(x), generator=generator) if batch else torch.arange(len(x))
        for at in order.split(batch or len(x))[: steps - step]:
            optimizer.zero_grad()
            loss(model(x[at]), y[at]).backward()
            optimizer.step()
            step += 1
            yield step


def trained(*args: object, **options: object) -> None:
    """All epochs at once."""
    for _ in train(*args, **options):  # type: ignore[arg-type]
        pass


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of samples whose class has the largest output."""
    return float((model(x).argmax(1) == y).double().mean())


def convolutional(
    width: int,
    classes: int,
    *,
    seed: int,
    side: int = 16,
    normalized: bool = True,
    running: bool = True,
) -> nn.Sequential:
    """A small VGG: pairs of 3 x 3 convolutions, each twice as wide, then one layer.

    Args:
        width: channels of the first pair.
        side: of the images, a power of two; pairs go on until maps are 2 x 2.
        normalized: whether batch normalization follows each convolution.
        running: whether that takes running moments in evaluation, which lag behind early in
            training, or those of the batch.
    """
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    before, channels = 3, width
    while side > 2:
        for _ in range(2):
            parts.append(nn.Conv2d(before, channels, 3, padding=1, bias=not normalized))
            parts += [nn.BatchNorm2d(channels, track_running_stats=running)] if normalized else []
            parts.append(nn.ReLU())
            before = channels
        parts.append(nn.MaxPool2d(2))
        channels, side = 2 * channels, side // 2
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(before * side**2, classes))
