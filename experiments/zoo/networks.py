"""Six families of small networks for 16 x 16 images of ten classes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

CLASSES, SIDE = 10, 16


def mlp(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * SIDE**2, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def plain(width: int) -> nn.Module:
    """Four convolutions, without normalization."""
    return _convolutional(width, lambda a, b, stride: nn.Conv2d(a, b, 3, stride, 1))


def normalized(width: int) -> nn.Module:
    """The same with batch normalization."""
    return _convolutional(width, _normalized)


def separable(width: int) -> nn.Module:
    """Depthwise and pointwise convolutions in turn, with batch normalization."""

    def separated(a: int, b: int, stride: int) -> nn.Module:
        depthwise = nn.Conv2d(a, a, 3, stride, 1, groups=a, bias=False)
        return nn.Sequential(depthwise, nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b))

    return _convolutional(width, separated)


def residual(width: int) -> nn.Module:
    """Three blocks of two convolutions with a shortcut."""
    return nn.Sequential(
        nn.Sequential(_normalized(3, width, 1), nn.ReLU()),
        _Residual(width, width, 1),
        _Residual(width, 2 * width, 2),
        _Residual(2 * width, 4 * width, 2),
        *_head(4 * width),
    )


def mixer(width: int) -> nn.Module:
    """Perceptrons over 4 x 4 patches and over channels in turn."""
    return nn.Sequential(
        _Patches(width),
        _Mixing(SIDE**2 // 16, width),
        _Mixing(SIDE**2 // 16, width),
        nn.LayerNorm(width),
        _Pooled(),
        nn.Linear(width, CLASSES),
    )


FAMILIES: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (64, 160, 400)),
    "plain": (plain, (6, 10, 16)),
    "normalized": (normalized, (6, 10, 16)),
    "separable": (separable, (8, 14, 24)),
    "residual": (residual, (4, 7, 11)),
    "mixer": (mixer, (24, 48, 80)),
}


def _convolutional(width: int, layer: Callable[[int, int, int], nn.Module]) -> nn.Module:
    sizes = ((3, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1))
    parts = [nn.Sequential(layer(*size), nn.ReLU()) for size in sizes]
    last = nn.Sequential(layer(2 * width, 4 * width, 2), nn.ReLU())
    return nn.Sequential(*parts, last, *_head(4 * width))


def _normalized(a: int, b: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b))


def _head(units: int) -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(units, CLASSES)


class _Residual(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(_normalized(a, b, stride), nn.ReLU(), _normalized(b, b, 1))
        same = a == b and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(a, b, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inside(x) + self.shortcut(x))


class _Patches(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed(x).flatten(2).transpose(1, 2)


class _Mixing(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = _perceptron(patches, 2 * patches)
        self.within = _perceptron(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.between(x))


class _Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def _perceptron(units: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(units, hidden), nn.GELU(), nn.Linear(hidden, units))
