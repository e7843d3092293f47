"""The measures asked for, and the statistics that they need of each layer."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from ._evaluation import Heading, Snapshot, evaluate, failed, records
from ._ranks import several
from ._records import Records
from ._sums import Kind, LayerSums, check_memory, covering
from .errors import LazyrichError, MissingInput, TooFewSamples, UnknownName
from .measures import CATALOGUE, Measure, Profile, SecondPass
from .statistics import Batch, LinearMap, PairMoments, TangentKernel, Weights

log = logging.getLogger("lazyrich")
Chosen = Sequence[Measure | str] | Measure | str | None
_NO_HEAD = (
    "compares with the weights of the Linear that reads the penultimate features, and no Linear "
    "reads them here. Name its input, as in Capture(model, penultimate='fc:input')."
)
_NO_MODEL = (
    "compares with the weights of the Linear that reads the features, which arrays do not bring: "
    "measure the model itself with lz.measure()."
)


_ELSEWHERE = {
    PairMoments: "lz.compare()",
    LinearMap: "lz.nfa()",
    TangentKernel: "lazyrich.kernel.measure()",
}
_OF = {LinearMap: "weights and gradients", TangentKernel: "a kernel of lz.ntk()"}


class Wanted:
    """What is to be measured, and how.

    Args:
        measures: names, globs (what they match and the data allows) or measures; None for all
            that the data allows but those that draw samples themselves or read the data twice.
        interval: jackknife blocks, 0 for none.
        dtype: of products, None for the activations' own.
        memory_limit: in GiB, None for half of what is free.
        seed: of measures that draw.
        from_start: whether the start of training will be known.
        of_model: whether the weights that read the features can be known.

    Raises:
        LazyrichError: an interval or dtype that makes no sense.
        UnknownName: a measure that is not in the catalogue.
    """

    def __init__(
        self,
        measures: Chosen,
        interval: int,
        dtype: torch.dtype | None,
        memory_limit: float | None,
        seed: int,
        *,
        from_start: bool = False,
        of_model: bool = True,
    ) -> None:
        if not isinstance(interval, int) or interval < 0 or interval == 1:
            raise LazyrichError(
                f"interval={interval}: the number of jackknife blocks is 0 for no interval, "
                "or 2 and more (10 is usual)."
            )
        if dtype not in (None, torch.float32, torch.float64):
            raise LazyrichError(f"dtype={dtype}: products are float32, float64 or None (as given).")
        if memory_limit is not None and not memory_limit >= 0:
            raise LazyrichError(f"memory_limit={memory_limit}: a number of GiB is needed.")
        if not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise LazyrichError(f"seed={seed}: a whole number from 0 to 2**63 - 1 is needed.")
        self._named = _by_name(measures)
        self._from_start = from_start
        self._globbed = measures is not None
        chosen = [_seeded(m, seed) for m in _look_up(measures)]
        chosen = [m for m in chosen if from_start or self._without_start(m)]
        self.measures = [m for m in chosen if of_model or self._without_head(m)]
        self.of_weights = any(m.needs is Weights for m in self.measures)
        self._interval, self._dtype, self._limit = interval, dtype, memory_limit
        helpers = [CATALOGUE[m.argument] for m in self.measures if m.needs is Profile]
        names = {m.name for m in self.measures}
        self.needed = [*self.measures, *(h for h in helpers if h.name not in names)]
        self.second = [m for m in self.measures if m.second_pass]
        self._again = False

    def among(self, keep: Callable[[Measure], bool]) -> "Wanted":
        """The same for some of the measures."""
        fewer = copy(self)
        fewer.measures = [m for m in self.measures if keep(m)]
        fewer.needed = [m for m in self.needed if keep(m)]
        return fewer

    def again(self) -> "Wanted":
        """What a second reading is for, once a first one has found what it needs."""
        rest = self.among(lambda m: m.second_pass is not None)
        rest._again = True
        return rest

    def read_twice(self, layer: str, kinds: Sequence[Kind]) -> dict[SecondPass, Kind]:
        """What to put beside the rows of a layer, from which of these sums; or nothing."""
        there = {f for k in kinds for f in (k, *k.contains)}
        here = [m for m in self.second if m.layer in (None, layer)]
        return {m.second_pass: m.first for m in here if m.second_pass and m.first in there}

    @property
    def rotates(self) -> bool:
        """Whether no measure of data would notice a rotation of the rows."""
        of_data = (m for m in self.needed if m.needs is not Weights)
        return all("rotation" in m.invariant for m in of_data)

    def prepare(
        self, layers: dict[str, Batch], heads: Mapping[str, Tensor]
    ) -> dict[str, LayerSums]:
        """Empty sums for each layer that a first batch shows, checked against the memory there is.

        Args:
            heads: by layer the weights that read it, where they are known.

        Raises:
            MissingInput: a measure that was asked for by name and finds no layer it can measure.
            MemoryRefused: the sums would not fit.
        """
        statistics = [m for m in self.needed if m.needs not in (Profile, Weights)]
        here = {
            name: [m for m in statistics if _finds(m, name, batch, heads)]
            for name, batch in layers.items()
        }
        for m in statistics:
            if not any(m in found for found in here.values()):
                self._missing(m, layers)
        if statistics and self._globbed and not any(here.values()):
            names = ", ".join(m.name for m in self.measures)
            raise MissingInput(f"the data allows none of the measures that match: {names}")
        kinds = {name: set(map(self._kind, found)) for name, found in here.items()}
        everything = covering({kind for found in kinds.values() for kind in found})
        blocks = max(self._interval, 1)
        check_memory(layers, everything, blocks, self._limit)
        return {
            name: LayerSums(found, blocks, self._dtype, rotate=self._rotates(here[name]))
            for name, found in kinds.items()
            if found
        }

    def records(
        self,
        sums: dict[str, LayerSums],
        heading: Heading,
        problems: dict[str, str],
        cautions: dict[str, str],
        weights: Weights | None = None,
        initial: Snapshot | None = None,
        heads: Mapping[str, Tensor] | None = None,
    ) -> Records:
        """Evaluate the measures on the sums; what could not be measured is a row with the reason.

        Raises:
            TooFewSamples: fewer than two samples, or than the interval needs.
        """
        for name, layer in sums.items():
            if layer.samples < 2 * self._interval:
                raise TooFewSamples(
                    f"interval={self._interval} needs {2 * self._interval} samples or more, and "
                    f"layer {name!r} has {layer.samples}. Ask for fewer blocks, or for none with 0."
                )
        table = evaluate(sums, self.needed, weights, initial, heads or {})
        found = records(table, self.measures, heading, cautions)
        names = {r.measure for r in found} or {m.name for m in self.measures}
        failures = [
            failed(layer, m, reason, heading)
            for layer, reason in problems.items()
            for m in self.measures
            # the measures that other layers were measured by
            if m.layer is None and m.needs not in (Profile, Weights) and m.name in names
        ]
        measured = {r.measure for r in [*found, *failures]}
        reason = "found no layer, or no two layers, to be measured at"
        told = self._named | {m.name for m in self.measures if self._from_start}
        absent = [m for m in self.measures if m.name in told - measured]
        return found + Records([*failures, *(failed("", m, reason, heading) for m in absent)])

    def failures(self, heading: Heading, reason: str) -> Records:
        """A row with the reason for every measure, where nothing could be measured at all."""
        return Records(failed("", m, reason, heading) for m in self.measures)

    def _without_start(self, m: Measure) -> bool:
        """Whether a measure can do without the start of training; those of weights need no data."""
        if m.takes_initial and m.name in self._named:
            raise MissingInput(
                f"{m.name} compares with the start of training: record the run with lz.Recorder."
            )
        return not m.takes_initial and (m.name in self._named or m.needs is not Weights)

    def _without_head(self, m: Measure) -> bool:
        """Whether a measure can do without the weights that read the features."""
        if m.takes_head and m.name in self._named:
            raise MissingInput(f"{m.name}: {_NO_MODEL}")
        return not m.takes_head

    def _kind(self, m: Measure) -> Kind:
        """The statistic that a measure needs of this reading of the data."""
        kind: Kind = m.needs
        return m.first if m.first and not self._again else kind

    def _rotates(self, here: Sequence[Measure]) -> bool:
        """Whether the rows of a layer may be rotated, where these measures are taken.

        Not where a second reading comes back to its means, with rows as they are.
        """
        across = [m for m in self.needed if m.needs is Profile]
        free = all("rotation" in m.invariant and not m.second_pass for m in [*here, *across])
        return free and not several()

    def _missing(self, m: Measure, layers: dict[str, Batch]) -> None:
        """Raise for a measure that was asked for by name; leave out one that was not."""
        batches = [b for name, b in layers.items() if m.layer in (None, name)]
        if not batches and m.layer is None:
            reason = "no layer could be read"
        elif not batches:
            reason = f"it is measured at the layer {m.layer!r}, which is not among those chosen"
        else:
            reason = _NO_HEAD
            try:
                m.needs.of(batches[0])
                if not m.takes_head:
                    return
            except MissingInput as error:
                reason = str(error)
        if m.name in self._named or self.measures == [m]:
            raise MissingInput(f"{m.name}: {reason}")
        log.info("%s left out: %s", m.name, reason)


def _finds(m: Measure, layer: str, batch: Batch, heads: Mapping[str, Tensor]) -> bool:
    """Whether a measure makes sense at a layer, and finds there all that it needs."""
    there = all(getattr(batch, field) is not None for field in m.needs.requires)
    return there and m.layer in (None, layer) and not (m.takes_head and layer not in heads)


def _seeded(m: Measure, seed: int) -> Measure:
    """The measure with the call's seed, if it draws and was not given one of its own."""
    return m.using(seed=seed) if "seed" in m.defaults() and "seed" not in m.options else m


def _by_name(measures: Chosen) -> set[str]:
    """Measures asked for by their name, not by a glob or by default: they are there, or missed."""
    if measures is None:
        return set()
    asked = [measures] if isinstance(measures, (str, Measure)) else measures
    return {m.name if isinstance(m, Measure) else m for m in asked}


def _look_up(measures: Chosen) -> list[Measure]:
    if measures is None:
        # similarities of two representations are for compare(); what draws samples itself or
        # reads the data twice takes its time: it is asked for by name
        usual = (m for m in CATALOGUE.values() if m.needs not in _ELSEWHERE)
        return [m for m in usual if not (m.own_interval or m.second_pass)]
    chosen: list[Measure] = []
    for m in [measures] if isinstance(measures, (str, Measure)) else measures:
        if isinstance(m, Measure):
            chosen += [m] * (m not in chosen)
            continue
        hits = [CATALOGUE[name] for name in CATALOGUE if fnmatchcase(name, m)]
        if not hits:
            raise UnknownName("measure", m, CATALOGUE)
        # a glob means all that the data allows in one reading
        hits = [h for h in hits if h.name == m or not (h.second_pass or h.needs in _ELSEWHERE)]
        chosen += [hit for hit in hits if hit not in chosen]
    for m in chosen:
        if m.needs in _OF:
            raise LazyrichError(f"{m.name} is of {_OF[m.needs]}: {_ELSEWHERE[m.needs]} takes it.")
    return chosen
