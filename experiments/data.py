"""Real data, under the folder LAZYRICH_DATA or `../shared/data` from the root of a checkout."""

import os
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

VARIABLE = "LAZYRICH_DATA"


class MissingData(FileNotFoundError):
    """Says which file is missing and where it was looked for."""


def data_folder() -> Path:
    """Where the real data lies.

    Raises:
        MissingData: nowhere; says what to set.
    """
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get(VARIABLE, default))
    if not folder.is_dir():
        raise MissingData(
            f"no data folder at {folder}: set {VARIABLE} to the folder that holds "
            "images/cifar10_test.npz, models/ and tabular/."
        )
    return folder


def path(name: str) -> Path:
    """A file of the data folder.

    Raises:
        MissingData: there is none.
    """
    found = data_folder() / name
    if not found.exists():
        raise MissingData(f"{found} is missing; set {VARIABLE} to the folder that holds {name}.")
    return found


@cache
def mnist() -> tuple[Tensor, Tensor]:
    """70,000 digits, 28 x 28 from 0 to 1; the first 60,000 are for training."""
    with np.load(path("images/mnist70k.npz")) as file:
        return torch.from_numpy(file["X"]).float() / 255, torch.from_numpy(file["y"]).long()


@cache
def cifar() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """10,000 training and 10,000 test images of CIFAR-10, 3 x 32 x 32 from 0 to 1."""
    both = []
    for name in ("cifar10_train10k", "cifar10_test"):
        with np.load(path(f"images/{name}.npz")) as file:
            x = torch.from_numpy(file["X"]).permute(0, 3, 1, 2).float() / 255
            both.append((x, torch.from_numpy(file["y"]).long()))
    return both[0], both[1]


@dataclass(frozen=True)
class Task:
    """One of the UCI tasks of Fernandez-Delgado et al., JMLR 2014.

    Attributes:
        x: features, standardized by those authors.
        y: classes from 0.
        tuning: rows to train and to validate on while options are chosen.
        folds: rows to train and to test on, four times; drawn independently of each other.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    tuning: tuple[np.ndarray, np.ndarray]
    folds: tuple[tuple[np.ndarray, np.ndarray], ...]


def uci_names() -> tuple[str, ...]:
    """All tasks that the data folder holds."""
    return tuple(sorted({name for name, file in _uci_archive() if file.endswith("_R.dat")}))


@cache
def uci(name: str) -> Task:
    """One task; text is read from the archive.

    Raises:
        MissingData: there is no such task.
    """
    files = _uci_files(name)
    told = dict(
        line.split()[:2] for line in files[f"{name}.txt"].splitlines() if len(line.split()) > 1
    )
    table = files[{k.rstrip("="): v for k, v in told.items()}["fich1"]].splitlines()[1:]
    rows = np.array([line.split()[1:] for line in table if line.strip()], dtype=np.float64)
    sets = [_indices(line) for line in files["conxuntos.dat"].splitlines() if line.strip()]
    folds = [_indices(line) for line in files["conxuntos_kfold.dat"].splitlines() if line.strip()]
    classes = np.unique(rows[:, -1], return_inverse=True)[1]
    pairs = tuple(zip(folds[::2], folds[1::2], strict=True))
    return Task(name, rows[:, :-1], classes, (sets[0], sets[1]), pairs)


def _uci_files(name: str) -> dict[str, str]:
    files = {f: text.decode("latin-1") for (n, f), text in _uci_archive().items() if n == name}
    if f"{name}.txt" not in files:
        raise MissingData(f"there is no UCI task {name!r} in {path('tabular/uci118.tar.gz')}.")
    return files


@cache
def _uci_archive() -> dict[tuple[str, str], bytes]:
    """By task and file."""
    found: dict[tuple[str, str], bytes] = {}
    with tarfile.open(path("tabular/uci118.tar.gz")) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and len(parts) == 3:
                file = archive.extractfile(member)
                assert file is not None
                found[parts[1], parts[2]] = file.read()
    return found


def _indices(line: str) -> np.ndarray:
    return np.array(line.split(), dtype=np.int64)
