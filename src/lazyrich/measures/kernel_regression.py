"""What a fixed kernel can do with the training data, and whether the network does better."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .._kernel import Kernel
from .._scalars import is_real, is_whole
from ..errors import LazyrichError, LazyrichWarning, NonFinite, ShapeError, UnknownName

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
    kernel: Kernel | Tensor,
    across: Kernel | Tensor,
    targets: Tensor,
    *,
    ridges: Sequence[float] | float = RIDGES,
    folds: int = 5,
    outputs: int | None = None,
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
        ridges: to choose from, beside the mean of the diagonal; or a single one.
        folds: of the training samples.
        outputs: rows that each sample has, which stay in one fold; None for those of a full
            `Kernel`, and one for a tensor.
        seed: deals them to the folds.

    Raises:
        ShapeError: kernels and targets that do not fit each other.
        NonFinite: NaN or infinity in them.
        LazyrichError: no ridge above zero, fewer than two folds or more than samples, or a kernel
            that is zero.
    """
    k = _outputs(kernel, outputs)
    kernel, across, targets = _fitting(kernel, across, targets)
    n, samples = len(kernel), len(kernel) // k
    if n % k:
        raise ShapeError(f"a kernel of {n} rows is not the full one of {k} outputs.")
    ridges = tuple(ridges) if isinstance(ridges, Iterable) else (ridges,)
    positive = ridges and all(is_real(r) and r > 0 for r in ridges)
    if not positive or not is_whole(folds) or not 2 <= folds <= samples:
        raise LazyrichError(
            f"ridges={ridges}, folds={folds}: ridges above zero and 2 to {samples} folds."
        )
    size = kernel.diagonal().mean()
    if not size > 0:
        raise LazyrichError("the kernel is zero: nothing can be predicted with it.")
    random = torch.Generator().manual_seed(seed)
    dealt = torch.randperm(samples, generator=random).remainder(folds)
    dealt = dealt.repeat_interleave(k).to(kernel.device)
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
    kernel: Kernel | Tensor,
    across: Kernel | Tensor,
    targets: Tensor,
    rate: float,
    steps: int,
    *,
    outputs: int | None = None,
    samples: int | None = None,
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
        outputs: k, by which torch's `mse_loss` divides, too; None for those of a full `Kernel`, and
            for the columns of the targets otherwise.
        samples: n; None for the rows of the kernel, over k where the targets are one column of all
            k outputs.
        loss: `mse`, the mean over n samples and k outputs; `half`, half the sum over outputs,
            averaged over samples.

    Raises:
        ShapeError: kernels and targets that do not fit each other.
        LazyrichError: a rate or a whole number of steps below zero, or no such loss.
        NonFinite: NaN or infinity in what is given, or in what a rate that is too large leads to.

    Warns:
        LazyrichWarning: a rate above the critical one: the outputs grow from step to step.
    """
    own = _outputs(kernel, None)
    kernel, across, targets = _fitting(kernel, across, targets)
    n = len(kernel)
    outputs = outputs if outputs is not None else max(own, targets.shape[1])
    whole = is_whole(steps) and is_whole(outputs)
    if not whole or not is_real(rate) or rate < 0 or steps < 0 or outputs < 1:
        raise LazyrichError(
            f"rate={rate}, steps={steps}, outputs={outputs}: numbers, the last two whole, and none "
            "below zero."
        )
    if loss not in ("mse", "half"):
        raise UnknownName("loss", str(loss), ("mse", "half"))
    rows = samples or (n // outputs if targets.shape[1] == 1 else n)
    if n not in (rows, rows * outputs):
        raise ShapeError(
            f"a kernel of {n} rows is none of {rows} samples, nor the full one with {outputs} "
            "outputs."
        )
    pace = 2 * rate / (rows * outputs) if loss == "mse" else rate / rows
    values, axes = torch.linalg.eigh(kernel)
    fastest = pace * float(values[-1])
    if fastest > 2:
        warnings.warn(
            f"rate={rate} is {fastest / 2:.3g} times the critical one of this kernel: the "
            "linearized model diverges.",
            LazyrichWarning,
            stacklevel=2,
        )
    slow = pace * values.clamp(min=0)
    reached = torch.where(
        slow < 0.5, -torch.expm1(steps * torch.log1p(-slow.clamp(max=0.5))), 1 - (1 - slow) ** steps
    )
    gain = torch.where(slow > 0, reached / values.clamp(min=1e-300), pace * steps)
    learned: Tensor = across @ (axes @ (gain[:, None] * (axes.T @ targets)))
    if not learned.isfinite().all():
        raise NonFinite(f"rate={rate}: the linearized model diverges beyond all numbers.")
    return learned


def critical_rate(
    kernel: Tensor,
    samples: int,
    *,
    loss: Loss = "mse",
    probabilities: Any = None,
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
        LazyrichError: probabilities that are none, or a loss without curvature.
    """
    rows = len(kernel)
    if kernel.ndim != 2 or kernel.shape[1] != rows or rows % samples:
        raise ShapeError(
            f"a kernel of {tuple(kernel.shape)} is not the full one of {samples} samples."
        )
    k = kernel.double()
    if loss == "cross_entropy":
        p = _probabilities(probabilities, samples, rows // samples).to(k)
        values, axes = torch.linalg.eigh(torch.diag_embed(p) - p[:, :, None] * p[:, None, :])
        roots = axes * values.clamp(min=0).sqrt()[:, None] @ axes.mT
        blocks = k.view(samples, rows // samples, samples, rows // samples)
        k = torch.einsum("iab,ibjc,jcd->iajd", roots, blocks, roots).reshape(rows, rows)
    largest = float(torch.linalg.eigvalsh(k)[-1])
    if not largest > 0:
        raise LazyrichError(
            "the loss has no curvature, or the kernel is zero: no rate is too large."
        )
    return (rows if loss == "mse" else 2 * samples) / largest


class Gap(NamedTuple):
    """A difference of two accuracies on the same test points, with a 95 % interval."""

    value: float
    low: float
    high: float


def accuracy_gap(network: Any, baseline: Any, *, draws: int = 2000, seed: int = 0) -> Gap:
    """How much more often a network is right than a kernel, by the paired bootstrap.

    A gap above zero says that the network is not lazy; none says nothing. Beside the linearized
    model at the same step it is zero for lazy networks; beside converged regression it may be
    below.

    Reference: Efron & Tibshirani 1993, chapter 13 (percentile intervals).

    Args:
        network, baseline: whether each is right at each test point, [m], as bool or 0 and 1.
        draws: of test points with replacement.
        seed: of them.

    Raises:
        ShapeError: not the same test points, or none.
        LazyrichError: answers that are not right or wrong, or no draws.
    """
    if not is_whole(draws) or draws < 1:
        raise LazyrichError(f"draws={draws}: one or more.")
    right, wanted = _answers("network", network), _answers("baseline", baseline)
    if right.shape != wanted.shape or right.ndim != 1 or not len(right):
        raise ShapeError(
            f"{tuple(right.shape)} and {tuple(wanted.shape)} answers: one for each test point."
        )
    difference = right - wanted
    m, random = len(difference), torch.Generator().manual_seed(seed)
    counts = torch.stack([(difference == v).sum() for v in (-1, 0, 1)]).double() / m
    # resampled differences are multinomial counts of -1, 0 and 1
    drawn = torch.multinomial(counts, m * draws, replacement=True, generator=random) - 1
    means = drawn.view(draws, m).double().mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.double)).tolist()
    return Gap(float(difference.mean()), low, high)


def _answers(name: str, given: Any) -> Tensor:
    found = _numbers(name, given).cpu()
    if not ((found == 0) | (found == 1)).all():
        raise LazyrichError(f"{name}: whether each answer is right is needed, as bool or 0 and 1.")
    return found


def _probabilities(given: Any, samples: int, classes: int) -> Float[Tensor, "n k"]:
    if given is None:
        raise ShapeError("cross-entropy needs the probabilities of all outputs of all samples.")
    found = _numbers("probabilities", given)
    if found.shape != (samples, classes):
        raise ShapeError(
            f"probabilities of {tuple(found.shape)} for {samples} samples of {classes} classes."
        )
    if (found < 0).any() or not ((found.sum(1) - 1).abs() < 1e-2).all():  # as bfloat16 rounds
        raise LazyrichError("probabilities: they are below 0, or do not sum to 1 for each sample.")
    return found


def _outputs(kernel: Any, given: int | None) -> int:
    if given is not None:
        if not is_whole(given) or given < 1:
            raise LazyrichError(f"outputs={given!r}: one or more, or None.")
        return given
    return kernel.classes if isinstance(kernel, Kernel) and kernel.kind == "full" else 1


def _fitting(
    kernel: Any, across: Any, targets: Any
) -> tuple[Float[Tensor, "n n"], Float[Tensor, "m n"], Float[Tensor, "n c"]]:
    if isinstance(kernel, Kernel) and kernel.crossed:
        raise ShapeError("kernel: that of the training samples with themselves is needed.")
    k, test, aims = (
        _numbers(name, given.matrix if isinstance(given, Kernel) else given)
        for name, given in (("kernel", kernel), ("across", across), ("targets", targets))
    )
    n, shapes = len(k), [tuple(t.shape) for t in (k, test, aims)]
    if any(len(s) != 2 for s in shapes) or k.shape[1] != n or test.shape[1] != n:
        raise ShapeError(f"kernels of {shapes[0]} and {shapes[1]}: [n, n] and [m, n] are needed.")
    if len(aims) != n:
        raise ShapeError(f"targets of {shapes[2]} for a kernel of {n} rows: one row each.")
    return k, test, aims


def _numbers(name: str, given: Any) -> Tensor:
    """In float64.

    Raises:
        ShapeError: no array of real numbers.
        NonFinite: NaN or infinity among them.
    """
    try:
        found = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"{name}: an array of numbers is needed ({error}).") from error
    if found.is_complex() or not found.ndim:
        raise ShapeError(f"{name}: an array of real numbers is needed.")
    if not found.isfinite().all():
        raise NonFinite(f"{name}: NaN or infinity among the numbers.")
    return found.double()
