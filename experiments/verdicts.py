"""What a paper says beside what was measured here, and whether it holds."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from scipy.stats import t

Word = Literal["holds", "holds in sign", "does not hold", "not recoverable", "not run", "one seed"]


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that numbers can speak to.

    Attributes:
        says: the sentence, in our words.
        paper: the paper's own number, as text.
        low, high: means between these say the same as the paper.
        above, below: a whole interval beyond these has the paper's sign.
        exact: whether one number is all there is, as of a published table: no seeds, no interval.
        not_recoverable: why it cannot be run; empty where it can.
    """

    name: str
    says: str
    paper: str = ""
    low: float = -inf
    high: float = inf
    above: float = -inf
    below: float = inf
    exact: bool = False
    not_recoverable: str = ""


@dataclass(frozen=True)
class Expected:
    """A file `expected.toml`."""

    title: str
    source: str
    scale: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Verdict:
    """A claim, our mean over seeds with its 95 % interval, and what follows."""

    claim: Claim
    values: tuple[float, ...]
    failed: int  # seeds without a number
    mean: float
    low: float
    high: float
    word: Word


def expected(path: Path) -> Expected:
    """Read `expected.toml`.

    Raises:
        ValueError: something is missing or unknown in it; the message names it.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    try:
        claims = tuple(Claim(name, **claim) for name, claim in content["claims"].items())
        return Expected(content["title"], content["source"], content["scale"], claims)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def verdicts(told: Expected, outcomes: Mapping[str, Sequence[float]]) -> list[Verdict]:
    """Each claim judged by one number a seed.

    Raises:
        ValueError: an outcome that no claim is about, which is a slip of the pen.
    """
    strange = outcomes.keys() - {c.name for c in told.claims}
    if strange:
        raise ValueError(f"no claim is named {', '.join(sorted(strange))}.")
    return [judge(claim, outcomes.get(claim.name, ())) for claim in told.claims]


def judge(claim: Claim, values: Sequence[float]) -> Verdict:
    """Holds: the mean is where the paper's is, and the interval on the paper's side."""
    failed = sum(not isfinite(v) for v in values)
    values = tuple(v for v in values if isfinite(v))
    if claim.not_recoverable:
        return Verdict(claim, values, failed, nan, nan, nan, "not recoverable")
    if not values:
        return Verdict(claim, values, failed, nan, nan, nan, "not run")
    mean = fmean(values)
    n = len(values)
    reach = float(t.ppf(0.975, n - 1)) * stdev(values) / sqrt(n) if n > 1 else 0.0
    low, high = mean - reach, mean + reach
    sided = low > claim.above and high < claim.below
    has_sign = isfinite(claim.above) or isfinite(claim.below)
    word: Word = "does not hold"
    if sided and claim.low <= mean <= claim.high:
        word = "holds"
    elif sided and has_sign:
        word = "holds in sign"
    if n == 1 and not claim.exact:
        word = "one seed"  # whose interval nobody knows
    return Verdict(claim, values, failed, mean, low, high, word)
