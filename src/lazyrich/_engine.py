"""Model and data in, records out: one forward pass, each statistic once, then the measures."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from ._arrays import Arrays
from ._capture import Capture
from ._evaluation import Heading, evaluate, failed, reads, records
from ._records import Records
from ._sums import LayerSums, check_memory, covering
from ._views import View
from .errors import LazyrichError, MissingInput, NonFinite, TooFewSamples, UnknownName
from .measures import CATALOGUE, Measure, Profile
from .statistics import Batch

log = logging.getLogger("lazyrich")
Chosen = Sequence[Measure | str] | Measure | str | None


def measure(
    model: nn.Module | Capture,
    data: Iterable[Any],
    measures: Chosen = None,
    *,
    layers: str | Sequence[str] | None = None,
    view: View | None = None,
    interval: int = 0,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    run: str = "run",
    memory_limit: float | None = None,
    progress: bool = True,
) -> Records:
    """Measure a model on data, in one forward pass.

    Args:
        model: any module, on the device where it is; or a `Capture` that says how to read it.
        data: yields inputs, (inputs, labels) or mappings; see `Capture` for others.
        measures: names, globs or measures of the catalogue; None for all that the data allows.
        layers: patterns of addresses, see `Capture`; None for every module without children, the
            penultimate features and the outputs.
        view: how maps and tokens become samples: `mean` (default), `flatten`, `tokens`, `last`.
        interval: blocks for a 95 % jackknife interval over samples; 0 for none, 10 is usual.
        dtype: precision of products; None for that of the activations, at least float32. Sums
            and eigenvalues are always float64.
        seed: of all that the model or the data draw from torch, numpy or random.
        run: a name for the records.
        memory_limit: GiB that the statistics may hold; None for half of what is free.
        progress: a bar on stderr, where that is a terminal.

    Returns:
        A record for each layer and measure. A layer that cannot be read is a row with the reason.

    Raises:
        LazyrichError: the input cannot be measured; the message says what to do.
    """
    if not isinstance(model, Capture):
        model = Capture(model, layers, view=view or "mean")
    elif layers is not None or view is not None:
        raise LazyrichError("a Capture says itself which layers and view: leave them out here.")
    wanted = _Wanted(measures, interval, dtype, memory_limit, seed)
    bar = tqdm(data, desc="measuring", unit="batch", disable=None if progress else True)
    with closing(model.batches(bar, seed=seed)) as batches:
        sums = wanted.collect(batches)
    heading = Heading(run, model.view, seed)
    failures = [
        failed(layer, m, reason, heading)
        for layer, reason in model.problems.items()
        for m in wanted.measures
        if m.layer is None and m.needs is not Profile
    ]
    return wanted.records(sums, heading) + Records(failures)


def measure_arrays(
    activations: Mapping[str, Any] | Any,
    measures: Chosen = None,
    *,
    labels: Any = None,
    outputs: Any = None,
    view: View | None = None,
    interval: int = 0,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    run: str = "run",
    device: torch.device | str | None = None,
    memory_limit: float | None = None,
) -> Records:
    """The same measures for activations that are arrays already: recordings, or saved features.

    Args:
        activations: (n samples, d units) by area or layer, in order; or one array.
        measures: names, globs or measures of the catalogue; None for all that the data allows.
        labels: n class labels, numbers or strings.
        outputs: (n, c) raw outputs of the model or decoder.
        view: needed for arrays of more than two axes, see `Capture`.
        interval: blocks for a 95 % jackknife interval over samples; 0 for none, 10 is usual.
        dtype: precision of products; None for that of the arrays, at least float32.
        seed: of measures that sample.
        run: a name for the records.
        device: where to compute; None for the CPU.
        memory_limit: GiB that the statistics may hold; None for half of what is free.

    Raises:
        LazyrichError: the input cannot be measured; the message says what to do.
    """
    wanted = _Wanted(measures, interval, dtype, memory_limit, seed)
    arrays = Arrays(activations, labels, outputs, view, device)
    widths = arrays.widths
    if all({"shift", "rotation"} <= m.invariant for m in wanted.needed):
        arrays.rotate_into_span()
    sums = wanted.collect(arrays.batches())
    for name, layer in sums.items():
        layer.d = widths[name]
    return wanted.records(sums, Heading(run, view or "", seed))


class _Wanted:
    """The measures asked for, and how to get from a stream of batches to their records."""

    def __init__(
        self,
        measures: Chosen,
        interval: int,
        dtype: torch.dtype | None,
        memory_limit: float | None,
        seed: int,
    ) -> None:
        if interval < 0 or interval == 1:
            raise LazyrichError(
                f"interval={interval}: the number of jackknife blocks is 0 for no interval, "
                "or 2 and more (10 is usual)."
            )
        if dtype not in (None, torch.float32, torch.float64):
            raise LazyrichError(f"dtype={dtype}: products are float32, float64 or None (as given).")
        self.explicit = measures is not None
        self.measures = [_seeded(m, seed) for m in _look_up(measures)]
        self._interval, self._dtype, self._limit = interval, dtype, memory_limit
        helpers = [CATALOGUE[m.argument] for m in self.measures if m.needs is Profile]
        names = {m.name for m in self.measures}
        self.needed = [*self.measures, *(h for h in helpers if h.name not in names)]

    def collect(self, stream: Iterable[dict[str, Batch]]) -> dict[str, LayerSums]:
        """Sum up the statistics that the measures need."""
        sums: dict[str, LayerSums] = {}
        for number, layers in enumerate(stream):
            if number == 0:
                sums = self._prepare(layers)
            for name in sums:
                try:
                    sums[name].add(layers[name])
                except NonFinite as error:
                    raise NonFinite(
                        f"layer {name!r}, batch {number}: {error}. "
                        "Mend the model or data, or leave the layer out with layers=..."
                    ) from error
        return sums

    def records(self, sums: dict[str, LayerSums], heading: Heading) -> Records:
        """Evaluate the measures on the sums."""
        for name, layer in sums.items():
            if layer.rows < 2 * self._interval:
                raise TooFewSamples(
                    f"interval={self._interval} needs {2 * self._interval} samples or more, and "
                    f"layer {name!r} has {layer.rows}. Ask for fewer blocks, or for none with 0."
                )
        found = records(evaluate(sums, self.needed), self.measures, heading)
        if not self.explicit:
            return found
        measured = found.unique("measure")
        absent = [m for m in self.measures if m.name not in measured]
        return found + Records(
            failed("", m, "found no layer, or no two layers, to be measured at", heading)
            for m in absent
        )

    def _prepare(self, layers: dict[str, Batch]) -> dict[str, LayerSums]:
        """Which statistics each layer gets, checked against the memory there is."""
        statistics = [m for m in self.needed if m.needs is not Profile]
        kinds = {
            name: {
                m.needs
                for m in statistics
                if m.layer in (None, name)
                and all(getattr(batch, field) is not None for field in m.needs.requires)
            }
            for name, batch in layers.items()
        }
        for m in statistics:
            if not any(reads(m, name, list(found)) for name, found in kinds.items()):
                self._missing(m, layers)
        everything = covering({kind for found in kinds.values() for kind in found})
        check_memory(layers, everything, max(self._interval, 1), self._limit)
        blocks = max(self._interval, 1)
        return {
            name: LayerSums(found, blocks, self._dtype) for name, found in kinds.items() if found
        }

    def _missing(self, m: Measure, layers: dict[str, Batch]) -> None:
        """Raise for a measure that was asked for by name; leave out one that was not."""
        batches = [b for name, b in layers.items() if m.layer in (None, name)]
        if not batches:
            reason = f"it is measured at {m.layer!r}, which layers=... leaves out"
        else:
            try:
                m.needs.of(batches[0])
                return
            except MissingInput as error:
                reason = str(error)
        if self.explicit:
            raise MissingInput(f"{m.name}: {reason}")
        log.info("%s left out: %s", m.name, reason)


def _seeded(m: Measure, seed: int) -> Measure:
    """The measure with the call's seed, if it draws and was not given one of its own."""
    return m.using(seed=seed) if "seed" in m.defaults() and "seed" not in m.options else m


def _look_up(measures: Chosen) -> list[Measure]:
    if measures is None:
        return list(CATALOGUE.values())
    chosen: list[Measure] = []
    for m in [measures] if isinstance(measures, (str, Measure)) else measures:
        if isinstance(m, Measure):
            chosen.append(m)
            continue
        hits = [CATALOGUE[name] for name in CATALOGUE if fnmatchcase(name, m)]
        if not hits:
            raise UnknownName("measure", m, CATALOGUE)
        chosen += [hit for hit in hits if hit not in chosen]
    return chosen
