"""Data as it comes: seeded, shown with a bar, and missed if there is none."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from tqdm import tqdm

from ._untouched import Draws
from .errors import EmptyData, LazyrichError


@dataclass(frozen=True, slots=True)
class Source:
    """A loader or list of batches.

    Attributes:
        data: what yields the batches.
        seed: of all that it draws while it makes them.
        progress: whether to show a bar on stderr, where that is a terminal.
    """

    data: Iterable[Any]
    seed: int
    progress: bool = False

    def items(self) -> Generator[Any, None, None]:
        """The batches, drawn from a stream of random numbers of their own.

        Raises:
            EmptyData: there are none.
            LazyrichError: the data is nothing to iterate over.
        """
        iterable = hasattr(self.data, "__iter__") or hasattr(self.data, "__getitem__")
        if (
            _is_batch(self.data)
            or not iterable
            or isinstance(self.data, (Tensor, np.ndarray, str, Mapping))
        ):
            raise LazyrichError(
                f"needs a loader or a list of batches, got {type(self.data).__name__}. "
                "A single batch goes in a list: [x] or [(x, labels)]."
            )
        shown = tqdm(
            self.data, desc="measuring", unit="batch", disable=None if self.progress else True
        )
        nothing = True
        for item in Draws(self.seed).over(shown):
            nothing = False
            yield item
        if nothing:
            raise EmptyData("the data yields nothing: the loader is empty or used up.")

    @property
    def once(self) -> bool:
        """Whether it can be read only once."""
        # a loader is not asked for an iterator: it would draw a seed, or start its workers
        return isinstance(self.data, Iterator) and iter(self.data) is self.data


def _is_batch(data: object) -> bool:
    """Whether this is one (inputs, labels), and no tuple of batches."""
    if not (isinstance(data, tuple) and len(data) == 2):
        return False
    inputs, labels = data
    both = isinstance(inputs, Tensor) and isinstance(labels, Tensor)
    return both and labels.ndim == 1 < inputs.ndim
