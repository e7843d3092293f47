"""A layer's manifolds, solved once for all measures that read them."""

from collections.abc import Callable, Hashable
from functools import partial, wraps
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float

from ...statistics import Clouds
from .conventions import Conventions
from .jackknife import Sampled, Values, delete_groups, over_repeats
from .manifold_solution import Solution, approximation, shuffled, solution

_solved: WeakKeyDictionary[Clouds, dict[Hashable, Any]] = WeakKeyDictionary()


def once(solve: Callable[[Clouds, Conventions, int], Any]) -> Callable[..., Any]:
    """Solve once for the same clouds, conventions and seed; forget it together with the clouds."""

    @wraps(solve)
    def remembered(clouds: Clouds, conventions: Conventions, seed: int) -> Any:
        results = _solved.setdefault(clouds, {})
        key = (solve.__name__, conventions, seed)
        if key not in results:
            results[key] = solve(clouds, conventions, seed)
        return results[key]

    return remembered


@once
def solutions(clouds: Clouds, conventions: Conventions, seed: int) -> list[Solution]:
    """One for each subsample.

    Raises:
        Undefined: see `manifolds`.
    """
    return [solution(clouds, conventions, seed, r) for r in range(conventions.repeats)]


@once
def meaningless(clouds: Clouds, conventions: Conventions, seed: int) -> Solution:
    """Where points keep their places and classes mean nothing: what null levels are read off.

    Raises:
        Undefined: see `manifolds`.
    """
    return shuffled(solutions(clouds, conventions, seed)[0], seed)


def null_capacity(clouds: Clouds, conventions: Conventions, seed: int) -> float:
    """The capacity where classes mean nothing.

    Raises:
        Undefined: see `manifolds`.
    """
    null: Solution = meaningless(clouds, conventions, seed)
    return len(null.manifolds.classes) / float(null.found.support.mean())


@once
def null_single_capacity(clouds: Clouds, conventions: Conventions, seed: int) -> float:
    """The capacity of single manifolds where classes mean nothing.

    Raises:
        Undefined: see `manifolds`.
    """
    return _together(_each_alone(meaningless(clouds, conventions, seed)))


@once
def capacities(clouds: Clouds, conventions: Conventions, seed: int) -> dict[str, Sampled]:
    """`capacity`, `by_norm` and `simulated`.

    Raises:
        Undefined: see `manifolds`.
    """
    each = [delete_groups(s.capacities) for s in solutions(clouds, conventions, seed)]
    return over_repeats(each)


@once
def shapes(clouds: Clouds, conventions: Conventions, seed: int) -> dict[str, Sampled]:
    """`dimension`, `radius`, alignments, and what follows from them with the capacity.

    The identities between them hold for the values as corrected, not only before.

    Raises:
        Undefined: see `manifolds` and `anchors`.
    """
    each = [delete_groups(partial(_shapes, s)) for s in solutions(clouds, conventions, seed)]
    found = over_repeats(each)
    approximate = approximation(found["dimension"].value, found["radius"].value)
    utility = capacities(clouds, conventions, seed)["capacity"].value / approximate
    found["approximate"] = found["approximate"].about(approximate)
    found["utility"] = found["utility"].about(utility)
    return found


def _shapes(s: Solution, without: int) -> Values:
    found = s.shapes(without)
    found["utility"] = s.capacities(without)["capacity"] / found["approximate"]
    return found


@once
def alone(clouds: Clouds, conventions: Conventions, seed: int) -> list[list[Solution]]:
    """Each manifold by itself, in the order of labels, for each subsample."""
    return [_each_alone(s) for s in solutions(clouds, conventions, seed)]


def _each_alone(s: Solution) -> list[Solution]:
    return [s.alone(place) for place in torch.argsort(s.manifolds.classes).tolist()]


@once
def single_capacities(clouds: Clouds, conventions: Conventions, seed: int) -> dict[str, Sampled]:
    """`capacity`: the harmonic mean over manifolds."""

    def values(each: list[Solution], without: int) -> Values:
        return {"capacity": _together(each, without)}

    subsamples = alone(clouds, conventions, seed)
    return over_repeats([delete_groups(partial(values, each)) for each in subsamples])


def _together(each: list[Solution], without: int = -1) -> float:
    return 1 / fmean(1 / s.capacities(without)["capacity"] for s in each)


@once
def single_shapes(clouds: Clouds, conventions: Conventions, seed: int) -> dict[str, Sampled]:
    """`dimension` and `radius`: means over manifolds.

    Raises:
        Undefined: anchors of a manifold are not unique, or do not vary.
    """

    def values(each: list[Solution], without: int) -> Values:
        found = [s.shapes(without) for s in each]
        return {name: fmean(f[name] for f in found) for name in ("dimension", "radius")}

    subsamples = alone(clouds, conventions, seed)
    return over_repeats([delete_groups(partial(values, each)) for each in subsamples])


def separability(clouds: Clouds, conventions: Conventions, seed: int) -> Float[np.ndarray, " n"]:
    """Share of dichotomies that a projection to so many dimensions leaves separable, from 0 on.

    Raises:
        Undefined: see `manifolds`.
    """
    each = [_separable(s) for s in solutions(clouds, conventions, seed)]
    width = max(map(len, each))
    whole = np.stack([np.pad(p, (0, width - len(p)), mode="edge") for p in each])
    mean: np.ndarray = whole.mean(0)
    return mean


def _separable(s: Solution) -> Float[np.ndarray, " n"]:
    """From the support counts: 1 - p_n = 2 (v_{n+1} + v_{n+3} + ...), and sums over either parity
    are a half. Each parity is normalized by itself, which keeps shares between 0 and 1.
    """
    flat = s.subspace.cpu().numpy()
    counts = s.found.support.long().cpu().numpy()[~flat]
    share = np.zeros(s.rays.rank + 1)
    if not len(counts):
        return share
    for n in range(1, len(share)):
        alike = counts[(counts - n) % 2 == 1]
        share[n] = (alike < n).mean() if len(alike) else (counts < n).mean()
    share *= (~flat).mean()
    rising, falling = np.maximum.accumulate(share), np.minimum.accumulate(share[::-1])[::-1]
    return (rising + falling) / 2


_FULL, _SELF_CHECK, _ACCURATE = 0.01, 4.0, 1e-9
Remarks = tuple[list[str], list[str]]  # what stands behind values, and what to be warned of


def remarks(clouds: Clouds, conventions: Conventions, seed: int) -> Remarks:
    """Of the manifolds together.

    Raises:
        Undefined: see `manifolds`.
    """
    found = solutions(clouds, conventions, seed)
    facts, cautions = _of_sizes(found[0], clouds)
    rank = found[0].rays.rank
    z = max((s.self_check for s in found), key=abs)
    facts.append(f"self-check z = {z:+.1f}")
    if abs(z) > _SELF_CHECK:
        cautions.append(f"self-check: two estimators of capacity differ by {z:+.1f} errors")
    if (full := _inside(found)) > _FULL:
        cautions.append(
            f"{full:.0%} of the targets lie inside their cone, {rank} dimensions being few: "
            f"capacity cannot fall below {found[0].p / rank:.3g}"
        )
    return facts, cautions + _of_accuracy(found)


def single_remarks(clouds: Clouds, conventions: Conventions, seed: int) -> Remarks:
    """Of the manifolds by themselves.

    Raises:
        Undefined: see `manifolds`.
    """
    facts, cautions = _of_sizes(solutions(clouds, conventions, seed)[0], clouds)
    found = [s for each in alone(clouds, conventions, seed) for s in each]
    crowded = [s for s in found if s.rays.rank < len(s.manifolds.gram)]
    if crowded and (full := _inside(crowded)) > _FULL:
        cautions.append(f"{full:.0%} of the targets lie inside their cone")
    return facts, cautions + _of_accuracy(found)


def _of_sizes(s: Solution, clouds: Clouds) -> Remarks:
    c, m = s.conventions, s.manifolds
    least, most = int(m.sizes.min()), int(m.sizes.max())
    points = f"{most}" if least == most else f"{least} to {most}"
    known = len(clouds.classes)
    classes = f"{s.p}" if s.p == known else f"{s.p} of {known}"
    facts = [f"{classes} classes of {points} points, rank {s.rays.rank}"]
    if m.dropped:
        facts.append(f"{m.dropped} points are at the origin or repeat others")
    cautions = []
    if least != most:
        cautions.append(f"classes have {points} points, and capacity depends on their number")
    elif most < c.points:
        cautions.append(f"{most} points a class where {c.points} were asked for")
    if c.labels == "one_vs_rest" and c.center and not c.constant:
        cautions.append("a class against the rest, centered and without bias, is hardly touched")
    return facts, cautions


def _of_accuracy(found: list[Solution]) -> list[str]:
    residual = max(s.found.residual for s in found)
    return [f"projections are accurate to {residual:.0e} only"] * (residual > _ACCURATE)


def _inside(found: list[Solution]) -> float:
    return fmean(float(s.found.full.double().mean()) for s in found)
