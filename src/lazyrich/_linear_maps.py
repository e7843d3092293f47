"""Which parts of a model multiply what they are given by a matrix, and where that matrix is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

NO_MATRIX = "no linear, convolutional or attention layer: no one matrix acts on its inputs"
_REASONS: Mapping[type[nn.Module], str] = {
    nn.modules.batchnorm._NormBase: "normalization: no matrix acts on its inputs",
    nn.LayerNorm: "normalization: no matrix acts on its inputs",
    nn.RMSNorm: "normalization: no matrix acts on its inputs",
    nn.GroupNorm: "normalization: no matrix acts on its inputs",
    nn.Embedding: "its inputs are one-hot: a matrix over the vocabulary would be its table again",
    nn.EmbeddingBag: "its inputs are counts of words: a matrix over the vocabulary says no more",
    nn.modules.conv._ConvTransposeNd: "a transposed convolution has no patches of its input",
}
_HEADED = {"query", "key", "value", "q_proj", "k_proj", "v_proj", "q_lin", "k_lin", "v_lin"}
_HEADED |= {"q", "k", "v", "to_q", "to_k", "to_v"}
_FUSED = {"c_attn", "qkv", "in_proj", "query_key_value"}
_COUNTS = ("num_attention_heads", "num_heads", "n_head", "n_heads", "heads")


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the weights of a module that make a linear map of their own.

    Attributes:
        name: the module's, and for a part of it what follows a colon: `attn:q.head0`.
        module: the module's name.
        parameter: name of the weights in the module.
        rows: the first of the matrix and the one after the last; None for all.
        channels: whether outputs come with channels second, as those of convolutions.
        transposed: whether weights are held as [d, w].
    """

    name: str
    module: str
    parameter: str = "weight"
    rows: tuple[int, int] | None = None
    channels: bool = False
    transposed: bool = False

    @property
    def place(self) -> str:
        """Name of the weights in the model."""
        return f"{self.module}.{self.parameter}"

    def held(self, model: nn.Module) -> Tensor:
        """The weights, or what a parametrization makes of them, as the forward pass uses them."""
        found: Any = model.get_submodule(self.module)
        for attribute in self.parameter.split("."):
            found = getattr(found, attribute)
        return found.detach()  # type: ignore[no-any-return]

    def weight(self, model: nn.Module) -> Float[Tensor, "w d"]:
        """The matrix in float64; what multiplies a patch of a convolution in one row."""
        held = self.held(model)
        matrix = held.T if self.transposed else held.flatten(1)
        return matrix[slice(*self.rows or (None,))].double()


def linear_maps(
    name: str, module: nn.Module, parent: nn.Module | None, *, split: bool
) -> list[Part]:
    """The linear maps of a module, in the order of their rows; none where it has none.

    Args:
        parent: the module that holds it, which knows the number of heads.
        split: whether projections of attention come head by head.
    """
    if isinstance(module, nn.MultiheadAttention):
        return list(_of_attention(name, module, split))
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return list(_of_recurrent(name, module))
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        return []
    if isinstance(module, nn.modules.conv._ConvNd):
        return [Part(name, name, channels=True)] if module.groups == 1 else []
    if not (isinstance(module, nn.Linear) or is_transposed(module)):
        return []
    whole = Part(name, name, transposed=is_transposed(module))
    return _by_head(whole, module, parent) if split else [whole]


def is_transposed(module: nn.Module) -> bool:
    """Whether it is the Conv1D of GPT-2: a Linear with weights [in, out]."""
    return type(module).__name__ == "Conv1D"


def why_none(module: nn.Module) -> str:
    """Why a module has no linear maps."""
    if isinstance(module, nn.modules.conv._ConvNd) and module.groups > 1:
        return "a grouped convolution: each group has a matrix of its own over a few channels"
    found = (told for kind, told in _REASONS.items() if isinstance(module, kind))
    return next(found, NO_MATRIX)


def _by_head(whole: Part, module: Any, parent: nn.Module | None) -> list[Part]:
    last = whole.name.rpartition(".")[2]
    counts = (getattr(parent, attribute, None) for attribute in _COUNTS)
    heads = next((c for c in counts if isinstance(c, int) and c > 1), 0)
    w = module.weight.shape[1 if whole.transposed else 0]
    if heads and last in _FUSED and w % (3 * heads) == 0:
        return [p for i, x in enumerate("qkv") for p in _heads(whole, x, i * w // 3, w // 3, heads)]
    shared = getattr(parent, "num_key_value_heads", None)
    if isinstance(shared, int) and last in ("k_proj", "v_proj"):
        heads = shared
    if heads and last in _HEADED and w % heads == 0:
        return _heads(whole, "", 0, w, heads)
    return [whole]


def _heads(whole: Part, letter: str, start: int, width: int, heads: int) -> list[Part]:
    size = width // heads
    dot = f"{letter}." if letter else ""
    return [
        Part(
            f"{whole.name}:{dot}head{h}",
            whole.module,
            whole.parameter,
            (start + h * size, start + (h + 1) * size),
            whole.channels,
            whole.transposed,
        )
        for h in range(heads)
    ]


def _of_attention(name: str, module: nn.MultiheadAttention, split: bool) -> Iterator[Part]:
    heads, e = (module.num_heads if split else 1), module.embed_dim
    for place, letter in enumerate("qkv"):
        packed = module.in_proj_weight is not None
        parameter = "in_proj_weight" if packed else f"{letter}_proj_weight"
        start = place * e if packed else 0
        found = _heads(Part(name, name, parameter), letter, start, e, heads)
        yield from found if split else [Part(f"{name}:{letter}", name, parameter, found[0].rows)]
    yield Part(f"{name}:out", name, "out_proj.weight")


def _of_recurrent(name: str, module: Any) -> Iterator[Part]:
    """`rnn:ih_l0` acts on the inputs of its first layer, `rnn:hh_l0` on what that said before."""
    sequence = isinstance(module, nn.RNNBase)
    directions = ("", "_reverse") if sequence and module.bidirectional else ("",)
    layers = range(module.num_layers if sequence else 1)
    for suffix in [f"_l{i}{d}" if sequence else "" for i in layers for d in directions]:
        kinds = ("ih", "hh", "hr") if getattr(module, "proj_size", 0) else ("ih", "hh")
        for kind in kinds:
            yield Part(f"{name}:{kind}{suffix}", name, f"weight_{kind}{suffix}")
