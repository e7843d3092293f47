"""Four kinds of noise on activations, and what each does to their covariance."""

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import LazyrichError
from ..statistics import Moments


class Range(NamedTuple):
    """Of all the numbers that a layer puts out: the least, the largest, their deviation."""

    low: float
    high: float
    deviation: float


class Noise(Protocol):
    """Noise on every number of an activation by itself."""

    @property
    def needs_range(self) -> bool:
        """Whether it depends on what the layer puts out elsewhere."""

    def __call__(self, x: Tensor, seen: Range, generator: torch.Generator) -> Tensor:
        """The activation with noise."""

    def covariance(self, x: Moments, seen: Range) -> Float[Tensor, "d d"]:
        """The covariance of rows with noise, from moments of rows without."""


@dataclass(frozen=True)
class Gaussian:
    """Normal noise of standard deviation `strength` on every number.

    Args:
        strength: in the units of the activations.
        relative: in units of the standard deviation of all the layer's numbers instead.
    """

    strength: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    @property
    def needs_range(self) -> bool:
        return self.relative

    def __call__(self, x: Tensor, seen: Range, generator: torch.Generator) -> Tensor:
        noise = torch.empty_like(x).normal_(generator=generator)
        return x + _scale(self, seen) * noise

    def covariance(self, x: Moments, seen: Range) -> Float[Tensor, "d d"]:
        return _plus(x.covariance, _scale(self, seen) ** 2)

    def __str__(self) -> str:
        return f"gaussian, strength={self.strength:g}{', relative' * self.relative}"


@dataclass(frozen=True)
class Uniform:
    """Noise from -`strength` to `strength` on every number, all values as likely.

    Args:
        strength: in the units of the activations.
        relative: in units of the standard deviation of all the layer's numbers instead.
    """

    strength: float
    relative: bool = False

    def __post_init__(self) -> None:
        _check_strength(self.strength)

    @property
    def needs_range(self) -> bool:
        return self.relative

    def __call__(self, x: Tensor, seen: Range, generator: torch.Generator) -> Tensor:
        noise = torch.empty_like(x).uniform_(-1, 1, generator=generator)
        return x + _scale(self, seen) * noise

    def covariance(self, x: Moments, seen: Range) -> Float[Tensor, "d d"]:
        return _plus(x.covariance, _scale(self, seen) ** 2 / 3)

    def __str__(self) -> str:
        return f"uniform, strength={self.strength:g}{', relative' * self.relative}"


@dataclass(frozen=True)
class Dropout:
    """Every number is zero with probability `share`, and divided by 1 - `share` otherwise."""

    share: float

    def __post_init__(self) -> None:
        _check_share(self.share)
        if self.share == 1:
            raise LazyrichError("Dropout(1) leaves nothing: a share below 1 is needed.")

    @property
    def needs_range(self) -> bool:
        return False

    def __call__(self, x: Tensor, seen: Range, generator: torch.Generator) -> Tensor:
        kept = torch.empty_like(x).bernoulli_(1 - self.share, generator=generator)
        return x * kept / (1 - self.share)

    def covariance(self, x: Moments, seen: Range) -> Float[Tensor, "d d"]:
        return _plus(x.covariance, self.share / (1 - self.share) * _squares(x))

    def __str__(self) -> str:
        return f"dropout, share={self.share:g}"


@dataclass(frozen=True)
class SaltAndPepper:
    """Every number becomes an extreme with probability `share`, either one as likely.

    Args:
        share: from 0 to 1.
        low, high: the two extremes; None for the least and the largest of all the layer's numbers.
    """

    share: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _check_share(self.share)

    @property
    def needs_range(self) -> bool:
        return self.low is None or self.high is None

    def __call__(self, x: Tensor, seen: Range, generator: torch.Generator) -> Tensor:
        low, high = self._extremes(seen)
        chance = torch.empty_like(x, dtype=torch.float64).uniform_(generator=generator)
        x = torch.where(chance < self.share, torch.full_like(x, low), x)
        return torch.where(chance < self.share / 2, torch.full_like(x, high), x)

    def covariance(self, x: Moments, seen: Range) -> Float[Tensor, "d d"]:
        low, high = self._extremes(seen)
        stays = 1 - self.share
        means = stays * x.mean + self.share * (low + high) / 2
        squares = stays * _squares(x) + self.share * (low**2 + high**2) / 2
        together = stays**2 * x.covariance
        return together - together.diag().diag() + (squares - means**2).diag()

    def __str__(self) -> str:
        return f"salt and pepper, share={self.share:g}"

    def _extremes(self, seen: Range) -> tuple[float, float]:
        low = seen.low if self.low is None else self.low
        return low, seen.high if self.high is None else self.high


@dataclass
class Watched:
    """Takes in activations, to tell their range."""

    low: float = float("inf")
    high: float = float("-inf")
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __call__(self, x: Tensor, axis: int) -> Tensor:
        """Look at an activation, and leave it as it is."""
        wide = x.double()
        self.low = min(self.low, float(wide.min()))
        self.high = max(self.high, float(wide.max()))
        self.count += wide.numel()
        self.total += float(wide.sum())
        self.squares += float(wide.square().sum())
        return x

    @property
    def range(self) -> Range:
        mean = self.total / self.count
        return Range(self.low, self.high, sqrt(max(self.squares / self.count - mean**2, 0.0)))


def _scale(noise: Gaussian | Uniform, seen: Range) -> float:
    return noise.strength * (seen.deviation if noise.relative else 1)


def _squares(x: Moments) -> Float[Tensor, " d"]:
    return x.covariance.diag() + x.mean**2


def _plus(
    covariance: Float[Tensor, "d d"], variance: float | Float[Tensor, " d"]
) -> Float[Tensor, "d d"]:
    """The covariance with more variance in every unit."""
    return covariance + torch.zeros_like(covariance.diag()).add(variance).diag()


def _check_strength(strength: float) -> None:
    if not (isinstance(strength, (int, float)) and isfinite(strength) and strength >= 0):
        raise LazyrichError(f"{strength!r} is no strength of noise: a number from 0 is needed.")


def _check_share(share: float) -> None:
    if not (isinstance(share, (int, float)) and 0 <= share <= 1):
        raise LazyrichError(f"{share!r} is no share of noise: numbers from 0 to 1.")
