"""The empirical neural tangent kernel of a model."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from ._engine import Model, as_capture
from ._kernel import Kernel, Kind
from ._network import Network, Out
from ._ranks import several
from ._tangent_blocks import in_blocks
from ._tangent_gram import Pairs
from ._tangent_plan import Plan, Seen, Task, look
from ._tangent_sketch import sketched
from ._tangent_sum import Sides, TangentSum
from .errors import LazyrichError, UnknownName

By = Literal["layer", "parameter"]
_PAIRS: Mapping[Kind, Pairs] = {"full": "all", "class": "each"}


def ntk(
    model: Model,
    x: Any,
    other: Any = None,
    *,
    kind: Kind = "trace",
    by: By | None = None,
    logit: int | None = None,
    out: Out | None = None,
    weights: Mapping[str, float] | None = None,
    memory: float | None = None,
    certify: bool = True,
    sketch: int | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Kernel:
    r"""Empirical neural tangent kernel: products of the gradients of outputs over parameters.

    $K_{(i,c),(j,d)} = \sum_p w_p \langle \partial_p f_c(x_i), \partial_p f_d(x_j) \rangle$ over the
    parameters p that require gradients, exact, in evaluation mode. Gradients of single samples are
    products of what a module sees and of gradients at its outputs, so that most of them are never
    made; torch.func serves parameters that no module shows. The result is checked against ordinary
    backward passes, parameter by parameter, and says how each part was computed.

    Reference: Jacot, Gabriel & Hongler 2018, arXiv:1806.07572; sums of logits as in Mohamadi, Bae
    & Sutherland 2023, arXiv:2206.12543.

    Args:
        model: any module, or a `Capture` that says how to read it. It comes back as it was.
        x: one batch, as an item of a loader would be: inputs, (inputs, labels) or a mapping.
        other: a second batch, for the kernel of the first with it; None for that of x with itself.
        kind: `trace`, the sum over outputs c = d; `full`, all pairs; `class`, one kernel for each
            c = d; `sum_logits`, that of the sum of outputs divided by the root of their number;
            `single`, that of one output.
        by: what to keep the terms of, `layer` or `parameter`; None for the sum alone.
        logit: which output, for `single`.
        out: takes the outputs out of what the model returns; None for logits or the first tensor.
        weights: w by name of a parameter or by a pattern of names, 1 where none fits: learning
            rates by layer, say. A name comes before a pattern, and a pattern before later ones.
        memory: in GiB; None for half of what is free.
        certify: whether to check the result. It costs a backward pass through all parameters for
            the full kernel, and for others up to three, which check the part of as many outputs.
        sketch: random directions in place of all parameters; for models where nothing else fits.
        seed: of the check, of the sketch, and of all that the model draws.
        dtype: to compute in, on a copy of the model; None for the model's own, or float32 where
            that is shorter. The kernel is float64.
        device: to compute on, on a copy of the model; None for where the model is.

    Raises:
        MemoryRefused: it would not fit; the message says what does.
        LazyrichError: an option that does not fit, or outputs that depend on other samples.
        ShapeError: outputs whose samples cannot be told.
        UnknownName: a kind that does not exist, or a pattern that fits no parameter.
    """
    if several():
        raise LazyrichError("kernels are computed in one process: call this in one, on all data.")
    capture = as_capture(model, None, None)
    _check(kind, by, logit, sketch)
    network = Network(
        capture.model, axis=capture.samples_axis, out=out, dtype=dtype, device=device, seed=seed
    )
    by_name = _by_name(network.parameters, weights or {})
    with network:
        left = network.placed(capture.inputs(x))
        right = None if other is None else network.placed(capture.inputs(other))
        n = left.samples(network.axis)
        m = n if right is None else right.samples(network.axis)
        seen = look(network, left if right is None or n >= m else right)
        seeds = _seeds(kind, seen.outputs, logit).to(network.device, network.dtype)
        pairs = _PAIRS.get(kind, "sum")
        told = str(network.dtype).removeprefix("torch.")
        if sketch is not None:
            found = sketched(network, (left, right), seeds, pairs, by_name, sketch, seed)
            engines = {name: "sketch" for name, w in by_name.items() if w}
            return Kernel(
                found[0], kind, n, m, seen.outputs, {}, engines, told, sketch_error=found[1]
            )
        task = _task(network, seen, (n, None if right is None else m), by_name, pairs, seeds)
        kept = {name: _kept(name, by) for name in by_name}
        count = 1 + len({name for name in kept.values() if name is not None})
        task = replace(task, kept=count, certify=certify)
        plan = Plan.of(seen, task, memory, network.dtype, network.device)

        def block(sides: Sides) -> TangentSum:
            part = TangentSum(network, sides, seeds, pairs, by_name, kept)
            part.add(seen, task, plan, seed)
            return part

        total = in_blocks(network, (left, right), pairs, len(seeds), plan.block, block)
    return Kernel(
        total.matrix,
        kind,
        n,
        m,
        seen.outputs,
        total.terms,
        total.engines,
        told,
        total.certificate,
    )


def _task(
    network: Network,
    seen: Seen,
    sizes: tuple[int, int | None],
    weights: Mapping[str, float],
    pairs: Pairs,
    seeds: Tensor,
) -> Task:
    numbers = {name: network.parameters[name].numel() for name, w in weights.items() if w}
    shown = {name for unit in seen.units for name in unit.parameters} & numbers.keys()
    hidden = {name: k for name, k in numbers.items() if name not in shown}
    return Task(*sizes, pairs, len(seeds), 1, frozenset(shown), hidden, True)


def _seeds(kind: Kind, outputs: int, logit: int | None) -> Float[Tensor, "r c"]:
    """The mixtures of outputs that the kernel is of."""
    if kind == "sum_logits":
        return torch.full((1, outputs), outputs**-0.5, dtype=torch.double)
    every = torch.eye(outputs, dtype=torch.double)
    if logit is None:
        return every
    if not -outputs <= logit < outputs:
        raise LazyrichError(f"logit={logit}: the model has {outputs} outputs, counted from 0.")
    return every[logit][None]


def _kept(parameter: str, by: By | None) -> str | None:
    """Under which name the part of a parameter is kept; a parametrized one's is its layer's."""
    if by == "layer":
        layer, _, parametrized = parameter.partition(".parametrizations.")
        return layer if parametrized else layer.rpartition(".")[0]
    return parameter if by == "parameter" else None


def _by_name(parameters: Iterable[str], weights: Mapping[str, float]) -> dict[str, float]:
    """The weight of each parameter.

    Raises:
        UnknownName: a pattern that fits none.
        LazyrichError: a weight below zero.
    """
    names = list(parameters)
    for pattern, weight in weights.items():
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UnknownName("parameter", pattern, names)
        if not 0 <= weight < float("inf"):
            raise LazyrichError(f"weights: {pattern!r} has {weight}, where 0 or more is needed.")

    def of(name: str) -> float:
        fits = (w for pattern, w in weights.items() if fnmatchcase(name, pattern))
        return float(weights[name] if name in weights else next(fits, 1.0))

    return {name: of(name) for name in names}


def _check(kind: str, by: str | None, logit: int | None, sketch: int | None) -> None:
    if kind not in get_args(Kind):
        raise UnknownName("kind", kind, get_args(Kind))
    if by is not None and by not in get_args(By):
        raise UnknownName("by", by, get_args(By))
    if (kind == "single") != (logit is not None):
        raise LazyrichError("logit=... says which output kind='single' is of, and goes with it.")
    if sketch is not None and (not isinstance(sketch, int) or sketch < 2):
        raise LazyrichError(f"sketch={sketch}: two random directions or more.")
    if sketch is not None and by is not None:
        raise LazyrichError("a sketch is of all parameters together: leave out by=.")
