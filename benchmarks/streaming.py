"""What measuring costs beside a bare forward pass over the same loader, in one run.

    python benchmarks/streaming.py [--batches 12] [--repeats 5]

ResNet-20 on CIFAR-10-sized images, batch 128, all layers, maps averaged over places. The floor is
one read of every activation map (the mean over places), n d^2 multiplications a layer for the
products, and d^2 additions every 1024 rows for the sums. Cost grows linearly in n and in the
number of layers, quadratically in d.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
from pathlib import Path
from time import process_time

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import lazyrich as lz
from experiments.cifar_resnets import ResNet

MOMENTS = ["effective_dimension", "spectrum", "total_compression"]
FAMILY = None  # every measure: moments, class moments, moments with the outputs, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ResNet(3).eval()
    loader = [
        (torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))) for _ in range(options.batches)
    ]

    def bare() -> None:
        with torch.no_grad():
            for x, _ in loader:
                model(x)

    def measured(measures: list[str] | None) -> None:
        lz.measure(model, loader, measures, progress=False)

    jobs = {
        "bare forward": bare,
        "Moments-based, all layers": lambda: measured(MOMENTS),
        "every measure, all layers": lambda: measured(FAMILY),
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.repeats):  # in turn, so that a busy machine slows all alike
        for name, job in jobs.items():
            start = process_time()
            job()
            seconds[name].append(process_time() - start)
    floor = min(seconds["bare forward"])
    print(f"ResNet-20, {options.batches} batches of 128, one thread, best of {options.repeats}")
    for name, times in seconds.items():
        print(f"{name:<28} {min(times):7.2f} s CPU   ratio {min(times) / floor:5.2f}")


if __name__ == "__main__":
    main()
