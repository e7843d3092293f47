"""The Neural Feature Ansatz: do the weights of a layer say what the network attends to?"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from ..errors import LazyrichError, Undefined
from ..statistics import LinearMap, top_directions
from ._published import Curve, Estimate, Invariance, published

_SOURCE = "Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639"
_INVARIANT: frozenset[Invariance] = frozenset({"scale", "order"})
_POWERS = 6
_TRIVIAL = "the last linear map: NFM and AGOP are the same whatever was learned"
Similarity = Literal["pearson", "cosine"]
OF_WEIGHTS = Literal["final", "change"]


@published(
    _SOURCE, bounds=(-1, 1), richer="high", invariant={"scale", "order"}, estimator="plug-in"
)
def nfa_correlation(
    layer: LinearMap,
    *,
    power: float = 0.5,
    similarity: Similarity = "pearson",
    weights: OF_WEIGHTS = "final",
    center: bool = False,
    off_diagonal: bool = False,
) -> Estimate:
    r"""Agreement of the neural feature matrix with a power of the average gradient outer product.

    $\rho(W^\top W, (\tfrac1n \sum_x \sum_c \nabla_h f_c \nabla_h f_c^\top)^s)$

    h is what the layer multiplies by W; its rows stand free of each other, be they samples, tokens
    or patches under a kernel. $\rho$ is Pearson's correlation of the entries of both matrices, or
    the cosine. The null level is its mean where the coordinates of one are shuffled, exactly:
    matrices that are nothing but diagonal agree well enough. At the last linear map both are the
    same by definition, so that 1 says nothing there.

    Args:
        power: s. 1/2 in the published figures, 1 in the preprint; balanced deep linear networks
            have 1 / (L - l + 1) in layer l of L.
        similarity: `pearson` or `cosine`.
        weights: `final` for W, `change` for what training has added to it.
        center: whether the mean gradient of each output is taken off.
        off_diagonal: leave out the diagonals.
    """
    nfm = _Entries.of(layer.weights(weights == "change"))
    agop = _Entries.of(layer.factor(power, center))
    halves = layer.halves() if layer.probes and power == 1 and not center else None
    told = [_TRIVIAL] * layer.trivial + [_biased(layer)] * bool(layer.probes and halves is None)
    found = _agreement(nfm, agop, similarity, off_diagonal, halves)
    return Estimate(found[0], "; ".join(told), caution=bool(told), null=found[1])


@published(
    _SOURCE, bounds=(-1, 1), richer="high", invariant={"scale", "order"}, estimator="plug-in"
)
def nfa_power_scan(layer: LinearMap) -> Curve:
    r"""Pearson's correlation of the NFM with the AGOP to the power of 1, 1/2, 1/3 and so on.

    $k \mapsto \rho(W^\top W, \mathrm{AGOP}^{1/k})$

    Which power fits depends on how many layers come after: none is right for all layers.
    """
    if layer.probes:
        raise Undefined(
            "random mixtures of outputs lower most of these; nfa_correlation with a power says so"
        )
    nfm = _Entries.of(layer.weight)
    each = range(1, _POWERS + 1)
    return {
        k: _agreement(nfm, _Entries.of(layer.factor(1 / k)), "pearson", False, None)[0]
        for k in each
    }


@published(_SOURCE, bounds=(-1, 1), richer="low", invariant=_INVARIANT)
def initial_nfm_correlation(layer: LinearMap) -> Estimate:
    r"""Pearson's correlation of the neural feature matrix with what it was before training.

    $\rho(W^\top W, W_0^\top W_0)$

    The baseline of `nfa_correlation`: near 1, the weights say what the initialization said.
    """
    if layer.initial is None:
        raise Undefined("the weights at the start of training are not known: pass initial=...")
    pair = _Entries.of(layer.weight), _Entries.of(layer.initial)
    found, null = _agreement(*pair, "pearson", False, None)
    return Estimate(found, null=null)


@published(_SOURCE, bounds=(0, 1), invariant=_INVARIANT)
def agop_diagonal(layer: LinearMap) -> Curve:
    r"""How much each input of a layer matters to the outputs: its share of the AGOP's trace.

    $j \mapsto \mathrm{AGOP}_{jj} / \operatorname{tr} \mathrm{AGOP}$
    """
    return _shares(layer.agop_diagonal)


@published(_SOURCE, bounds=(0, 1), invariant=_INVARIANT)
def nfm_diagonal(layer: LinearMap) -> Curve:
    r"""How much weight a layer gives to each of its inputs: its share of the NFM's trace.

    $j \mapsto (W^\top W)_{jj} / \lVert W \rVert_F^2$
    """
    return _shares(layer.weight.square().sum(0))


@published(_SOURCE, bounds=(-1, 1), invariant=_INVARIANT)
def agop_direction(layer: LinearMap, *, rank: int = 1) -> Curve:
    r"""What the outputs react to most: entries of an eigenvector of the AGOP.

    $j \mapsto (v_k)_j, \quad \mathrm{AGOP}\, v_k = \lambda_k v_k$

    Its sign means nothing; the largest entry is made positive.

    Args:
        rank: k, 1 for the largest eigenvalue.
    """
    return _direction(layer.factor(1), rank)


@published(_SOURCE, bounds=(-1, 1), invariant=_INVARIANT)
def nfm_direction(layer: LinearMap, *, rank: int = 1) -> Curve:
    r"""What a layer weighs most: entries of an eigenvector of the neural feature matrix.

    $j \mapsto (v_k)_j, \quad W^\top W v_k = \lambda_k v_k$

    Its sign means nothing; the largest entry is made positive.

    Args:
        rank: k, 1 for the largest eigenvalue.
    """
    return _direction(layer.weight, rank)


@dataclass(frozen=True)
class _Entries:
    """A matrix F'F of d x d by its factor: sums over entries without the entries."""

    factor: Float[Tensor, "m d"]
    diagonal: Float[Tensor, " d"]
    total: float
    squares: float

    @classmethod
    def of(cls, factor: Float[Tensor, "m d"]) -> "_Entries":
        small = factor @ factor.T if len(factor) <= factor.shape[1] else factor.T @ factor
        total = float(factor.sum(1).square().sum())
        return cls(factor, factor.square().sum(0), total, float(small.square().sum()))


def _agreement(
    a: _Entries,
    b: _Entries,
    similarity: Similarity,
    off_diagonal: bool,
    halves: list[Float[Tensor, "m d"]] | None,
) -> tuple[float, float]:
    """The similarity, and its mean over shuffled coordinates of one of the two."""
    d = len(a.diagonal)
    square = b.squares if halves is None else float((halves[0] @ halves[1].T).square().sum())
    both = float((a.factor @ b.factor.T).square().sum())
    diagonals = float(a.diagonal @ b.diagonal)
    traces = float(a.diagonal.sum()), float(b.diagonal.sum())
    outside = a.total - traces[0], b.total - traces[1]
    shuffled = outside[0] * outside[1] / max(d * (d - 1), 1)
    sums, count, squares = (a.total, b.total), d * d, (a.squares, square)
    if off_diagonal:
        each = [float(e.diagonal.square().sum()) for e in (a, b)]
        if halves is not None:
            first, second = (half.square().sum(0) for half in halves)
            each[1] = float(first @ second)
        both, sums, count = both - diagonals, outside, max(d * (d - 1), 1)
        squares = (a.squares - each[0], square - each[1])
    else:
        shuffled += traces[0] * traces[1] / d
    less = sums[0] * sums[1] / count if similarity == "pearson" else 0.0
    means = [s * s / count if similarity == "pearson" else 0.0 for s in sums]
    spread = [q - m for q, m in zip(squares, means, strict=True)]
    if any(s <= 1e-14 * q for s, q in zip(spread, squares, strict=True)):
        raise Undefined("one of the two matrices has no entries that differ")
    size = sqrt(spread[0] * spread[1])
    return _within((both - less) / size), _within((shuffled - less) / size)


def _within(value: float) -> float:
    return max(-1.0, min(1.0, value))


def _shares(diagonal: Float[Tensor, " d"]) -> Curve:
    total = float(diagonal.sum())
    if not total > 0:
        raise Undefined("all weights are zero")
    return dict(enumerate((diagonal / total).tolist(), 1))


def _direction(factor: Float[Tensor, "m d"], rank: int) -> Curve:
    if rank < 1:
        raise LazyrichError(f"rank={rank}: 1 is the largest eigenvalue.")
    sizes, directions = top_directions(factor, rank)
    if len(sizes) < rank or not float(sizes[-1]) > 1e-12 * float(sizes[0]):
        raise Undefined(f"the matrix has less than {rank} eigenvalues above zero")
    return dict(enumerate(directions[-1].tolist(), 1))


def _biased(layer: LinearMap) -> str:
    return (
        f"{layer.probes} random mixtures stand for all outputs, which lowers this; "
        "power=1 without centering is free of that"
    )
