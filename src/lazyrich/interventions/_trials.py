"""A network run as it is and with one of its layers changed, on the same samples."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .._capture import Capture
from .._evaluation import Heading
from .._inputs import Inputs
from .._reader import OUTPUTS, Change
from .._records import Record, Records
from .._session import Session
from .._source import Source
from .._sums import LayerSums
from .._wanted import Wanted
from ..errors import LazyrichError
from ..statistics import Batch, Moments
from ._scores import DEFINED, Score, each_score

DIMENSION = "effective_dimension"


@dataclass
class Trial:
    """One way to change a layer, and what came of it.

    Attributes:
        estimator: what is done, in words, for the records.
        changes: the same with several draws; all samples go through each.
        index: for the records.
        note: on the geometry.
        scores: of every sample, the mean over draws.
        sums: of the layer, all draws together.
    """

    estimator: str
    changes: Sequence[Change]
    index: int | None = None
    note: str = ""
    scores: dict[str, Score] = field(default_factory=dict)
    sums: dict[str, LayerSums] = field(default_factory=dict)

    def add(self, scores: dict[str, Tensor]) -> None:
        for name, each in scores.items():
            self.scores.setdefault(name, Score()).add(each)

    @property
    def moments(self) -> Moments:
        (sums,) = self.sums.values()
        found: Moments = sums.whole(sums.blocks())[Moments]
        return found


@dataclass
class Layer:
    """A layer of a model on some data.

    Attributes:
        capture: the model, of which one layer and the outputs are read.
        asked: the layer as the user calls it.
        source: batches with labels.
        wanted: the effective dimension, with its interval.
    """

    capture: Capture
    asked: str
    source: Source
    wanted: Wanted

    def watch(self, change: Change) -> None:
        """Let a function see all that the layer puts out.

        Raises:
            LazyrichError: the data cannot be read again afterwards.
        """
        if self.source.once:
            raise LazyrichError(
                "what is done to the layer depends on all that it puts out, so that the data is "
                "read twice, and this can be read only once: give a loader or a list of batches."
            )
        with self._session() as session, closing(self.source.items()) as items:
            name = ""
            for item in items:
                inputs = self.capture.inputs(item)
                name = name or self._name(session.read(inputs))
                session.read(inputs, {name: change})

    def run(self, plain: Trial, trials: Sequence[Trial]) -> dict[str, str]:
        """Run all samples through all trials.

        Returns:
            Cautions about the layer.
        """
        seen = 0
        with self._session() as session, closing(self.source.items()) as items:
            for item in items:
                inputs = self.capture.inputs(item)
                n = inputs.samples(self.capture.samples_axis)
                if inputs.ids is None:  # the same in every reading
                    inputs = replace(inputs, ids=torch.arange(seen, seen + n))
                seen += n
                layers = session.read(inputs)
                name = self._name(layers)
                base = each_score(layers[OUTPUTS].x, inputs.labels, n)
                plain.add(base)
                self._gather(plain, name, [layers[name]])
                for trial in trials:
                    self._try(trial, session, inputs, name, base)
            return session.cautions

    def records(self, trial: Trial, cautions: dict[str, str], heading: Heading) -> Records:
        """Scores, their changes and the effective dimension."""
        ((name, sums),) = trial.sums.items()
        rows: list[Record] = [
            replace(score.record(measure, name), dtype="float64")
            for measure, score in trial.scores.items()
        ]
        found = self.wanted.records(trial.sums, heading, {}, cautions)
        rows += [
            replace(
                r,
                n=r.n // max(len(trial.changes), 1),  # draws are no further samples
                note="; ".join(filter(None, (r.note, trial.note))),
            )
            for r in found
        ]
        return Records(
            (
                replace(
                    r,
                    run=heading.run,
                    view=heading.view,
                    index=trial.index,
                    estimator=trial.estimator,
                    d=sums.d,
                    seed=heading.seed,
                )
                for r in rows
            ),
            [*found.definitions.values(), *(DEFINED[m] for m in trial.scores)],
        )

    def _try(
        self, trial: Trial, session: Session, inputs: Inputs, name: str, base: dict[str, Tensor]
    ) -> None:
        n = inputs.samples(self.capture.samples_axis)
        scores, batches = [], []
        for change in trial.changes:
            layers = session.read(inputs, {name: change})
            scores.append(each_score(layers[OUTPUTS].x, inputs.labels, n))
            batches.append(layers[name])
        mean = {m: torch.stack([s[m] for s in scores]).mean(0) for m in base}
        trial.add(mean)
        trial.add({f"{m}_change": mean[m] - base[m] for m in base})
        self._gather(trial, name, batches)

    def _gather(self, trial: Trial, name: str, batches: list[Batch]) -> None:
        batch = Batch.cat([replace(b, outputs=None, labels=None) for b in batches])
        trial.sums = trial.sums or self.wanted.prepare({name: batch}, {})
        trial.sums[name].add(batch)

    def _name(self, layers: dict[str, Batch]) -> str:
        names = [name for name in layers if name != OUTPUTS]
        if len(names) != 1:
            raise LazyrichError(
                f"layer={self.asked!r} names {', '.join(names) or 'the outputs'}: "
                "one layer before the outputs is needed."
            )
        return names[0]

    def _session(self) -> Session:
        return self.capture.only([self.asked, OUTPUTS]).session(self.source.seed)
