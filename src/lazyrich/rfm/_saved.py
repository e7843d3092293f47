"""Trees of machines as files without code in them: safetensors, with JSON beside the numbers."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import LazyrichError, UnreadableFile
from ._fitting import Fit
from ._kernel import Kernel
from ._machine import Machine, Metric
from ._outer_products import Expansion
from ._tree import Tree

_KEY = "lazyrich.rfm"
_OF_TREE = ("directions", "thresholds", "children", "temperature")
_PARTS = ("mean", "matrix", "root", "centers", "coefficients", "offset", "scores", "numbers")


def write(path: Path, tree: Tree, about: dict[str, Any]) -> None:
    """One file; an old one is replaced as a whole.

    Args:
        about: what else to keep, for JSON.

    Raises:
        LazyrichError: it cannot be written, or JSON has no word for a part of it.
    """
    tensors = {name: torch.from_numpy(np.asarray(getattr(tree, name))) for name in _OF_TREE}
    for number, fit in enumerate(tree.leaves):
        tensors |= {f"{number}.{name}": tensor for name, tensor in _tensors(fit).items()}
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        told = {_KEY: json.dumps(about | {"leaves": len(tree.leaves)}, default=_plain)}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file({n: t.contiguous().cpu() for n, t in tensors.items()}, part, metadata=told)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, SafetensorError, TypeError) as error:
        raise LazyrichError(f"cannot write the machine to {path}: {error}") from error


def read(path: Path) -> tuple[Tree, dict[str, Any]]:
    """What `write` has written, on the CPU.

    Raises:
        UnreadableFile: it is no such file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        directions, thresholds, children, t = (tensors[name].numpy() for name in _OF_TREE)
        leaves = [_fit(tensors, f"{number}.") for number in range(about["leaves"])]
        return Tree(directions, thresholds, children, leaves, float(t)), about
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(f"{path} holds no machine that lazyrich saved ({error}).") from error


def _tensors(fit: Fit) -> dict[str, Tensor]:
    machine, kernel = fit.machine, fit.machine.kernel
    numbers = [kernel.bandwidth, kernel.exponent, fit.iteration, fit.weight]
    return {
        "mean": torch.from_numpy(machine.mean),
        "matrix": machine.metric.matrix,
        "root": machine.metric.root.clone(),  # the first metric is its own root
        "centers": machine.expansion.centers,
        "coefficients": machine.expansion.coefficients,
        "offset": torch.from_numpy(machine.offset),
        "scores": torch.from_numpy(fit.scores),
        "numbers": torch.tensor(numbers, dtype=torch.float64),
    }


def _fit(tensors: dict[str, Tensor], leaf: str) -> Fit:
    mean, matrix, root, centers, coefficients, offset, scores, numbers = (
        tensors[leaf + name] for name in _PARTS
    )
    bandwidth, exponent, iteration, weight = numbers.tolist()
    machine = Machine(
        mean.numpy(),
        Metric(matrix, root),
        Kernel(bandwidth, exponent),
        Expansion(centers, coefficients),
        offset.numpy(),
    )
    return Fit(machine, int(iteration), scores.numpy(), weight)


def _plain(value: Any) -> Any:
    """Numbers of numpy, which GridSearchCV sets for one."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} of {type(value).__name__} has no place in a file without code")
