"""Which classes go on which side, and the random targets that go with them."""

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

GROUPS = 10
_MOST = 4096  # dichotomies that are counted out; of more, hardly any would come twice


@dataclass(frozen=True)
class Draws:
    """n dichotomies of p classes, each with t normal numbers, in groups for a jackknife.

    Attributes:
        signs: side of each class, 1 or -1.
        normals: what the targets are made of.
        group: from 0 to 9; draws of different groups are independent.
    """

    signs: Float[Tensor, "n p"]
    normals: Float[Tensor, "n t"]
    group: Int[Tensor, " n"]


def draw(
    law: str | Float[np.ndarray, "l p"], p: int, t: int, draws: int, rng: np.random.Generator
) -> Draws:
    """Dichotomies and targets, spread as evenly as their number allows.

    Every dichotomy comes once before any comes again. Where a group holds each at least twice, it
    holds each as often with a target as with its opposite, which cancels the odd part of the
    noise.
    """
    rows = sign_classes(law, p) if isinstance(law, str) else law
    size = -(-draws // GROUPS)
    if rows is None:
        signs = _random(str(law), (GROUPS * size, p), rng)
    elif 2 * len(rows) > size:
        signs = _in_turn(rows, GROUPS * size, rng)
    else:
        half = round(size / (2 * len(rows))) * len(rows)
        return _mirrored(_in_turn(rows, GROUPS * half, rng), t, rng)
    normals = rng.standard_normal((GROUPS * size, t))
    group = torch.arange(GROUPS).repeat_interleave(size)
    return Draws(torch.from_numpy(signs), torch.from_numpy(normals), group)


def _mirrored(signs: Float[np.ndarray, "n p"], t: int, rng: np.random.Generator) -> Draws:
    """Each dichotomy with normal numbers and with their opposites, in the same group."""
    size = len(signs) // GROUPS
    signs = signs.reshape(GROUPS, size, -1)
    normals = rng.standard_normal((GROUPS, size, t))
    signs, normals = np.concatenate([signs, signs], 1), np.concatenate([normals, -normals], 1)
    group = torch.arange(GROUPS).repeat_interleave(2 * size)
    n = len(group)
    return Draws(
        torch.from_numpy(signs.reshape(n, -1)), torch.from_numpy(normals.reshape(n, t)), group
    )


def sign_classes(law: str, p: int) -> Float[np.ndarray, "l p"] | None:
    """Each dichotomy of p classes once, up to exchange of the sides; None if there are many.

    >>> sign_classes("balanced", 4)
    array([[ 1.,  1., -1., -1.],
           [ 1., -1.,  1., -1.],
           [ 1., -1., -1.,  1.]])
    >>> len(sign_classes("balanced", 10)), len(sign_classes("uniform", 10))
    (126, 512)
    """
    if law == "one_vs_rest":
        return 2 * np.eye(p) - 1
    if (2 ** (p - 1) if law == "uniform" else comb(p, p // 2)) > _MOST:
        return None
    if law == "uniform":
        return np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=p - 1)])
    sides = [chosen for chosen in combinations(range(p), p // 2) if p % 2 or 0 in chosen]
    rows = np.full((len(sides), p), -1.0)
    for row, chosen in zip(rows, sides, strict=True):
        row[list(chosen)] = 1
    return rows


def _in_turn(
    rows: Float[np.ndarray, "l p"], n: int, rng: np.random.Generator
) -> Float[np.ndarray, "n p"]:
    """Round after round, each in an order of its own."""
    order = [rng.permutation(len(rows)) for _ in range(-(-n // len(rows)))]
    return rows[np.concatenate(order)[:n]]


def _random(law: str, shape: tuple[int, int], rng: np.random.Generator) -> Float[np.ndarray, "n p"]:
    if law == "uniform":
        return rng.choice([1.0, -1.0], size=shape)
    row = np.where(np.arange(shape[1]) < shape[1] // 2, 1.0, -1.0)
    return rng.permuted(np.tile(row, (shape[0], 1)), axis=1)
