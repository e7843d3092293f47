"""Whether an option is the kind of number that it should be."""

from math import isfinite
from numbers import Integral, Real
from typing import Any


def is_whole(value: Any) -> bool:
    """A whole number, of Python or of numpy; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """A finite number; a bool is none."""
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)
