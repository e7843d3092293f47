"""Every error a user can meet. Each says what is needed, what came, and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class LazyrichError(ValueError):
    """Base of all errors raised on purpose by lazyrich."""


class LazyrichWarning(UserWarning):
    """A number that is right by its formula but may mislead."""


class UnknownName(LazyrichError):
    """A layer, measure or column that does not exist; the nearest existing names are offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(dict.fromkeys(known))
        near = get_close_matches(name, known, n=3, cutoff=0.4) or known[:5]
        super().__init__(
            f"no {kind} matches {name!r}. "
            f"Nearest: {', '.join(near) or 'none'} ({len(known)} known)."
        )


class ShapeError(LazyrichError):
    """An activation, array or label vector does not have the shape that is needed."""


class MissingInput(LazyrichError):
    """A measure needs something (labels, outputs) that the data did not bring."""


class NotExecuted(LazyrichError):
    """A layer was asked for by name, and the forward pass never called it."""


class NonFinite(LazyrichError):
    """NaN or infinity where numbers are needed."""


class TooFewSamples(LazyrichError):
    """No data at all, or less than a statistic or an interval needs."""


class EmptyData(TooFewSamples):
    """Data that yields nothing."""


class MemoryRefused(LazyrichError):
    """The estimate made before the pass exceeds the memory that may be used."""


class UnreadableFile(LazyrichError):
    """A file that is missing, damaged, or not safe to open."""


class Undefined(LazyrichError):
    """A measure has no value on this statistic; the engine turns it into NaN with this reason."""
