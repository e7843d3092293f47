"""Reading weights and arrays from files, never running code that is inside them."""

import warnings
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from .errors import LazyrichError, UnreadableFile

_NESTED = ("state_dict", "model_state_dict", "model")


def load_weights(model: nn.Module, path: Path) -> None:
    """Put saved weights into a model; nothing changes unless all of them fit.

    Args:
        path: safetensors, or a state dict saved by torch, plain or under the usual keys, also
            from inside a DataParallel wrapper.

    Raises:
        UnreadableFile: missing, damaged, or a pickle that would run code.
        LazyrichError: names or shapes that differ from the model's.
    """
    weights = _state(path)
    for wrapper in ("module.", "_orig_mod."):
        if weights and all(key.startswith(wrapper) for key in weights):
            weights = {key.removeprefix(wrapper): value for key, value in weights.items()}
    have = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    wrong = [n for n in have if n not in given or have[n] != given[n]]
    surplus = [n for n in given if n not in have]
    if wrong or surplus:
        raise LazyrichError(
            f"{path} does not fit the model: {len(wrong)} of its {len(have)} tensors are missing "
            f"or differ in shape ({', '.join(wrong[:3]) or 'none'}), and {len(surplus)} in the "
            f"file are unknown to it ({', '.join(surplus[:3]) or 'none'})."
        )
    model.load_state_dict(weights)


def load_arrays(path: Path) -> dict[str, Any]:
    """All arrays of an .npz, .npy or .safetensors file, by name.

    Raises:
        UnreadableFile: missing, damaged, of another kind, or holding pickled objects.
    """
    if path.suffix == ".safetensors":
        return dict(_safetensors(path))
    if path.suffix not in (".npy", ".npz"):
        raise UnreadableFile(f"{path}: arrays are read from .npy, .npz and .safetensors files.")
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {path.stem: content}
            return {name: content[name] for name in content.files}
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise UnreadableFile(
            f"{path} is damaged or holds pickled objects, which may run code ({error}). "
            "Save plain arrays of numbers."
        ) from error


def load_array(path: Path) -> Any:
    """The one array in a file.

    Raises:
        UnreadableFile: as `load_arrays`, or several arrays.
    """
    arrays = load_arrays(path)
    if len(arrays) != 1:
        raise UnreadableFile(
            f"{path} holds {len(arrays)} arrays ({', '.join(arrays)}): one is needed."
        )
    return next(iter(arrays.values()))


def _state(path: Path) -> dict[str, Tensor]:
    content: Any
    if path.suffix == ".safetensors":
        content = _safetensors(path)
    else:
        try:
            with warnings.catch_warnings():  # about pickle protocols, before it refuses them
                warnings.simplefilter("ignore")
                content = torch.load(path, map_location="cpu", weights_only=True)
        except OSError as error:
            raise UnreadableFile(f"cannot read {path}: {error.strerror or error}.") from error
        except UnpicklingError as error:
            raise UnreadableFile(
                f"{path} is a pickle that holds more than tensors, and opening it could run code. "
                "Save model.state_dict() with torch.save or safetensors and give that."
            ) from error
        except Exception as error:  # whatever the parser trips over in a damaged file
            raise UnreadableFile(f"{path} is damaged or holds no weights ({error}).") from error
    for key in _NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise UnreadableFile(f"{path} holds no state dict: a mapping from names to tensors.")
    return content


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror or error}.") from error
    except safetensors.SafetensorError as error:
        raise UnreadableFile(f"{path} is damaged or no safetensors file ({error}).") from error
