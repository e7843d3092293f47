"""Activations kept on disk, found again by all that they depend on."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ._capture import Capture
from ._inputs import Inputs
from ._source import Source
from ._version import __version__
from .errors import LazyrichError, UnreadableFile
from .statistics import Batch

log = logging.getLogger("lazyrich")
_ROWS = 8192  # rows to hand out at a time


class Cache:
    """The layers of one model on one set of data, in a folder of their own.

    The folder's name is a hash of weights, buffers, data, seed, view and version; in it, a file for
    each layer and an index of the files that are whole. More layers extend it.

    Args:
        capture: how the model is read; its `cache` is the folder of folders.
        data: what can be read more than once.

    Raises:
        LazyrichError: data that can be read only once.
    """

    def __init__(self, capture: Capture, data: Source) -> None:
        if data.once:
            raise LazyrichError(
                "a cache needs data that can be read more than once, to know it again: "
                "give a loader or a list of batches, not a generator."
            )
        assert capture.cache is not None
        self._capture, self._data, self._seed = capture, data, data.seed
        self.problems: dict[str, str] = {}
        self.cautions: dict[str, str] = {}
        self.heads: dict[str, Tensor] = {}
        self._prints = self._fingerprints()
        self._folder = Path(capture.cache) / self._key()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableFile(f"cannot keep a cache in {capture.cache}: {error}.") from error

    def batches(self) -> Iterator[dict[str, Batch]]:
        """The layers asked for, from the disk where they are there, else from the model.

        Raises:
            LazyrichError: the data differs from one reading to the next.
        """
        with self._capture.session(self._seed) as session:  # one batch: which layers are there?
            first = next(self._data.items())
            names = list(session.read(self._capture.inputs(first)))
            self.problems, self.cautions = session.problems, session.cautions
            self.heads = session.heads
        found = {name: batch for name in names if (batch := self._load(name)) is not None}
        missing = [name for name in names if name not in found]
        if missing:
            log.info("%d of %d layers are new to the cache", len(missing), len(names))
            found |= self._compute(missing)
        rows = max(map(len, found.values()), default=0)
        for start in range(0, rows, _ROWS):
            at = torch.arange(start, start + _ROWS)
            yield {n: found[n].rows(at[at < len(found[n])]) for n in names}

    def _compute(self, missing: list[str]) -> dict[str, Batch]:
        capture = self._capture.only(missing)
        parts: dict[str, list[Batch]] = {name: [] for name in missing}
        with capture.session(self._seed) as session:
            for number, item in enumerate(self._data.items()):
                inputs = capture.inputs(item)
                if self._prints[number : number + 1] != [fingerprint(inputs)]:
                    raise LazyrichError(
                        f"batch {number} of the data differs from one reading to the next, though "
                        "seeds are the same: it cannot be cached."
                    )
                for name, batch in session.read(inputs).items():
                    parts[name].append(batch)
        whole = {name: Batch.cat(batches) for name, batches in parts.items()}
        for name, batch in whole.items():
            self._save(name, batch)
        return whole

    def _index(self) -> dict[str, str]:
        path = self._folder / "index.json"
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _load(self, name: str) -> Batch | None:
        file = self._index().get(name)
        if file is None:
            return None
        try:
            tensors = load_file(self._folder / file)
        except (OSError, SafetensorError) as error:
            log.warning("%s is damaged and will be written anew (%s)", self._folder / file, error)
            return None
        return Batch(**tensors)

    def _save(self, name: str, batch: Batch) -> None:
        """The file first and then the index, each under another name until it is whole."""
        index = self._index()
        file = index.get(name, f"{len(index):04d}.safetensors")
        parts = ((f.name, getattr(batch, f.name)) for f in fields(batch))
        tensors = {k: v.detach().cpu().contiguous().clone() for k, v in parts if v is not None}
        part = self._folder / f"{file}.{os.getpid()}"
        save_file(tensors, part)
        part.replace(self._folder / file)
        part = self._folder / f"index.json.{os.getpid()}"
        part.write_text(json.dumps(index | {name: file}, indent=1))
        part.replace(self._folder / "index.json")

    def _fingerprints(self) -> list[str]:
        return [fingerprint(self._capture.inputs(i)) for i in self._data.items()]

    def _key(self) -> str:
        told = [__version__, torch.__version__, self._seed, *self._capture.conventions()]
        digest = hashlib.blake2b(json.dumps(told, default=str).encode(), digest_size=16)
        _weights(self._capture.model, digest)
        for print_ in self._prints:
            digest.update(print_.encode())
        return digest.hexdigest()


def _weights(model: nn.Module, digest: hashlib.blake2b) -> None:
    digest.update(repr(model).encode())  # the architecture, as far as modules tell it
    for name, tensor in model.state_dict(keep_vars=True).items():
        _add(digest, name, tensor)


def fingerprint(inputs: Inputs) -> str:
    """A hash of all that goes into the model and stands beside it."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in (*enumerate(inputs.args), *inputs.kwargs.items()):
        _add(digest, str(name), value)
    for name in ("labels", "mask", "ids"):
        _add(digest, name, getattr(inputs, name))
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, name: str, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(plain.numpy().data)
    else:
        digest.update(f"{name} {value!r}".encode())
