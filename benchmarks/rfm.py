"""Recursive Feature Machines beside xrfm: CPU time, peak memory, and the floor of operations.

    python benchmarks/rfm.py [--full | --ways]

The same rows, kernel (Laplace, bandwidth 10), ridge (1e-3), normalization (largest entry 1),
float32 and number of updates, with every round scored on the same 200 rows. Each fit has a process
of its own on one thread; memory is the peak above what the process held before the fit. The floor
is the time that a matrix product takes for the operations that no exact fit can do without:
Cholesky factors, half of the distances, and the cheaper way to the AGOP. e is the mean squared
error on the 200 rows, as a share of the mean square of the targets.

xrfm is measured where it is installed. Its requirements are those of lazyrich and some it does not
need here: pip install xrfm --no-deps, beside lazyrich in an environment of its own.
"""

import argparse
import json
import os
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from importlib.util import find_spec
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Any

import numpy as np
import torch

from lazyrich.rfm import RFMRegressor
from lazyrich.rfm._outer_products import cheaper_way

torch.set_num_threads(1)
UPDATES = 3
HELD_OUT = 200


def data(n: int, d: int, c: int) -> list[np.ndarray]:
    """Rows and targets to learn from, and to choose by: products of two features each."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n + HELD_OUT, d)).astype(np.float32)
    y = np.stack([x[:, k % d] * x[:, (k + 1) % d] for k in range(c)], axis=1)
    return [x[:n], y[:n], x[n:], y[n:]]


def by_lazyrich(x: np.ndarray, y: np.ndarray, x_val: np.ndarray, y_val: np.ndarray) -> np.ndarray:
    machine = RFMRegressor(normalize="max", iterations=UPDATES, dtype="float32")
    return machine.fit(x, y, X_val=x_val, y_val=y_val).predict(x_val)


def by_xrfm(x: np.ndarray, y: np.ndarray, x_val: np.ndarray, y_val: np.ndarray) -> np.ndarray:
    from xrfm import RFM

    tensors = [torch.from_numpy(a) for a in (x, y, x_val, y_val)]
    machine = RFM(kernel="l2", device="cpu", bandwidth=10.0, iters=UPDATES, verbose=False)
    machine.fit(
        tuple(tensors[:2]), tuple(tensors[2:]), iters=UPDATES, reg=1e-3, early_stop_rfm=False
    )
    return machine.predict(tensors[2]).numpy()


def measure(package: str, n: int, d: int, c: int) -> dict[str, float]:
    """In this process."""
    fit = by_lazyrich if package == "lazyrich" else by_xrfm
    fit(*data(100, d, 1))  # imports and first calls
    rows = data(n, d, c)
    held, start = getrusage(RUSAGE_SELF).ru_maxrss, process_time()
    predicted = fit(*rows)
    seconds = process_time() - start
    error = float(np.square(predicted - rows[3]).mean() / np.square(rows[3]).mean())
    return {
        "seconds": seconds,
        "megabytes": (getrusage(RUSAGE_SELF).ru_maxrss - held) / 1024,
        "error": error,
    }


def in_a_process(package: str, n: int, d: int, c: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", package, str(n), str(d), str(c)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def operations(n: int, d: int, c: int) -> float:
    """Of one fit with its updates."""
    solves = (UPDATES + 1) * (n**3 / 3 + n * n * (d + c))
    gradients = 2.0 * n * n * c * (d + 1) + 2 * n * c * d * d
    pairs = float(n) ** 3 + 3 * n * n * c + n * n * d
    return solves + UPDATES * (gradients if cheaper_way(n, d, c) == "gradients" else pairs)


def operations_a_second() -> float:
    a = torch.randn(2000, 2000)
    a @ a
    start = process_time()
    for _ in range(5):
        a @ a
    return 5 * 2 * 2000**3 / (process_time() - start)


WAYS: dict[str, dict[str, Any]] = {
    "exact, float32": {},
    "exact, float64": {"dtype": "float64"},
    "500 landmarks": {"landmarks": 500},
    "1000 landmarks": {"landmarks": 1000},
    "2000 landmarks": {"landmarks": 2000},
    "leaves of 3000": {"max_leaf_size": 3000},
    "leaves of 1500": {"max_leaf_size": 1500},
}


def compare_ways() -> None:
    """Time and error of a low-rank polynomial from 6,000 rows of 20 features."""
    rng = np.random.default_rng(0)
    x, new = (rng.normal(scale=0.5, size=(n, 20)) for n in (6000, 2000))
    y, wanted = (r[:, 0] * r[:, 1] * (r[:, 5] > 0) for r in (x, new))
    for way, options in WAYS.items():
        machine, start = RFMRegressor(selection=None, iterations=UPDATES, **options), process_time()
        machine.fit(x, y)
        seconds = process_time() - start
        share = np.square(machine.predict(new) - wanted).mean() / wanted.var()
        print(f"{way:>16} {seconds:6.2f}s, error {100 * share:5.2f} % of the variance", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also 10,000 rows: minutes, and 9 GB")
    parser.add_argument("--ways", action="store_true", help="landmarks and trees beside exact")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        package, *sizes = asked.one
        print(json.dumps(measure(package, *map(int, sizes))))
        return
    if asked.ways:
        compare_ways()
        return
    known = find_spec("xrfm") is not None
    if not known:
        print("xrfm is not installed: pip install xrfm --no-deps (see the head of this file).")
    speed = operations_a_second()
    print(f"floor: {speed / 1e9:.0f} billion float32 operations a second in a matrix product")
    print(f"{'rows, inputs, outputs':>22} {'floor':>7} {'lazyrich':>24} {'xrfm':>24} {'ratio':>6}")
    for n in (5000, 10000)[: 1 + asked.full]:
        for d in (20, 100, 500):
            for c in (1, 10):
                ours = in_a_process("lazyrich", n, d, c)
                theirs = in_a_process("xrfm", n, d, c) if known else None
                floor = operations(n, d, c) / speed
                print(f"{f'{n}, {d}, {c}':>22} {floor:6.2f}s {shown(ours)} {shown(theirs)}", end="")
                print(f" {theirs['seconds'] / ours['seconds']:5.1f}x" if theirs else "", flush=True)


def shown(found: dict[str, float] | None) -> str:
    if found is None:
        return f"{'-':>24}"
    seconds, megabytes, error = found["seconds"], found["megabytes"], found["error"]
    return f"{seconds:7.2f}s {megabytes:5.0f}MB e{error:7.4f}"


if __name__ == "__main__":
    main()
