"""Noise on a layer."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._engine import Model, as_capture
from .._evaluation import Heading
from .._reader import Change
from .._records import Records
from .._source import Source
from .._wanted import Wanted
from ..errors import LazyrichError
from ..statistics import Moments
from ._noises import Noise, Range, Watched
from ._trials import DIMENSION, Layer, Trial


def perturb(
    model: Model,
    data: Iterable[Any],
    layer: str,
    noises: Sequence[Noise],
    *,
    draws: int = 3,
    interval: int = 10,
    seed: int = 0,
    run: str = "run",
    progress: bool = True,
) -> Records:
    """What noise on one layer does to a network's answers and to the layer's geometry.

    Each noise changes every number that the layer puts out, and the modules behind see the changed
    ones. The network is in evaluation mode, and comes back as it was. Noises that depend on the
    range of the layer need data that can be read twice.

    Reference: Yadav 2026, arXiv:2602.00130.

    Args:
        model: any module, or a `Capture` that says how to read the data.
        data: a loader or list of (inputs, labels); labels are classes, or targets of a regression.
        layer: its address: a module's outputs, `name:input`, or `penultimate`.
        noises: `Gaussian`, `Uniform`, `Dropout`, `SaltAndPepper`, or what acts like them.
        draws: how often each noise is drawn; scores are means over draws, and the effective
            dimension is that of all of them together. The same draws at every strength.
        interval: jackknife blocks for that of the effective dimension; 0 for none.
        seed: of the noise, and of all that the model or the data draw.
        run: name for the records.

    Returns:
        Accuracy and cross-entropy, or squared error, their changes sample by sample, and the
        effective dimension: without noise (`as it is`), and under each. Where the layer puts out
        one row a sample, a note says what the effective dimension is in closed form, given that
        of the activations without noise.

    Raises:
        LazyrichError: nothing that can be scored or changed; the message says what to do.
    """
    noises = list(noises)
    if not noises:
        raise LazyrichError("noises=[]: one or more is needed, such as Gaussian(0.5).")
    if draws < 1:
        raise LazyrichError(f"draws={draws}: one or more is needed.")
    capture = as_capture(model, None, None)
    wanted = Wanted(DIMENSION, interval, None, None, seed)
    place = Layer(capture, layer, Source(data, seed, progress), wanted)
    seen = _range(place) if any(noise.needs_range for noise in noises) else Range(0, 0, 0)
    plain = Trial("as it is", [])
    shapes = _Shapes()
    trials = [
        Trial(str(noise), [_noisy(noise, seen, seed, draw, shapes) for draw in range(draws)])
        for noise in noises
    ]
    cautions = place.run(plain, trials)
    heading = Heading(run, capture.view, seed)
    records = place.records(plain, cautions, heading)
    for noise, trial in zip(noises, trials, strict=True):
        if shapes.flat:
            expected = effective_dimension_under(noise, plain.moments, seen)
            trial.note = f"in closed form {expected:.6g}"
        records += place.records(trial, cautions, heading)
    return records


def effective_dimension_under(noise: Noise, x: Moments, seen: Range) -> float:
    """The participation ratio of rows with noise, from moments of rows without.

    In closed form: additive noise of variance v has C + vI, dropout of share p
    C + p/(1-p) diag(E[x²]), salt and pepper (1-p)² C off the diagonal.
    """
    covariance = noise.covariance(x, seen)
    return float(covariance.trace().square() / covariance.square().sum())


class _Shapes:
    """Whether all that was changed had one row a sample."""

    flat = True


def _noisy(noise: Noise, seen: Range, seed: int, draw: int, shapes: _Shapes) -> Change:
    (entropy,) = np.random.SeedSequence([seed, draw]).generate_state(1, np.uint64)
    generators: dict[torch.device, torch.Generator] = {}

    def change(x: Tensor, axis: int) -> Tensor:
        shapes.flat &= x.ndim == 2
        if x.device not in generators:
            generators[x.device] = torch.Generator(x.device).manual_seed(
                int(entropy >> np.uint64(1))
            )
        return noise(x, seen, generators[x.device])

    return change


def _range(layer: Layer) -> Range:
    watched = Watched()
    layer.watch(watched)
    return watched.range
