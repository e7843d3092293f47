"""What the second-moment family costs beside the bare centered matrix product, in one run.

    python benchmarks/moments.py [--n 50000] [--repeats 3] [--shape 512x10 --shape 2048x100 ...]

For n samples of d units in C classes with C outputs, on one thread:

- floor: rows less their mean, times themselves, in float32 and nothing else;
- moments: what spectra and dimensions need (float64 sums, exact far from the origin);
- family: classes, outputs, third- and fourth-order sums, predictions: all that the measures of
  this family read, from batches of 512 rows as a loader would bring them.

Then the time to read each measure off the finished sums. D_LR needs no d x d eigendecomposition;
those that do say so by their time.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from time import process_time

import torch
from torch import Tensor

from lazyrich import CATALOGUE
from lazyrich._sums import LayerSums
from lazyrich.statistics import Batch, JointClassMoments, Moments, Predictions

SHAPES = ["512x10", "2048x100", "4096x10"]
BATCH = 512
KEPT = 8192  # rows that are made; the stream repeats them
FAMILY = [JointClassMoments, Predictions]


def stream(x: Tensor, labels: Tensor, outputs: Tensor, n: int) -> Iterator[Batch]:
    for start in range(0, n, BATCH):
        at = slice(start % KEPT, start % KEPT + BATCH)
        yield Batch(x[at], labels[at], outputs[at])


def floor(x: Tensor, n: int) -> None:
    for _ in range(n // KEPT):
        rows = x - x.mean(0)
        rows.T @ rows


def summed(kinds: list[type], batches: Iterator[Batch]) -> LayerSums:
    sums = LayerSums(kinds, 1, None, rotate=False)
    for batch in batches:
        sums.add(batch)
    sums.blocks()
    return sums


def best(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """CPU seconds; in turn, so that a busy machine slows all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = process_time()
            job()
            seconds[name].append(process_time() - start)
    return {name: min(times) for name, times in seconds.items()}


def accumulation(d: int, c: int, n: int, repeats: int) -> None:
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(0, c, (KEPT,), generator=g)
    x = torch.relu(torch.randn(KEPT, d, generator=g) + torch.randn(c, d, generator=g)[labels])
    outputs = x @ torch.randn(d, c, generator=g) / d**0.5
    n -= n % KEPT
    seconds = best(
        {
            "floor": lambda: floor(x, n),
            "moments": lambda: summed([Moments], stream(x, labels, outputs, n)),
            "family": lambda: summed(FAMILY, stream(x, labels, outputs, n)),
        },
        repeats,
    )
    print(f"\nn = {n}, d = {d}, C = {c}: best of {repeats}")
    for name, least in seconds.items():
        print(f"  {name:<10}{least:8.2f} s   ratio {least / seconds['floor']:5.2f}")
    readings(JointClassMoments.of(Batch(x, labels, outputs)))


def readings(sums: JointClassMoments) -> None:
    spent = {}
    for m in CATALOGUE.values():
        if m.needs in JointClassMoments.contains and not m.takes_initial:
            start = process_time()
            m.evaluate(sums.read(m.needs))
            spent[m.name] = process_time() - start
    print("  read off, each after those before it (the first of a kind pays for what they share):")
    for name, least in spent.items():
        print(f"    {name:<34}{1000 * least:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shape", action="append", metavar="dxC")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for shape in options.shape or SHAPES:
        d, c = map(int, shape.split("x"))
        accumulation(d, c, options.n, options.repeats)


if __name__ == "__main__":
    main()
