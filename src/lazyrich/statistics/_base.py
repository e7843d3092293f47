"""What a statistic is: something that can be made from one batch and added to its like.

`of` and `+` are all there is. Streaming is a fold of `+` over batches, several processes are a
fold over ranks, an interval is a fold that leaves one block out. Two laws hold, and are tested:
`of(a ++ b) == of(a) + of(b)`, and `+` is associative.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from itertools import accumulate
from operator import add
from typing import Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import MissingInput, TooFewSamples


@runtime_checkable
class Additive(Protocol):
    """Whatever can be added to its like."""

    def __add__(self, other: Any, /) -> Any: ...


S = TypeVar("S", bound="Statistic")
A = TypeVar("A", bound=Additive)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """One layer's view of one batch: n rows of d units, and what is known about each row.

    Attributes:
        x: activations.
        labels: class of each row.
        outputs: the model's raw outputs for each row.
        samples: number of the sample that each row comes from (several tokens, one sample).
        other: rows of another representation of the same samples.
        nearest: class whose mean, known from a first reading of the data, is nearest to each row.
        residuals: squared, from the outputs' best explanation that a first reading has found, each
            over the share of the noise that it keeps; by reading of the outputs.
    """

    x: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"] | None = None
    outputs: Float[Tensor, "n c"] | None = None
    samples: Int[Tensor, " n"] | None = None
    other: Float[Tensor, "n e"] | None = None
    nearest: Int[Tensor, " n"] | None = None
    residuals: Float[Tensor, "n kinds"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, keep: Tensor) -> "Batch":
        """The rows chosen by a mask or by their numbers."""
        parts = ((f.name, getattr(self, f.name)) for f in fields(self))
        kept = {name: None if p is None else p[keep] for name, p in parts}
        return Batch(**cast(Any, kept))

    @staticmethod
    def cat(batches: "Sequence[Batch]") -> "Batch":
        """One batch out of several, row after row."""
        columns = {f.name: [getattr(b, f.name) for b in batches] for f in fields(Batch)}
        joined = {k: None if c[0] is None else torch.cat(c) for k, c in columns.items()}
        return Batch(**cast(Any, joined))


def required_labels(batch: Batch) -> Int[Tensor, " n"]:
    """The labels of a batch.

    Raises:
        MissingInput: it carries none.
    """
    if batch.labels is None:
        raise MissingInput(
            "class moments need a label for each sample, and the data brings none "
            "(labels that are floating point or one-hot are no classes). "
            "Let the loader yield (inputs, labels), or pass labels=... with arrays."
        )
    return batch.labels


def required_outputs(batch: Batch) -> Float[Tensor, "n c"]:
    """The outputs of a batch.

    Raises:
        MissingInput: it carries none.
    """
    if batch.outputs is None:
        raise MissingInput(
            "joint moments need the model's outputs, and the data brings none. "
            "Name the module that makes them (outputs=...), or pass outputs=... with arrays."
        )
    return batch.outputs


class Statistic(ABC):
    """The interface. Implementations are final frozen dataclasses of tensors.

    Class attributes:
        requires: the fields of `Batch` that it cannot do without.
        contains: statistics that can be read off this one, and the attribute that holds them.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    contains: ClassVar[dict[type["Statistic"], str]] = {}

    @classmethod
    @abstractmethod
    def of(cls, batch: Batch) -> Any:
        """The statistic of one batch."""

    @abstractmethod
    def __add__(self, other: Any, /) -> Any:
        """The statistic of both batches together."""

    @property
    @abstractmethod
    def n(self) -> Float[Tensor, ""]:
        """How many rows went in, as float64: int64 quotients would be float32."""

    @staticmethod
    def size(d: int, c: int, k: int) -> int:
        """How many float64 numbers it holds for d units, c outputs and k classes."""
        return d * d + (c + k) * d

    def read(self, kind: type[S]) -> S:
        """This statistic as another kind that it contains."""
        if isinstance(self, kind):
            return self
        return cast(S, getattr(self, self.contains[kind]))


def total(parts: Iterable[A]) -> A:
    """The sum of at least one statistic."""
    return reduce(add, parts)


def sum_of(a: T | None, b: T | None) -> T | None:
    """The sum of two parts, either of which may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return cast(T, cast(Any, a) + b)


def leave_one_out(parts: Sequence[A]) -> Iterator[A]:
    """The sum of all parts but the first, but the second, ...: additions only, nothing subtracted.

    Raises:
        TooFewSamples: fewer than two parts, so that nothing would be left.
    """
    if len(parts) < 2:
        raise TooFewSamples(f"leaving one block out needs two blocks or more, got {len(parts)}.")
    behind = list(accumulate(reversed(parts[1:]), lambda a, b: cast(A, b + a)))
    before: A | None = None
    for part in parts[:-1]:
        after = behind.pop()
        yield after if before is None else cast(A, before + after)
        before = part if before is None else cast(A, before + part)
    yield cast(A, before)
