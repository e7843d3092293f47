"""Kernel ridge regression in a given metric, and the AGOP of what it finds."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import get_lapack_funcs
from torch import Tensor

from .._memory import free_memory
from ..errors import LazyrichError, MemoryRefused
from ._kernel import ROWS, Kernel, blocks, fill, mirror, squared_distances
from ._machine import Machine, Metric
from ._outer_products import Expansion, by_gradients, outer_products
from ._recipe import Recipe
from ._rows import Rows

_SMALL_PIVOT = 1e-5  # below, the inverse of a factor keeps less than half of the digits
_FLOAT64_UP_TO = 3000  # rows; beyond, the time doubles and digits that data rarely has are bought


class NotPositiveDefinite(LazyrichError):
    """A kernel matrix that rounding has made indefinite."""


@dataclass(frozen=True)
class _Problem:
    """The rows as tensors of one dtype, centered."""

    mean: np.ndarray
    x: Float[Tensor, "n d"]
    y: Float[Tensor, "n c"]
    offset: np.ndarray
    weights: Float[Tensor, " n"]

    @classmethod
    def of(cls, rows: Rows, recipe: Recipe, dtype: torch.dtype) -> "_Problem":
        mean = np.average(rows.x.astype(np.float64), axis=0, weights=rows.weights)
        offset = np.zeros(rows.y.shape[1])
        if recipe.center_targets:
            offset = np.average(rows.y, axis=0, weights=rows.weights)

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(recipe.torch_device, dtype)

        x, y = tensor(rows.x - mean), tensor(rows.y - offset)
        return cls(mean, x, y, offset, tensor(rows.weights))


class Exact:
    """One square of memory: K, then its Cholesky factor below, slopes above.

    Raises:
        MemoryRefused: the square would not fit.
    """

    def __init__(self, rows: Rows, recipe: Recipe) -> None:
        self._rows, self._recipe = rows, recipe
        self._square = torch.empty(0, 0)
        usual = "float64" if len(rows) <= _FLOAT64_UP_TO else "float32"
        self._allocate(getattr(torch, usual if recipe.dtype == "auto" else recipe.dtype))

    def _allocate(self, dtype: torch.dtype) -> None:
        n, d = self._rows.x.shape
        copies = 1 if self._recipe.device is None else 2  # torch factors into a square of its own
        numbers = copies * n * n + 4 * n * (d + min(n, ROWS)) + n * max(d, n // 8)
        need = dtype.itemsize * numbers + 24 * d * d
        check_memory(f"{n} distinct rows in {dtype}".replace("torch.", ""), need, self._recipe)
        self._square = torch.empty(0, 0)  # an old one goes before the new one comes
        self._problem = _Problem.of(self._rows, self._recipe, dtype)
        self._square = torch.empty(n, n, dtype=dtype, device=self._problem.x.device)

    def solve(self, metric: Metric) -> Machine:
        """In float64 where float32 is not enough.

        Raises:
            NotPositiveDefinite: not even float64 is.
        """
        try:
            return self._solve(metric)
        except NotPositiveDefinite:
            if self._problem.x.dtype == torch.float64:
                raise
            self._allocate(torch.float64)
            return self._solve(metric)

    def _solve(self, metric: Metric) -> Machine:
        p, square = self._problem, self._square
        z = metric.coordinates(p.x)
        kernel = Kernel(self._recipe.width(z), self._recipe.exponent)
        fill(square, z, kernel)
        square.diagonal().add_(self._recipe.reg / p.weights)
        factor_and_solve = _by_torch if self._recipe.device is not None else _by_lapack
        alpha = factor_and_solve(square, p.y)
        return Machine(p.mean, metric, kernel, Expansion(z, alpha), p.offset)

    def agop(self, machine: Machine) -> Float[Tensor, "*rows d"]:
        """In the coordinates of the machine that was solved last; its factor is given up."""
        found = outer_products(
            mirror(self._square),
            machine.expansion,
            self._problem.weights,
            diagonal=self._recipe.diagonal,
        )
        return found.mean(center=self._recipe.center_gradients)


def _by_lapack(square: Tensor, y: Tensor) -> Tensor:
    """In place, as nothing but LAPACK itself offers; the triangle above stays as it is."""
    a = square.numpy().T  # in LAPACK's order the lower triangle is the upper
    potrf, potrs = get_lapack_funcs(("potrf", "potrs"), (a,))
    factor, info = potrf(a, lower=0, overwrite_a=1, clean=0)
    if info:
        raise _indefinite(square.dtype)
    alpha, _ = potrs(factor, np.asfortranarray(y.numpy()), lower=0)
    return torch.from_numpy(np.ascontiguousarray(alpha))


def _by_torch(square: Tensor, y: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(square)
    if int(info):
        raise _indefinite(square.dtype)
    return torch.cholesky_solve(y, factor)


def _indefinite(dtype: torch.dtype) -> NotPositiveDefinite:
    return NotPositiveDefinite(
        f"the kernel matrix is not positive definite in {dtype}: raise reg, or lower exponent "
        "(kernels of exponent 2 are nearly singular) or bandwidth."
    )


class Nystrom:
    """Centers at some of the rows only; the ridge and the AGOP are over all of them.

    Always in float64: m x m normal equations square the condition number.
    """

    def __init__(self, rows: Rows, recipe: Recipe, count: int) -> None:
        (n, d), c = rows.x.shape, rows.y.shape[1]
        numbers = 4 * count * count + n * (2 * d + c + 1) + 4 * min(n, ROWS) * (count + d)
        check_memory(f"{count} landmarks for {n} rows", 8 * numbers + 24 * d * d, recipe)
        self._recipe = recipe
        self._problem = _Problem.of(rows, recipe, torch.float64)
        chosen = np.random.default_rng(recipe.seed).permutation(n)[:count]
        self._chosen = torch.from_numpy(np.sort(chosen)).to(self._problem.x.device)

    def solve(self, metric: Metric) -> Machine:
        p = self._problem
        z = metric.coordinates(p.x)
        centers = z[self._chosen]
        kernel = Kernel(self._recipe.width(z), self._recipe.exponent)
        whiten = _whitening(kernel.values(squared_distances(centers, centers)))
        normal = self._recipe.reg * torch.eye(whiten.shape[1]).to(whiten)
        right = torch.zeros(whiten.shape[1], p.y.shape[1]).to(whiten)
        for start, stop in blocks(len(z)):
            features = kernel.values(squared_distances(z[start:stop], centers)) @ whiten
            weighted = (features * p.weights[start:stop, None]).T
            normal += weighted @ features
            right += weighted @ p.y[start:stop]
        alpha = whiten @ torch.cholesky_solve(right, torch.linalg.cholesky(normal))
        return Machine(p.mean, metric, kernel, Expansion(centers, alpha), p.offset)

    def agop(self, machine: Machine) -> Float[Tensor, "*rows d"]:
        """Of all rows, in the coordinates of the machine."""
        z, f = machine.metric.coordinates(self._problem.x), machine.expansion

        def slopes(start: int, stop: int) -> Tensor:
            squared = squared_distances(z[start:stop], f.centers)
            return machine.kernel.values_and_slopes(squared)[1]

        found = by_gradients(slopes, z, f, self._problem.weights, diagonal=self._recipe.diagonal)
        return found.mean(center=self._recipe.center_gradients)


def _whitening(k: Float[Tensor, "m m"]) -> Float[Tensor, "m r"]:
    """B with B' K B = 1, of as many columns as K has rank in this precision."""
    factor, info = torch.linalg.cholesky_ex(k)
    pivots = factor.diagonal()
    if not int(info) and float(pivots.min()) > _SMALL_PIVOT * float(pivots.max()):
        inverse: Tensor = torch.linalg.solve_triangular(
            factor, torch.eye(len(k)).to(k), upper=False
        )
        return inverse.T
    values, vectors = torch.linalg.eigh(k)  # ten times slower, and sure
    keep = values > len(k) * torch.finfo(k.dtype).eps * values[-1]
    whitened: Tensor = vectors[:, keep] / values[keep].sqrt()
    return whitened


def solver(rows: Rows, recipe: Recipe) -> Exact | Nystrom:
    """Exact unless there are more rows than landmarks."""
    if recipe.landmarks is None or recipe.landmarks >= len(rows):
        return Exact(rows, recipe)
    return Nystrom(rows, recipe, recipe.landmarks)


def check_memory(what: str, need: float, recipe: Recipe) -> None:
    """Refuse before the work what would not fit.

    Raises:
        MemoryRefused: with the estimate and what to do.
    """
    device = recipe.torch_device
    if recipe.memory_limit is not None:
        allowed = recipe.memory_limit * 2**30
    elif device.type == "cuda":
        allowed = float(torch.cuda.mem_get_info(device)[0])
    else:
        allowed = free_memory() / 2
    if need > allowed:
        raise MemoryRefused(
            f"{what} need {need / 2**30:.3g} GiB, and {allowed / 2**30:.3g} GiB are allowed. "
            "Set landmarks (Nyström) or max_leaf_size (a tree of machines), choose "
            "dtype='float32', or raise memory_limit (GiB)."
        )
