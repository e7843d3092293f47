"""Data through one or more models, and what all their layers add up to."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor, distributed

from ._cache import Cache
from ._capture import Capture
from ._ranks import gathered, several
from ._source import Source
from ._sums import LayerSums, read
from ._wanted import Wanted
from .errors import EmptyData, LazyrichError, NonFinite, ShapeError
from .measures import Measure, SecondPass
from .statistics import Batch, Statistic


@dataclass
class Collection:
    """Of one model: sums by layer, layers that could not be read or may mislead, and the weights
    that read a layer.

    In a second reading of the data, `first` holds what the first has found of each layer, for the
    measures that need it.
    """

    sums: dict[str, LayerSums] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    cautions: dict[str, str] = field(default_factory=dict)
    heads: dict[str, Tensor] = field(default_factory=dict)
    first: dict[str, list[tuple[SecondPass, Statistic]]] = field(default_factory=dict)

    def add(self, layers: dict[str, Batch], wanted: Wanted, number: int) -> None:
        """Take in one batch of all layers.

        Raises:
            NonFinite: with the layer and the number of the batch.
        """
        if self.first:
            layers = {n: _beside(layers[n], found) for n, found in self.first.items()}
        if number == 0:
            self.sums = wanted.prepare(layers, self.heads)
        for name, layer in self.sums.items():
            try:
                layer.add(layers[name])
            except (NonFinite, ShapeError) as error:
                raise type(error)(
                    f"layer {name!r}, batch {number}: {error}. Mend the model or data, or leave "
                    "out the layer (layers) or the measures that need this (measures)."
                ) from error

    def again(self, wanted: Wanted) -> "Collection":
        """An empty one for a second reading, of the layers where that is wanted."""
        first = {}
        for name, layer in self.sums.items():
            if twice := wanted.read_twice(name, layer.kinds):
                found = layer.whole(layer.blocks())
                first[name] = [(beside, read(kind, found)) for beside, kind in twice.items()]
        return Collection(first=first)

    def beside(self, second: "Collection") -> None:
        """Take in the sums of the second reading."""
        for name, layer in second.sums.items():
            self.sums[name].beside(layer)


def collect(
    captures: Mapping[str, Capture],
    wanted: Wanted,
    data: Iterable[Any],
    seed: int,
    *,
    progress: bool = False,
) -> dict[str, Collection]:
    """Every batch through every model, summed up over all processes.

    One pass over the data, and a second one where a measure needs what the first has found.

    Args:
        progress: a bar on stderr, where that is a terminal.

    Raises:
        LazyrichError: on every process, if one of them fails.
    """
    source = Source(data, seed, progress)
    if wanted.second:
        gathered(lambda: _check_repeats(source, wanted.second))
    found = _everywhere(captures, wanted, source, {name: Collection() for name in captures})
    seconds = {name: each.again(wanted) for name, each in found.items()}
    seconds = {name: each for name, each in seconds.items() if each.first}
    if seconds:
        fewer = {name: captures[name].only(list(each.first)) for name, each in seconds.items()}
        seconds = _everywhere(fewer, wanted.again(), source, seconds)
    for name, second in seconds.items():
        found[name].beside(second)
    return found


def _beside(batch: Batch, found: list[tuple[SecondPass, Statistic]]) -> Batch:
    """The rows with what measures need to know of them from a first reading."""
    return reduce(lambda rows, each: each[0](rows, each[1]), found, batch)


def _everywhere(
    captures: Mapping[str, Capture],
    wanted: Wanted,
    source: Source,
    local: dict[str, Collection],
) -> dict[str, Collection]:
    """The collections, filled by one pass, of all processes together."""
    ids = gathered(lambda: _pass(captures, wanted, source, local))
    if several() and any(i is not None for i in ids):
        _withdraw(local, ids)
    everywhere = gathered(lambda: local)
    return {name: _merged([part[name] for part in everywhere]) for name in captures}


def _check_repeats(data: Source, measures: Sequence[Measure]) -> None:
    if data.once:
        raise LazyrichError(
            f"{', '.join(m.name for m in measures)}: reads the data twice, and this can be read "
            "only once: give a loader or a list of batches, not a generator."
        )


def _pass(
    captures: Mapping[str, Capture],
    wanted: Wanted,
    data: Source,
    local: dict[str, Collection],
) -> Tensor | None:
    """Fill the collections; the ids of the samples seen, if the data brings them."""
    try:
        if any(capture.cache for capture in captures.values()):
            _read_kept(captures, wanted, data, local)
            return None
        return _read(captures, wanted, data, local)
    except EmptyData:
        if several():  # another process may have some
            return None
        raise


def _read(
    captures: Mapping[str, Capture],
    wanted: Wanted,
    data: Source,
    local: dict[str, Collection],
) -> Tensor | None:
    """Every batch through every model, one after the other: they see the same."""
    seen: list[Tensor] = []
    with ExitStack() as stack:
        sessions = {n: stack.enter_context(c.session(data.seed)) for n, c in captures.items()}
        for number, item in enumerate(data.items()):
            for name, capture in captures.items():
                inputs = capture.inputs(item)
                layers = sessions[name].read(inputs)
                local[name].heads = sessions[name].heads
                local[name].add(layers, wanted, number)
            if inputs.ids is not None:
                seen.append(inputs.ids.cpu())
    for name, session in sessions.items():
        local[name].problems, local[name].cautions = session.problems, session.cautions
    return torch.unique(torch.cat(seen)) if seen else None


def _read_kept(
    captures: Mapping[str, Capture],
    wanted: Wanted,
    data: Source,
    local: dict[str, Collection],
) -> None:
    """Model by model, from the disk where the activations are there."""
    for name, capture in captures.items():
        cache = Cache(capture, data)
        for number, layers in enumerate(cache.batches()):
            local[name].heads = cache.heads
            local[name].add(layers, wanted, number)
        local[name].problems, local[name].cautions = cache.problems, cache.cautions


def _withdraw(local: dict[str, Collection], ids: list[Tensor | None]) -> None:
    """Leave each sample to the first of the processes that saw it."""
    rank = distributed.get_rank()
    before = [i for i in ids[:rank] if i is not None]
    mine = ids[rank]
    if mine is None or not before:
        return
    repeated = mine[torch.isin(mine, torch.cat(before))]
    for collection in local.values():
        for layer in collection.sums.values():
            layer.withdraw(repeated)


def _merged(parts: list[Collection]) -> Collection:
    """All processes' sums, in the order of ranks; one that saw no data adds nothing."""
    whole, *others = [part for part in parts if part.sums] or parts
    for other in others:
        for name, layer in other.sums.items():
            layer.finish()
            whole.sums[name].merge(layer)
    return whole
