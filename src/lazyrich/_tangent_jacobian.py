"""Gradients of single samples for parameters that no module shows, whole, by torch.func."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vjp, vmap

from ._inputs import Inputs
from ._network import Network
from .errors import LazyrichError

VMAPPED, LOOPED = "jacobian", "jacobian, sample by sample"


def jacobian(
    network: Network,
    names: Sequence[str],
    inputs: Inputs,
    seeds: Float[Tensor, "r c"],
    at_once: int,
) -> tuple[dict[str, Float[Tensor, "n r p"]], str]:
    """Of some mixtures of the outputs with respect to some parameters, and how it was computed.

    All samples of a part at once where torch.func can do that with the model, and one after the
    other where it cannot.

    Args:
        at_once: samples in a part.
    """
    n = inputs.samples(network.axis)
    found = {
        name: seeds.new_empty(n, len(seeds), network.parameters[name].numel()) for name in names
    }
    engine = VMAPPED
    start = 0
    while start < n:
        part = network.some(inputs, start, min(start + at_once, n))
        if engine == VMAPPED:
            try:
                made = _vmapped(network, names, part, seeds)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # what vmap cannot trace, in many words; others come back below
                engine = LOOPED
                continue
        else:
            made = _looped(network, names, part, seeds)
        for name in names:
            rows = made[name].flatten(2)
            found[name][start : start + len(rows)] = rows
        start += at_once
    return found, engine


def _vmapped(
    network: Network, names: Sequence[str], inputs: Inputs, seeds: Float[Tensor, "r c"]
) -> dict[str, Float[Tensor, "n r *p"]]:
    n, axis = inputs.samples(network.axis), network.axis
    fixed = {k: network.parameters[k].detach() for k in names}
    inputs = Inputs(inputs.args, inputs.kwargs)
    of_samples = [t for t in inputs.tensors() if t.ndim > axis and t.shape[axis] == n]
    places = {id(t): place for place, t in enumerate(of_samples)}

    def of_one(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        def put(tensor: Tensor) -> Tensor:
            place = places.get(id(tensor))
            return tensor if place is None else tensors[place].unsqueeze(axis)

        one = inputs.of_tensors(put)

        def mixed(parameters: dict[str, Tensor]) -> Tensor:
            return seeds @ network.at(parameters, one)[0]

        back: Callable[..., Any] = vjp(mixed, fixed)[1]
        (rows,) = vmap(back)(torch.eye(len(seeds), dtype=seeds.dtype, device=seeds.device))
        return rows  # type: ignore[no-any-return]

    with warnings.catch_warnings(), network.same_draws():
        warnings.filterwarnings("ignore", "There is a performance drop")  # it says so and goes on
        return vmap(of_one, in_dims=axis)(of_samples)


def _looped(
    network: Network, names: Sequence[str], inputs: Inputs, seeds: Float[Tensor, "r c"]
) -> dict[str, Float[Tensor, "n r *p"]]:
    parameters = [network.parameters[name] for name in names]
    samples = [list(_rows(network, parameters, one, seeds)) for one in _each(network, inputs)]
    return {
        name: torch.stack([torch.stack([row[place] for row in rows]) for rows in samples])
        for place, name in enumerate(names)
    }


def _rows(
    network: Network, parameters: list[torch.nn.Parameter], one: Inputs, seeds: Tensor
) -> Iterator[tuple[Tensor, ...]]:
    try:
        outputs = network(one)
    except Exception as error:
        raise LazyrichError(
            f"the model does not run on a sample by itself ({error}): outputs that depend on other "
            "samples have no kernel of single samples. sketch=... serves them."
        ) from error
    for seed in seeds:
        if outputs.requires_grad:
            yield torch.autograd.grad(
                outputs,
                parameters,
                seed[None],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
        else:
            yield tuple(torch.zeros_like(p) for p in parameters)


def _each(network: Network, inputs: Inputs) -> Iterator[Inputs]:
    for place in range(inputs.samples(network.axis)):
        yield network.some(inputs, place, place + 1)
