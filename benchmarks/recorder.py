"""What recording adds to a training run at the default schedule, in one run.

    python benchmarks/recorder.py [--steps 4690]

A small CNN on images of MNIST's size, ten epochs of its 60,000 at batch 128; the probe is 256
samples; every measure, every layer.
Recording costs one forward pass over the probe and d^3 for each layer of d units at about six
steps for every factor of ten: the share falls with the length of the run.
"""

import argparse
import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path
from time import process_time

import torch
from torch import nn

import lazyrich as lz


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(steps: int, recorder: lz.Recorder, model: nn.Module) -> tuple[float, float]:
    """CPU seconds of the whole run, and of the recording in it."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1024, 1, 28, 28, generator=generator)
    y = torch.randint(0, 10, (1024,), generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    start, recording = process_time(), 0.0
    for step in range(steps):
        before = process_time()
        recorder.step(step)
        recording += process_time() - before
        at = torch.arange(128) + 128 * (step % 8)
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return process_time() - start, recording


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4690)
    options = parser.parse_args()
    torch.set_num_threads(1)
    probe = [(torch.randn(256, 1, 28, 28), torch.arange(256) % 10)]
    model = network()
    with tempfile.TemporaryDirectory() as folder:
        with lz.Recorder(model, probe, Path(folder) / "run.jsonl") as recorder:
            whole, recording = train(options.steps, recorder, model)
        steps = len(recorder.records.unique("step"))
    bare = whole - recording
    print(f"{options.steps} steps of a small CNN, {steps} of them recorded, one thread")
    print(f"training {bare:7.2f} s CPU   recording {recording:6.2f} s   ratio {whole / bare:.3f}")


if __name__ == "__main__":
    main()
