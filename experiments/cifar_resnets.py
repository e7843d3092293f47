"""Four trained CIFAR-10 ResNets and the test images, ready for `lazyrich measure`.

    lazyrich measure experiments.cifar_resnets:resnet20 --data experiments.cifar_resnets:images \
        --layers 'layer*' --layers penultimate --layers outputs -o resnet20.jsonl

Weights: akamaster/pytorch_resnet_cifar10 (BSD-2).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.data import data_folder

FILES = {
    20: "resnet20-12fca82f.th",
    32: "resnet32-d509ac18.th",
    44: "resnet44-014dd654.th",
    56: "resnet56-4bfd9763.th",
}
ERRORS = {20: 827, 32: 737, 44: 690, 56: 661}  # of 10,000, as published


class Block(nn.Module):
    """Two convolutions and a shortcut that pads channels with zeros (option A of He et al.)."""

    def __init__(self, units_in: int, units_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(units_in, units_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(units_out)
        self.conv2 = nn.Conv2d(units_out, units_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(units_out)
        self.widens = stride != 1 or units_in != units_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.widens:
            padding = y.shape[1] // 4
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, padding, padding))
        return F.relu(y + x)


class ResNet(nn.Module):
    """He et al. 2016 for CIFAR-10: three stages of `blocks` blocks with 16, 32 and 64 channels."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)

        def stage(units_in: int, units_out: int, stride: int) -> nn.Sequential:
            rest = (Block(units_out, units_out, 1) for _ in range(blocks - 1))
            return nn.Sequential(Block(units_in, units_out, stride), *rest)

        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def resnet(depth: int) -> ResNet:
    """The trained network of that depth (20, 32, 44 or 56)."""
    model = ResNet((depth - 2) // 6)
    path = data_folder() / "models" / FILES[depth]
    weights = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    model.load_state_dict({k.removeprefix("module."): v for k, v in weights.items()})
    return model.eval()


def resnet20() -> ResNet:
    return resnet(20)


def resnet32() -> ResNet:
    return resnet(32)


def resnet44() -> ResNet:
    return resnet(44)


def resnet56() -> ResNet:
    return resnet(56)


class Images:
    """The 10,000 test images in order, normalized as the networks were trained, in batches."""

    def __init__(self, n: int = 10_000, batch: int = 500) -> None:
        with np.load(data_folder() / "images" / "cifar10_test.npz") as file:
            self.x, self.y = file["X"][:n], file["y"][:n]
        self.batch = batch

    def __len__(self) -> int:
        return -(-len(self.x) // self.batch)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
        for start in range(0, len(self.x), self.batch):
            at = slice(start, start + self.batch)
            pixels = torch.from_numpy(self.x[at]).permute(0, 3, 1, 2).float() / 255
            yield (pixels - mean) / std, torch.from_numpy(self.y[at]).long()


def images() -> Images:
    """All test images."""
    return Images()
