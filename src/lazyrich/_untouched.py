"""The promise that a model comes back as it was."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Evaluation mode and seeded draws inside; modes, buffers and generators as before outside.

    The mode of every module is put back by itself: a frozen BatchNorm inside a model in training
    stays frozen.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002, the user's own
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng([d.index or 0 for d in devices]):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            model.eval()
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
