"""Images with a small white star in a corner: a feature that is easy and local."""

import torch
from torch import Tensor

import lazyrich as lz

_STAR = ("..#..", "..#..", "#####", ".###.", ".#.#.")
PIXELS = torch.zeros(3, 32, 32, dtype=torch.bool)
PIXELS[:, 2:7, 2:7] = torch.tensor([[mark == "#" for mark in row] for row in _STAR])


def starred(x: Tensor, which: Tensor, brightness: float = 1.0) -> Tensor:
    """The images, those that are marked with a star."""
    return torch.where(which[:, None, None, None] & PIXELS, brightness, x)


def share(records: lz.Records, measure: str) -> float:
    """Of the trace of AGOP or NFM, what the star's pixels have."""
    on = PIXELS.flatten().tolist()
    return sum(r.value for r in records if r.measure == measure and r.index and on[r.index - 1])
