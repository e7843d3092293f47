"""From lazy to rich by one number: which measures see it, and how capacity is gained."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from math import log, log2

import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.data import mnist
from experiments.dial import Dial
from experiments.harness import Cell, Size, told
from experiments.reading import by_seed, over_steps, trend
from experiments.training import mlp
from lazyrich import Record, Records

RICHER = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_MEASURES = [
    "capacity",
    "manifold_radius",
    "manifold_dimension",
    "utility",
    "center_alignment",
    "axis_alignment",
    "center_axis_alignment",
    "kernel_target_alignment",
    "low_rank_richness",
]
_LOSS = 1e-3
