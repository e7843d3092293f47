"""The empirical neural tangent kernel of a model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._engine import Model, as_capture
from ._kernel import Kernel, Kind
from ._network import Network, Out
from ._ranks import several
from ._tangent_blocks import in_blocks
from ._tangent_gram import Pairs
from ._tangent_names import layer_of
from ._tangent_options import By, check_options, one_batch, weights_by_name
from ._tangent_plan import Plan, Seen, Task, look
from ._tangent_sketch import sketched
from ._tangent_sum import Sides, TangentSum
from .errors import LazyrichError, NonFinite

_PAIRS: Mapping[Kind, Pairs] = {"full": "all", "class": "each"}


@torch.inference_mode(False)
@torch.enable_grad()
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
        x: one batch, not a loader, but as an item of it: inputs, (inputs, labels) or a mapping.
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
        dtype: float32 or float64, to compute in, on a copy of the model; None for the model's own,
            or float32 where that is shorter. The kernel is float64.
        device: to compute on, on a copy of the model; None for where the model is.

    Raises:
        MemoryRefused: it would not fit; the message says what does.
        LazyrichError: an option that does not fit, outputs that depend on other samples or on no
            parameter, or another precision within the model.
        NonFinite: NaN or infinity in inputs, model or kernel.
        EmptyData: a batch without samples.
        ShapeError: outputs whose samples cannot be told.
        UnknownName: a kind that does not exist, or a pattern that fits no parameter.
    """
    if several():
        raise LazyrichError("kernels are computed in one process: call this in one, on all data.")
    capture = as_capture(model, None, None)
    check_options(kind, by, logit, sketch, memory, seed)
    seed = int(seed)
    network = Network(
        capture.model, axis=capture.samples_axis, out=out, dtype=dtype, device=device, seed=seed
    )
    by_name = weights_by_name(network.parameters, weights)
    with network:
        left = network.placed(one_batch(capture, "x", x))
        right = None if other is None else network.placed(one_batch(capture, "other", other))
        n = left.samples(network.axis)
        m = n if right is None else right.samples(network.axis)
        seen = look(network, left if right is None or n >= m else right)
        seeds = _seeds(kind, seen.outputs, logit).to(network.device, network.dtype)
        pairs = _PAIRS.get(kind, "sum")
        told = str(network.dtype).removeprefix("torch.")
        if sketch is not None:
            matrix, error = sketched(network, (left, right), seeds, pairs, by_name, sketch, seed)
            engines = {name: "sketch" for name, w in by_name.items() if w}
            kernel = Kernel(matrix, kind, n, m, seen.outputs, {}, engines, told, None, error)
            return _finite(replace(kernel, crossed=right is not None))
        task = _task(network, seen, (n, None if right is None else m), by_name, pairs, seeds)
        kept = {name: _kept(name, by, capture.model) for name in by_name}
        count = 1 + len({name for name in kept.values() if name is not None})
        task = replace(task, kept=count, certify=certify)
        plan = Plan.of(seen, task, memory, network.dtype, network.device)

        def block(sides: Sides) -> TangentSum:
            part = TangentSum(network, sides, seeds, pairs, by_name, kept)
            part.add(seen, task, plan, seed)
            return part

        total = in_blocks(network, (left, right), pairs, len(seeds), plan.block, block)
    matrix, terms, engines, certificate = total
    kernel = Kernel(matrix, kind, n, m, seen.outputs, terms, engines, told, certificate)
    return _finite(replace(kernel, crossed=right is not None))


def _finite(kernel: Kernel) -> Kernel:
    if not kernel.matrix.isfinite().all():
        raise NonFinite("the kernel holds NaN or infinity: look at inputs and parameters.")
    return kernel


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


def _kept(parameter: str, by: By | None, model: nn.Module) -> str | None:
    """Under which name the part of a parameter is kept."""
    if by == "layer":
        return layer_of(parameter, model)
    return parameter if by == "parameter" else None
