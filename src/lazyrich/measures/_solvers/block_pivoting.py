"""Exact multipliers by block principal pivoting, for many targets that share one Gram matrix.

For a target with heights b over the rays and signs y, mu solves
    min 1/2 mu' K mu - b' mu   subject to   y * mu >= 0.
Once it is known which entries are zero, the others solve K_FF mu_F = b_F: signs drop out. Pivoting
guesses the set F, solves, and moves all entries that break a condition at once; where that stops
helping, one at a time, which ends for certain.

Reference: Júdice & Pires 1994, doi:10.1016/0305-0548(94)90106-6; Kim & Park 2011.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.linalg.lapack import dposv
from torch import Tensor

_TOLERANCE = 1e-12
_STEPS = 60
_SINGULAR = 1e-7  # diagonal of a Cholesky factor of unit rays, of which so much is rounding
_PROXIMAL = 4
_PATIENCE = 3  # exchanges of whole blocks without progress before single ones
_PADDING = 1.15  # systems of sizes up to so much apart are solved together


def pivot_each(
    gram: Float[np.ndarray, "t t"],
    heights: Float[np.ndarray, "n t"],
    signs: Float[np.ndarray, "n t"],
    start: Bool[np.ndarray, "n t"],
) -> tuple[Float[np.ndarray, "n t"], Bool[np.ndarray, " n"]]:
    """One target after the other, with LAPACK: the faster way on a CPU.

    Returns:
        Signed multipliers, and which targets are solved.
    """
    mu = np.zeros_like(heights)
    solved = np.zeros(len(heights), dtype=bool)
    for k, free in enumerate(start):
        found = _pivot(gram, heights[k], signs[k], free)
        if found is not None:
            mu[k], solved[k] = found, True
    return mu, solved


def _pivot(
    gram: Float[np.ndarray, "t t"],
    b: Float[np.ndarray, " t"],
    y: Float[np.ndarray, " t"],
    free: Bool[np.ndarray, " t"],
) -> Float[np.ndarray, " t"] | None:
    threshold = _TOLERANCE * np.abs(b).max()
    fewest, patience = len(b) + 1, _PATIENCE
    for _ in range(_STEPS):
        mu = np.zeros_like(b)
        slope = -b
        at = np.flatnonzero(free)
        if len(at):
            rows = gram[at]
            factor, mu[at], failed = dposv(rows[:, at], b[at], lower=1, overwrite_a=1)
            if failed or factor.diagonal().min() < _SINGULAR:
                return None
            slope = mu[at] @ rows - b
        wrong = np.where(free, y * mu < 0, y * slope < -threshold)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return mu
        patience = _PATIENCE if count < fewest else patience - 1
        fewest = min(count, fewest)
        if patience < 0:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free = free ^ wrong
    return None


def pivot_together(
    gram: Float[Tensor, "t t"],
    heights: Float[Tensor, "n t"],
    signs: Float[Tensor, "n t"],
    start: Bool[Tensor, "n t"],
    memory: int = 1 << 28,
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """All targets at once on any device, systems of like size in one batched Cholesky.

    Args:
        memory: bytes that a batch of systems may take.

    Returns:
        Signed multipliers, and which targets are solved.
    """
    n, t = heights.shape
    mu = torch.zeros_like(heights)
    solved = torch.zeros(n, dtype=torch.bool, device=heights.device)
    free = start.clone()
    fewest = torch.full((n,), t + 1, device=heights.device)
    patience = torch.full_like(fewest, _PATIENCE)
    threshold = _TOLERANCE * heights.abs().amax(1, keepdim=True)
    live = torch.arange(n, device=heights.device)
    for _ in range(_STEPS):
        if not len(live):
            break
        found, regular = _free_solutions(gram, heights, free, live, memory)
        slope = found @ gram - heights[live]
        y, now = signs[live], free[live]
        wrong = torch.where(now, y * found < 0, y * slope < -threshold[live])
        count = wrong.sum(1)
        done = regular & (count == 0)
        mu[live[done]], solved[live[done]] = found[done], True
        better = count < fewest[live]
        patience[live] = torch.where(better, _PATIENCE, patience[live] - 1)
        fewest[live] = torch.minimum(count, fewest[live])
        free[live] = now ^ _exchanged(wrong, patience[live] < 0)
        live = live[regular & ~done]
    return mu, solved


def dependent_solutions(
    gram: Float[Tensor, "t t"],
    heights: Float[Tensor, "n t"],
    shifted: tuple[float, Float[Tensor, "n t"]],
    memory: int = 1 << 28,
) -> tuple[Float[Tensor, "n t"], Bool[Tensor, " n"]]:
    """Exact multipliers from those of a Gram matrix with a little added to its diagonal.

    Where the free rays are independent, theirs is the one solution. Where they depend on each
    other, as all do in a face that holds a line, steps of the proximal point method lead to one.

    Args:
        shifted: what was added, and the multipliers.

    Returns:
        Signed multipliers, and which are of independent rays.
    """
    shift, near = shifted
    free = near != 0
    mu, independent = _free_solutions(
        gram, heights, free, torch.arange(len(near), device=near.device), memory
    )
    rest = torch.nonzero(~independent).flatten()
    ridge = gram + shift * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    for _ in range(_PROXIMAL):
        left = heights - near @ gram
        near[rest] += _free_solutions(ridge, left, free, rest, memory)[0]
    return torch.where(independent[:, None], mu, near), independent


def _exchanged(wrong: Bool[Tensor, "m t"], single: Bool[Tensor, " m"]) -> Bool[Tensor, "m t"]:
    """All wrong entries, or the last of them alone."""
    place = torch.arange(wrong.shape[1], device=wrong.device)
    last = torch.where(wrong, place, -1).amax(1, keepdim=True)
    return torch.where(single[:, None], wrong & (place == last), wrong)


def _free_solutions(
    gram: Float[Tensor, "t t"],
    heights: Float[Tensor, "n t"],
    free: Bool[Tensor, "n t"],
    live: Int[Tensor, " m"],
    memory: int,
) -> tuple[Float[Tensor, "m t"], Bool[Tensor, " m"]]:
    """Solutions of K_FF mu_F = b_F, zero elsewhere, and where K_FF has a Cholesky factor."""
    found = heights.new_zeros(len(live), heights.shape[1])
    regular = torch.ones(len(live), dtype=torch.bool, device=live.device)
    sizes, order = free[live].sum(1).sort()
    for part in _batches(sizes.tolist(), memory):
        chosen = order[part]
        rows = free[live[chosen]]
        width = max(int(sizes[part.stop - 1]), 1)
        at = torch.argsort(rows.to(torch.int8), dim=1, descending=True, stable=True)[:, :width]
        real = rows.gather(1, at)
        system = gram[at[:, :, None], at[:, None, :]] * (real[:, :, None] & real[:, None, :])
        system.diagonal(dim1=1, dim2=2)[~real] = 1  # padding solves to zero by itself
        factor, info = torch.linalg.cholesky_ex(system)
        right = heights[live[chosen]].gather(1, at) * real
        values = torch.cholesky_solve(right[..., None], factor)[..., 0] * real
        found[chosen] = torch.zeros_like(found[chosen]).scatter_(1, at, values)
        pivots = factor.diagonal(dim1=1, dim2=2)
        regular[chosen] = (info == 0) & (pivots.amin(1) >= _SINGULAR)
    return found, regular


def _batches(sizes: list[int], memory: int) -> list[slice]:
    """Runs of sorted sizes that are near each other and fit into memory when padded."""
    runs, start = [], 0
    for stop in range(1, len(sizes) + 1):
        if stop < len(sizes):
            wide = sizes[stop]
            near = wide <= max(_PADDING * sizes[start], sizes[start] + 4)
            if near and (stop + 1 - start) * wide * wide * 8 <= memory:
                continue
        runs.append(slice(start, stop))
        start = stop
    return runs
