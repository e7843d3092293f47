"""What a fixed kernel can do with the training data, and whether the network does better."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import LazyrichError, ShapeError

Loss = Literal["mse", "half", "cross_entropy"]
RIDGES = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class Regression(NamedTuple):
    """Kernel ridge regression with the ridge that held-out training data chose.

    Attributes:
        predictions: at the test points.
        ridge: beside the mean of the kernel's diagonal.
        scores: mean held-out loss by ridge.
    """

    predictions: Float[Tensor, "m c"]
    ridge: float
    scores: dict[float, float]


def kernel_regression(
    kernel: Tensor,
    across: Tensor,
    targets: Tensor,
    *,
    ridges: Sequence[float] = RIDGES,
    folds: int = 5,
    seed: int = 0,
) -> Regression:
    r"""Kernel ridge regression: what a kernel that stays as it is can learn.

    $K_{*} (K + r \bar k I)^{-1} Y$ with $\bar k = \operatorname{tr} K / n$

    Of the kernel at the start of training: what a lazy network would reach. Of the kernel at the
    end, the after-kernel: what the kernel that was learned could do by itself. The ridge is chosen
    by squared error on folds of the training data, and never sees the test points.

    Reference: Jacot, Gabriel & Hongler 2018, arXiv:1806.07572; after-kernels as in Long 2021,
    arXiv:2105.10585.

    Args:
        kernel: of the training samples, [n, n].
        across: of the test samples with them, [m, n].
        targets: of the training samples, [n, c]; less the outputs at the start, to start there.
        ridges: to choose from, beside the mean of the diagonal.
        folds: of the training samples.
        seed: deals them to the folds.

    Raises:
        ShapeError: kernels and targets that do not fit each other.
        LazyrichError: no ridge above zero, or fewer than two folds or more than samples.
    """
    n = _fitting(kernel, across, targets)
    if not ridges or min(ridges) <= 0 or not 2 <= folds <= n:
        raise LazyrichError(
            f"ridges={tuple(ridges)}, folds={folds}: ridges above zero and 2 to {n} folds."
        )
    kernel, across, targets = kernel.double(), across.double(), targets.double()
    size = kernel.diagonal().mean()
    random = torch.Generator().manual_seed(seed)
    dealt = torch.randperm(n, generator=random).to(kernel.device).remainder(folds)
    errors = torch.zeros(len(ridges), dtype=torch.double)
    for fold in range(folds):
        held, kept = dealt == fold, dealt != fold
        values, axes = torch.linalg.eigh(kernel[kept][:, kept])
        aims, seen = axes.T @ targets[kept], kernel[held][:, kept] @ axes
        for place, ridge in enumerate(ridges):
            guess = seen @ (aims / (values.clamp(min=0) + ridge * size)[:, None])
            errors[place] += float((guess - targets[held]).square().sum()) / n
    best = ridges[int(errors.argmin())]
    solved = torch.linalg.solve(kernel + best * size * torch.eye(n).to(kernel), targets)
    return Regression(across @ solved, best, dict(zip(ridges, errors.tolist(), strict=True)))


def linearized_descent(
    kernel: Tensor,
    across: Tensor,
    targets: Tensor,
    rate: float,
    steps: int,
    *,
    outputs: int = 1,
    loss: Literal["mse", "half"] = "mse",
) -> Float[Tensor, "m c"]:
    r"""What the linearized model has added to its outputs after full-batch gradient descent.

    $K_{*} U \frac{1 - (1 - \eta' \Lambda)^t}{\Lambda} U^\top (Y - f_0)$ with
    $K = U \Lambda U^\top$, in closed form, no training: the fair comparison with a network after t
    steps of the same rate.

    Reference: Lee et al. 2019, arXiv:1902.06720, equations 8-11 in discrete time.

    Args:
        kernel: of the training samples: the full one, with targets flattened to one column, or any
            kernel that stands for one for each column of targets.
        across: of the test samples with them, [m, n].
        targets: less the outputs at the start.
        rate: the network's learning rate.
        steps: of it.
        outputs: k, by which torch's `mse_loss` divides, too.
        loss: `mse`, the mean over n samples and k outputs; `half`, half the sum over outputs,
            averaged over samples.

    Raises:
        ShapeError: kernels and targets that do not fit each other.
        LazyrichError: a rate or a number of steps below zero, or no such loss.
    """
    n = _fitting(kernel, across, targets)
    if rate < 0 or steps < 0 or outputs < 1 or loss not in ("mse", "half"):
        raise LazyrichError(
            f"rate={rate}, steps={steps}, outputs={outputs}, loss={loss!r}: none below zero, and "
            "'mse' or 'half'."
        )
    rows = n // outputs if targets.shape[1] == 1 else n  # samples: a full kernel has n k rows
    pace = 2 * rate / (rows * outputs) if loss == "mse" else rate / rows
    values, axes = torch.linalg.eigh(kernel.double())
    slow = pace * values.clamp(min=0)
    reached = torch.where(
        slow < 0.5, -torch.expm1(steps * torch.log1p(-slow.clamp(max=0.5))), 1 - (1 - slow) ** steps
    )
    gain = torch.where(slow > 0, reached / values.clamp(min=1e-300), pace * steps)
    learned: Tensor = axes @ (gain[:, None] * (axes.T @ targets.double()))
    return across.double() @ learned


def critical_rate(
    kernel: Tensor,
    samples: int,
    *,
    loss: Loss = "mse",
    probabilities: Tensor | None = None,
) -> float:
    r"""The learning rate of gradient descent above which the linearized loss grows.

    $2 / \lambda_{\max}(H)$ with H the Gauss-Newton matrix: $n k / \lambda_{\max}(K)$ for torch's
    mean squared error over n samples and k outputs, $2 n / \lambda_{\max}(K)$ for half the sum of
    squares averaged over samples, and $2 n / \lambda_{\max}(S^{1/2} K S^{1/2})$ for cross-entropy
    averaged over samples, S being $\operatorname{diag}(p) - p p^\top$ for each sample. Beyond it,
    networks shrink their kernel or diverge.

    Reference: Lewkowycz et al. 2020, arXiv:2003.02218.

    Args:
        kernel: the full kernel of the training samples. Sums or means over outputs have a smaller
            largest eigenvalue, and would allow too much.
        samples: n; the kernel has n k rows.
        loss: which.
        probabilities: of the classes, [n, k], for cross-entropy.

    Raises:
        ShapeError: a kernel or probabilities that do not fit.
    """
    rows = len(kernel)
    if kernel.ndim != 2 or kernel.shape[1] != rows or rows % samples:
        raise ShapeError(
            f"a kernel of {tuple(kernel.shape)} is not the full one of {samples} samples."
        )
    k = kernel.double()
    if loss == "cross_entropy":
        if probabilities is None or probabilities.numel() != rows:
            raise ShapeError("cross-entropy needs the probabilities of all outputs of all samples.")
        p = probabilities.double()
        values, axes = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
        roots = axes * values.clamp(min=0).sqrt()[:, None] @ axes.mT
        blocks = k.view(samples, rows // samples, samples, rows // samples)
        k = torch.einsum("iab,ibjc,jcd->iajd", roots, blocks, roots).reshape(rows, rows)
    return (rows if loss == "mse" else 2 * samples) / float(torch.linalg.eigvalsh(k)[-1])


class Gap(NamedTuple):
    """A difference of two accuracies on the same test points, with a 95 % interval."""

    value: float
    low: float
    high: float


def accuracy_gap(network: Tensor, baseline: Tensor, *, draws: int = 2000, seed: int = 0) -> Gap:
    """How much more often a network is right than a kernel, by the paired bootstrap.

    A gap above zero says that the network is not lazy; none says nothing. Beside the linearized
    model at the same step it is zero for lazy networks; beside converged regression it may be
    below.

    Reference: Efron & Tibshirani 1993, chapter 13 (percentile intervals).

    Args:
        network, baseline: whether each is right at each test point, [m].
        draws: of test points with replacement.
        seed: of them.

    Raises:
        ShapeError: not the same test points, or none.
    """
    if network.shape != baseline.shape or network.ndim != 1 or not len(network):
        raise ShapeError(
            f"{tuple(network.shape)} and {tuple(baseline.shape)} answers: one for each test point."
        )
    difference = network.double().cpu() - baseline.double().cpu()
    m, random = len(difference), torch.Generator().manual_seed(seed)
    counts = torch.stack([(difference == v).sum() for v in (-1, 0, 1)]).double() / m
    # resampled differences are multinomial counts of -1, 0 and 1
    drawn = torch.multinomial(counts, m * draws, replacement=True, generator=random) - 1
    means = drawn.view(draws, m).double().mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    return Gap(float(difference.mean()), low, high)


def _fitting(kernel: Tensor, across: Tensor, targets: Tensor) -> int:
    n = len(kernel)
    shapes = [tuple(t.shape) for t in (kernel, across, targets)]
    if any(len(s) != 2 for s in shapes) or kernel.shape[1] != n or across.shape[1] != n:
        raise ShapeError(f"kernels of {shapes[0]} and {shapes[1]}: [n, n] and [m, n] are needed.")
    if len(targets) != n:
        raise ShapeError(f"targets of {shapes[2]} for a kernel of {n} rows: one row each.")
    return n
