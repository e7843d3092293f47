"""Records of one place gathered by measure: a place never mixes views or conventions."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .._records import Record, Records
from ..errors import LazyrichError, MissingInput

Measures = dict[str, Record]


class Place(NamedTuple):
    """Where and how records were measured; what compares with what differs in one of the first."""

    run: str
    step: int
    layer: str
    view: str
    conventions: str

    def at(self, **columns: Any) -> "Place":
        """The same place but for these columns."""
        return self._replace(**columns)

    def __str__(self) -> str:
        return f"run {self.run}, step {self.step}, layer {self.layer}"


def places(records: Records, measures: Sequence[str]) -> dict[Place, Measures]:
    """The records of these measures by place, in order of appearance.

    What was measured again in the same way stands once, the later one.

    Raises:
        LazyrichError: two values of one measure at one place, from different seeds, say.
    """
    found: dict[Place, Measures] = {}
    for r in records.where(measure=set(measures), index=None):
        place = Place(r.run, r.step, r.layer, r.view, conventions(r))
        earlier = found.setdefault(place, {}).get(r.measure)
        if earlier and (earlier.seed, earlier.dtype) != (r.seed, r.dtype):
            raise LazyrichError(
                f"{place} has {r.measure} with seed {earlier.seed} in {earlier.dtype} and with "
                f"seed {r.seed} in {r.dtype}: choose one, with records.where(seed=...)."
            )
        found[place][r.measure] = r
    return found


def conventions(record: Record) -> str:
    """The choices that the papers leave open, as the record states them."""
    return record.estimator.partition("conventions=")[2]


def check_measures(present: Iterable[str], needed: Sequence[str], where: str) -> None:
    """Refuse records that lack a measure.

    Raises:
        MissingInput: names what is missing, and what to record.
    """
    missing = [name for name in needed if name not in set(present)]
    if missing:
        raise MissingInput(
            f"{', '.join(missing)} missing in {where}. Record {', '.join(needed)} together: "
            f"measure(..., [{', '.join(map(repr, needed))}])."
        )
