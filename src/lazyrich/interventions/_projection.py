"""A layer projected on its leading principal components."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .._capture import Capture
from .._engine import Model, as_capture
from .._evaluation import Heading
from .._reader import Change
from .._records import Definition, Record, Records
from .._source import Source
from .._sums import LayerSums
from .._wanted import Wanted
from ..errors import LazyrichError
from ..statistics import Moments
from ._trials import DIMENSION, Layer, Trial

_EXPLAINED = Definition(
    "explained_variance",
    "The share of the layer's variance, where the components were fitted, that they carry.",
    r"$\sum_{i \le k} \lambda_i / \sum_i \lambda_i$",
    "",
    "neither",
    (0, 1),
)


def project(
    model: Model,
    fit_data: Iterable[Any],
    data: Iterable[Any],
    layer: str,
    *,
    components: Sequence[int] = (),
    variance: Sequence[float] = (),
    draws: int = 5,
    interval: int = 10,
    seed: int = 0,
    run: str = "run",
    progress: bool = True,
) -> Records:
    """What a network can tell from the leading principal components of one layer.

    Components are of the units, about their mean, which stays: h becomes m + V V' (h - m). Where a
    layer puts out maps or tokens, its units at every place are rows for the fit, and the projection
    acts at every place. The network is in evaluation mode, and comes back as it was.

    A network whose features have collapsed onto the means of k classes answers as before from
    k - 1 components, whatever share of the variance these carry.

    Reference: Yadav 2026, arXiv:2602.00130; Papyan, Han & Donoho 2020 for the k - 1.

    Args:
        model: any module, or a `Capture` that says how to read the data.
        fit_data: where the components come from; best other samples than those of `data`.
        data: a loader or list of (inputs, labels); labels are classes, or targets of a regression.
        layer: its address: a module's outputs, `name:input`, or `penultimate`.
        components: how many to keep; or
        variance: which shares of the variance of `fit_data` the fewest components must reach.
        draws: random subspaces of as many dimensions, whose mean score is the null level; 0 for
            none.
        interval: jackknife blocks for that of the effective dimension; 0 for none.
        seed: of the subspaces, and of all that the model or the data draw.
        run: name for the records.

    Returns:
        As `perturb`, and the variance explained; `index` is the number of components.

    Raises:
        LazyrichError: nothing that can be scored or changed, or more components than the layer
            has; the message says what to do.
    """
    if not (components or variance):
        raise LazyrichError(
            "say components=[...], how many to keep, or variance=[...], shares to reach."
        )
    if draws < 0:
        raise LazyrichError(f"draws={draws}: 0 for no null level, or more.")
    capture = as_capture(model, None, None)
    moments = _fitted(capture.only([layer], "tokens"), Source(fit_data, seed, progress), layer)
    counts = [_checked(k, moments) for k in components] + [_reaching(s, moments) for s in variance]
    told = ["leading components"] * len(components)
    told += [f"components for {share:g} of the variance" for share in variance]
    trials = [
        Trial(words, [_onto(moments.axes[:, :k], moments.mean)], k)
        for words, k in zip(told, counts, strict=True)
    ]
    generator = torch.Generator().manual_seed(seed)
    random = {k: Trial("", _at_random(moments, k, draws, generator), k) for k in set(counts)}
    wanted = Wanted(DIMENSION, interval, None, None, seed)
    place = Layer(capture, layer, Source(data, seed, progress), wanted)
    plain = Trial("as it is", [])
    cautions = place.run(plain, [*trials, *(t for t in random.values() if t.changes)])
    heading = Heading(run, capture.view, seed)
    records = place.records(plain, cautions, heading)
    for trial, k in zip(trials, counts, strict=True):
        null = {name: score.value for name, score in random[k].scores.items()}
        rows = place.records(trial, cautions, heading)
        explained = float(moments.eigenvalues[:k].sum() / moments.eigenvalues.sum())
        share = Record(
            run,
            0,
            rows[0].layer,
            capture.view,
            "explained_variance",
            k,
            trial.estimator,
            explained,
            n=int(moments.n),
            d=len(moments.mean),
            dtype="float64",
            seed=seed,
        )
        with_null = [replace(r, null=null.get(r.measure)) for r in rows]
        records += Records([*with_null, share], [*rows.definitions.values(), _EXPLAINED])
    return records


def _fitted(capture: Capture, data: Source, layer: str) -> Moments:
    """Mean and covariance of a layer's units, over all places."""
    sums = LayerSums([Moments], 1, torch.float64, rotate=False)
    for layers in capture.batches(data.items(), seed=data.seed):
        if len(layers) != 1:
            raise LazyrichError(f"layer={layer!r} names {', '.join(layers)}: one is needed.")
        sums.add(*layers.values())
    found: Moments = sums.whole(sums.blocks())[Moments]
    return found


def _checked(k: int, moments: Moments) -> int:
    rank = len(moments.resolved(moments.eigenvalues, int(moments.n) - 1))
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k <= rank:
        raise LazyrichError(
            f"components={k!r}: whole numbers up to {rank} are needed, the rank of the layer on "
            f"the {int(moments.n)} rows it was fitted on."
        )
    return k


def _reaching(share: float, moments: Moments) -> int:
    """The fewest components that carry a share of the variance."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise LazyrichError(f"variance={share!r}: shares above 0, up to 1, are needed.")
    kept = moments.resolved(moments.eigenvalues, int(moments.n) - 1)
    carried = kept.cumsum(0) / kept.sum()
    return min(int((carried < share - 1e-12).sum()) + 1, len(kept))


def _at_random(moments: Moments, k: int, draws: int, generator: torch.Generator) -> list[Change]:
    """Random subspaces of k dimensions."""
    d = len(moments.mean)
    frames = (torch.randn(d, k, generator=generator, dtype=torch.float64) for _ in range(draws))
    return [_onto(torch.linalg.qr(frame)[0], moments.mean) for frame in frames]


def _onto(axes: Float[Tensor, "d k"], mean: Float[Tensor, " d"]) -> Change:
    """Projection on the span of orthonormal columns, through the mean."""

    def change(x: Tensor, axis: int) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        v, m = axes.to(x.device, wide), mean.to(x.device, wide)
        rows = x.movedim(axis, -1).to(wide)
        return (((rows - m) @ v) @ v.T + m).to(x.dtype).movedim(-1, axis)

    return change
