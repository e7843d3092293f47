"""Model and data in, records out: one forward pass, each statistic once, then the measures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ._arrays import Arrays
from ._capture import Capture
from ._collection import Collection, collect
from ._evaluation import Heading
from ._records import Records
from ._views import View
from ._wanted import Chosen, Wanted
from .errors import LazyrichError

Model = nn.Module | Capture


def measure(
    model: Model | Mapping[str, Model],
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
    """Measure a model on data, in one forward pass; or several models on the same batches.

    A second pass is made for what needs to know the class means first, such as `nc4`.

    Under torch.distributed every process measures its part of the data, all must call this, and
    all get the records of the whole.

    Args:
        model: any module, on the device where it is; a `Capture` that says how to read it; or
            several of them by name, which becomes the run of their records.
        data: yields inputs, (inputs, labels) or mappings; see `Capture` for others.
        measures: names, globs or measures of the catalogue; None for all that the data allows, but
            those that draw samples themselves, read the data twice or depend on single units, such
            as `capacity`, `nc4` and `effective_dimension_both_debiased`: ask for them by name.
        layers: patterns of addresses, see `Capture`; None for every module without children, the
            penultimate features and the outputs.
        view: how maps and tokens become samples: `mean` (default), `flatten`, `tokens`, `last`.
        interval: blocks for a 95 % jackknife interval over samples; 0 for none, 10 is usual.
        dtype: precision of products; None for that of the activations, at least float32. Sums
            and eigenvalues are always float64.
        seed: of all that the model or the data draw from torch, numpy or random.
        run: a name for the records of a single model.
        memory_limit: GiB that the statistics may hold; None for half of what is free.
        progress: a bar on stderr, where that is a terminal.

    Returns:
        A record for each layer and measure. A layer that cannot be read is a row with the reason.

    Raises:
        LazyrichError: the input cannot be measured; the message says what to do.
    """
    models = model if isinstance(model, Mapping) else {run: model}
    if not models:
        raise LazyrichError("no model was given: pass a module, or several as {name: module}.")
    captures = {name: as_capture(m, layers, view) for name, m in models.items()}
    wanted = Wanted(measures, interval, dtype, memory_limit, seed)
    found = collect(captures, wanted, data, seed, progress=progress)
    records = Records()
    for name, collection in found.items():
        heading = Heading(name, captures[name].view, seed)
        weights = captures[name].weights() if wanted.of_weights else None
        records += wanted.records(
            collection.sums,
            heading,
            collection.problems,
            collection.cautions,
            weights,
            heads=collection.heads,
        )
    return records


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
        measures: names, globs or measures of the catalogue; None for all that the data allows, but
            those that draw samples themselves, read the data twice or depend on single units, such
            as `capacity`, `nc4` and `effective_dimension_both_debiased`: ask for them by name.
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
    wanted = Wanted(measures, interval, dtype, memory_limit, seed, of_model=False)
    arrays = Arrays(activations, labels, outputs, view, device)
    widths = arrays.widths
    if wanted.rotates:
        arrays.rotate_into_span()
    found = Collection()
    for number, batches in enumerate(arrays.batches()):
        found.add(batches, wanted, number)
    if (second := found.again(wanted)).first:
        for number, batches in enumerate(arrays.batches()):
            second.add(batches, wanted.again(), number)
        found.beside(second)
    for name, layer in found.sums.items():
        layer.d = widths[name]
    return wanted.records(found.sums, Heading(run, view or "", seed), {}, {})


def as_capture(model: Model, layers: str | Sequence[str] | None, view: View | None) -> Capture:
    """A model with layers and view as a `Capture`, which one of its own already is."""
    if not isinstance(model, Capture):
        return Capture(model, layers, view=view or "mean")
    if layers is not None or view is not None:
        raise LazyrichError("a Capture says itself which layers and view: leave them out here.")
    return model
