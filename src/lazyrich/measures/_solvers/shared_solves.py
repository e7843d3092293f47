"""A layer's manifolds, solved once for all measures that read them."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...errors import Undefined
from ...statistics import Clouds
from .conventions import STANDARD, Conventions
from .jackknife import Sampled, Values, delete_groups, over_repeats
from .manifold_solution import Solution, approximation, shuffled_capacity, solution

_solved: WeakKeyDictionary[Clouds, dict[Hashable, Any]] = WeakKeyDictionary()
_FULL, _SELF_CHECK, _ACCURATE = 0.01, 4.0, 1e-9
Solve = Callable[[Clouds, Conventions, int], Any]


def once(solve: Solve) -> Solve:
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
def null_capacity(clouds: Clouds, conventions: Conventions, seed: int) -> float:
    """What is left when points keep their places and classes mean nothing."""
    return shuffled_capacity(clouds, conventions, seed)


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
    """`dimension`, `radius`, alignments and what follows from them with the capacity.

    Raises:
        Undefined: see `manifolds` and `anchors`.
    """

    def values(s: Solution, without: int) -> Values:
        found = s.shapes(without)
        utility = s.capacities(without)["capacity"] / found["approximate"]
        return found | {"utility": utility}

    each = [
        delete_groups(lambda without, s=s: values(s, without))  # type: ignore[misc]
        for s in solutions(clouds, conventions, seed)
    ]
    found = over_repeats(each)
    # the identities between them hold for the values as given, not only before correction
    approximate = approximation(found["dimension"].value, max(found["radius"].value, 0.0))
    capacity = capacities(clouds, conventions, seed)["capacity"].value
    found["approximate"] = found["approximate"].about(approximate)
    found["utility"] = found["utility"].about(capacity / approximate)
    return found


@once
def alone(clouds: Clouds, conventions: Conventions, seed: int) -> list[list[Solution]]:
    """Each manifold by itself, for each subsample, in the order of labels."""
    return [
        [s.alone(place) for place in torch.argsort(s.manifolds.classes).tolist()]
        for s in solutions(clouds, conventions, seed)
    ]
