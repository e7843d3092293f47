"""Tensors on the disk: safetensors, whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from .errors import LazyrichError


def write_tensors(
    path: str | Path, tensors: Mapping[str, Tensor], told: Mapping[str, str], what: str
) -> Path:
    """A missing folder is made, and an old file replaced as a whole.

    Args:
        told: text that goes with the tensors.
        what: is written, for the message: `the matrix`.

    Raises:
        LazyrichError: it cannot be written.
    """
    path = Path(path)
    if not path.name:
        raise LazyrichError(f"cannot write {what} to {str(path)!r}: give the path of a file.")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.touch()  # with the rights that files get here; safetensors would keep it private
            mode = part.stat().st_mode
            save_file(plain, part, metadata=dict(told))
            part.chmod(mode)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise LazyrichError(f"cannot write {what} to {path}: {error}") from error
    return path
