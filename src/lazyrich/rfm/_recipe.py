"""What a user decides, checked before any work."""

from dataclasses import dataclass
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import LazyrichError
from ._kernel import squared_distances
from ._machine import Normalization

Bandwidth = float | Literal["median"]
Precision = Literal["auto", "float32", "float64"]
Selection = Literal["validation", "cv"] | None
_MEDIAN_OF = 2000  # rows


@dataclass(frozen=True)
class Recipe:
    """How one machine is fitted; the options of `RFMRegressor`."""

    bandwidth: Bandwidth = 10.0
    exponent: float = 1.0
    reg: float = 1e-3
    iterations: int = 4
    diagonal: bool = False
    normalize: Normalization = "trace"
    center_gradients: bool = False
    center_targets: bool = False
    landmarks: int | None = None
    dtype: Precision = "auto"
    device: str | None = None
    memory_limit: float | None = None
    seed: int = 0
    progress: bool = False

    def __post_init__(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            LazyrichError: with the option, what came and what is possible.
        """
        if self.bandwidth != "median":
            number("bandwidth", self.bandwidth, more_than=0, other="'median'")
        number("exponent", self.exponent, more_than=0, up_to=2)
        number("reg", self.reg, more_than=0)
        whole("iterations", self.iterations, least=0)
        one_of("normalize", self.normalize, ("trace", "max", None))
        one_of("dtype", self.dtype, ("auto", "float32", "float64"))
        if self.landmarks is not None:
            whole("landmarks", self.landmarks, least=1, other="None")
        if self.memory_limit is not None:
            number("memory_limit", self.memory_limit, more_than=0, other="None")
        try:
            torch.empty(0, device=self.torch_device)
        except (RuntimeError, AssertionError) as error:
            raise LazyrichError(
                f"device={self.device!r}: None for LAPACK on this machine, or a device of torch "
                f"that is there, such as 'cuda' ({str(error).splitlines()[0]})."
            ) from error

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("cpu" if self.device is None else self.device)

    def width(self, z: Tensor) -> float:
        """The bandwidth, or the median distance of two distinct rows among up to 2000."""
        if self.bandwidth != "median":
            return float(self.bandwidth)
        if len(z) > _MEDIAN_OF:
            chosen = np.random.default_rng(self.seed).permutation(len(z))[:_MEDIAN_OF]
            z = z[torch.from_numpy(chosen).to(z.device)]
        squared = squared_distances(z, z)
        apart = squared[squared > 0]
        return float(apart.median().sqrt()) if len(apart) else 1.0


@dataclass(frozen=True)
class Choice:
    """How the iteration is chosen.

    Attributes:
        selection: by rows that are held out once, by cross-validation, or None for the last.
        fraction: of distinct rows that are held out.
        folds: of the cross-validation.
    """

    selection: Selection = "validation"
    fraction: float = 0.2
    folds: int = 5

    def __post_init__(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            LazyrichError: with the option, what came and what is possible.
        """
        one_of("selection", self.selection, ("validation", "cv", None))
        number("validation_fraction", self.fraction, more_than=0, less_than=1)
        whole("folds", self.folds, least=2)


def number(
    name: str,
    value: Any,
    *,
    more_than: float,
    up_to: float = inf,
    less_than: float = inf,
    other: str = "",
) -> None:
    """Refuse what is no number of the range.

    Raises:
        LazyrichError: it is not.
    """
    if isinstance(value, Real) and value is not True:
        given = float(value)
        if isfinite(given) and more_than < given <= up_to and given < less_than:
            return
    end = f" and up to {up_to:g}" if up_to < inf else ""
    end = f" and below {less_than:g}" if less_than < inf else end
    instead = f", or {other}" if other else ""
    raise LazyrichError(f"{name}={value!r}: a number above {more_than:g}{end}{instead}.")


def whole(name: str, value: Any, *, least: int, other: str = "") -> None:
    """Refuse what is no whole number of the range.

    Raises:
        LazyrichError: it is not.
    """
    if not isinstance(value, Integral) or value is True or value < least:
        instead = f", or {other}" if other else ""
        raise LazyrichError(f"{name}={value!r}: a whole number, {least} or more{instead}.")


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    """Refuse what is none of the choices.

    Raises:
        LazyrichError: it is not.
    """
    if not any(value is k or (isinstance(value, str) and value == k) for k in known):
        raise LazyrichError(f"{name}={value!r}: one of {', '.join(map(repr, known))}.")
