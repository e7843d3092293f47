"""A tangent kernel over samples, and what is known of how it was made."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import LazyrichError, UnreadableFile

Kind = Literal["trace", "full", "class", "sum_logits", "single"]


@dataclass(frozen=True)
class Kernel:
    """The empirical neural tangent kernel of n samples with m others, in float64.

    Attributes:
        matrix: [n, m]; [n k, m k] for the `full` kernel of k outputs, with a sample's outputs side
            by side; [k, n, m] for one kernel for each `class`.
        kind: as asked of `ntk`.
        n, m: samples on either side.
        classes: k, the outputs of the model for a sample.
        terms: by layer or parameter what it adds to the matrix; empty unless asked for.
        engines: by parameter how its part was computed: `outer` (inputs times gradients),
            `positions` (the same for pairs of positions), `gradients` (of single samples, by
            hooks), `jacobian` (by torch.func, or sample by sample), `unused` or `sketch`.
        dtype: what it was computed in.
        certificate: largest relative error, over parameters, of u' K v beside ordinary backward
            passes; None where it was not asked for.
        sketch_error: expected relative error in Frobenius norm; None for an exact kernel.
    """

    matrix: Tensor
    kind: Kind
    n: int
    m: int
    classes: int
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "float64"
    certificate: float | None = None
    sketch_error: float | None = None

    @property
    def blocks(self) -> Float[Tensor, "n k m k"]:
        """The full kernel by sample and output.

        Raises:
            LazyrichError: a kernel of another kind.
        """
        if self.kind != "full":
            raise LazyrichError(f"a kernel of kind {self.kind!r} has no blocks: kind='full' has.")
        return self.matrix.view(self.n, self.classes, self.m, self.classes)

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file; an old one is replaced as a whole.

        Raises:
            LazyrichError: the file cannot be written.
        """
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        tensors = {"matrix": told.pop("matrix")}
        tensors |= {f"terms/{name}": term for name, term in told.pop("terms").items()}
        told["engines"] = dict(told["engines"])
        plain = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                save_file(plain, part, metadata={"kernel": json.dumps(told)})
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
        except (OSError, SafetensorError) as error:
            raise LazyrichError(f"cannot write the kernel to {path}: {error}") from error
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Kernel":
        """What `save` has written.

        Raises:
            UnreadableFile: it is no such file.
        """
        try:
            with safe_open(path, framework="pt") as file:
                told = json.loads((file.metadata() or {})["kernel"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            terms = {k.removeprefix("terms/"): t for k, t in tensors.items() if k != "matrix"}
            return cls(tensors["matrix"], terms=terms, **told)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise UnreadableFile(
                f"{path} holds no kernel that lazyrich saved ({error})."
            ) from error
