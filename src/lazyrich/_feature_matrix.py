"""A matrix over the inputs of a layer, kept as a factor of it."""

from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ._tensor_file import write_tensors
from .errors import LazyrichError, UnreadableFile
from .statistics import top_directions


@dataclass(frozen=True, eq=False, repr=False)
class FeatureMatrix:
    """F'F, the AGOP or the NFM of a layer, in float64.

    Attributes:
        kind: `agop` or `nfm`.
        layer: whose inputs the matrix is over.
        factor: F. Of patches of a convolution the columns are channels, then places, as in
            torch.nn.Unfold.
        note: how it was estimated.
    """

    kind: str
    layer: str
    factor: Float[Tensor, "m d"]
    note: str = ""

    @property
    def matrix(self) -> Float[Tensor, "d d"]:
        """The whole, made when it is asked for."""
        return self.factor.T @ self.factor

    @property
    def diagonal(self) -> Float[Tensor, " d"]:
        """How much each coordinate matters, without the whole matrix."""
        return self.factor.square().sum(0)

    def top(self, k: int) -> tuple[Float[Tensor, " k"], Float[Tensor, "k d"]]:
        """The k largest eigenvalues, and their directions in rows; fewer where the rank is less.

        Signs are chosen so that the largest entry is positive.

        Raises:
            LazyrichError: k is no number above zero.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise LazyrichError(f"k={k!r}: one direction or more.")
        return top_directions(self.factor, k)

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file; an old one is replaced as a whole.

        Raises:
            LazyrichError: the file cannot be written.
        """
        told = {"kind": self.kind, "layer": self.layer, "note": self.note}
        return write_tensors(path, {"factor": self.factor}, told, "the matrix")

    def __repr__(self) -> str:
        (m, d), note = self.factor.shape, f", {self.note}" * bool(self.note)
        return f"FeatureMatrix({self.kind} of {self.layer!r}, {d} x {d} of rank <= {m}{note})"

    @classmethod
    def load(cls, path: str | Path) -> "FeatureMatrix":
        """What `save` has written.

        Raises:
            UnreadableFile: it is no such file.
        """
        try:
            with safe_open(path, framework="pt") as file:
                told = file.metadata() or {}
                return cls(told["kind"], told["layer"], file.get_tensor("factor"), told["note"])
        except (OSError, SafetensorError, KeyError) as error:
            raise UnreadableFile(
                f"{path} holds no matrix that lazyrich saved ({error})."
            ) from error
