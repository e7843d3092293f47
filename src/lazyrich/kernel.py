"""What tangent kernels say: measures of them, linearized models, regression, and known limits.

>>> from lazyrich import kernel
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ._evaluation import Cell, Heading, Table, records
from ._kernel import Kernel
from ._linearized import Linearized, remainder
from ._records import Records
from ._tangent_names import row_of
from .errors import LazyrichError, NonFinite, ShapeError, UnknownName
from .measures import CATALOGUE, Measure
from .measures.infinite_width import arc_cosine_ntk
from .measures.kernel_regression import (
    Gap,
    Loss,
    Regression,
    accuracy_gap,
    critical_rate as _critical_rate,
    kernel_regression,
    linearized_descent,
)
from .measures.tangent_kernel import ntk_velocity
from .measures.time_scales import TimeScales, time_scales
from .statistics import TangentKernel

__all__ = [
    "Gap",
    "Kernel",
    "Linearized",
    "Regression",
    "TimeScales",
    "accuracy_gap",
    "arc_cosine_ntk",
    "critical_rate",
    "kernel_regression",
    "linearized_descent",
    "measure",
    "remainder",
    "time_scales",
    "velocity",
]

_LAYERS = ("ntk_share", "ntk_change", "ntk_growth", "ntk_rotation", "ntk_layer_change")
_BEFORE = ("ntk_change", "ntk_growth", "ntk_rotation", "ntk_distance", "ntk_layer_change")
_LABELS = ("ntk_alignment", "ntk_target_share", "ntk_target_energy")


def measure(
    kernel: Kernel,
    *,
    initial: Kernel | None = None,
    labels: Any = None,
    measures: Sequence[Measure | str] | Measure | str | None = None,
    run: str = "run",
    step: int = 0,
) -> Records:
    """Measures of a tangent kernel, and layer by layer where its terms were kept.

    The row of the whole is `model`, and that of a layer with this very name `model.`.

    Args:
        kernel: of samples with themselves; `trace`, `full` or of one output.
        initial: the same at the start of training.
        labels: classes, or targets of a regression as [n] or [n, c]. For a full kernel of several
            outputs a class is the number of its output.
        measures: names, globs or measures of tangent kernels; None for all that the data allows.
        run, step: names for the records, to follow a training run.

    Raises:
        ShapeError: kernels or labels that do not fit each other.
        NonFinite: NaN or infinity in them.
        UnknownName: no such measure.
        LazyrichError: labels that are no outputs of a full kernel, or no `Kernel`.
    """
    whole = _statistic(kernel, initial, labels)
    chosen = _chosen(measures)
    if measures is None:
        chosen = [
            m
            for m in chosen
            if (initial is not None or m.name not in _BEFORE)
            and (labels is not None or m.name not in _LABELS)
        ]
        distance = CATALOGUE["ntk_distance"]
        chosen += [distance.using(centered=True)] * (distance in chosen)
    parts = {"model": whole} | _parts(kernel, initial, whole)
    table: Table = {
        layer: {m: _cell(part, m, kernel) for m in chosen if layer == "model" or m.name in _LAYERS}
        for layer, part in parts.items()
    }
    heading = Heading(run, f"{kernel.kind} kernel", 0, step)
    if measures is None and len(parts) == 1:
        chosen = [m for m in chosen if m.name != "ntk_share"]  # of the whole it is 1
    return records(table, chosen, heading, {})


def velocity(before: Kernel, after: Kernel, duration: float, *, centered: bool = False) -> float:
    """Kernel distance for a unit of time, see `ntk_velocity`.

    Raises:
        LazyrichError: no duration above zero, or kernels that do not fit.
    """
    return ntk_velocity(_statistic(after, before, None), duration, centered=centered)


def critical_rate(kernel: Kernel, loss: Loss = "mse", *, probabilities: Any = None) -> float:
    """Learning rate above which the linearized loss grows, see `measures.kernel_regression`.

    Raises:
        LazyrichError: a kernel that is not of all pairs of outputs: it would allow too much; or
            one that is zero.
        NonFinite: NaN or infinity in it.
        UnknownName: no such loss.
        ShapeError: probabilities that do not fit.
    """
    _check(kernel, "critical rates")
    if loss not in get_args(Loss):
        raise UnknownName("loss", loss, get_args(Loss))
    if kernel.matrix.ndim != 2 or (kernel.kind != "full" and kernel.classes > 1):
        raise LazyrichError(
            f"a {kernel.kind!r} kernel of {kernel.classes} outputs has a smaller largest "
            "eigenvalue than kind='full', which is needed here."
        )
    return _critical_rate(kernel.matrix, kernel.n, loss=loss, probabilities=probabilities)


def _cell(part: TangentKernel, m: Measure, kernel: Kernel) -> Cell:
    return Cell(m.evaluate(part), n=kernel.n, d=kernel.classes, dtype=kernel.dtype)


def _statistic(kernel: Kernel, initial: Kernel | None, labels: Any) -> TangentKernel:
    _check(kernel, "measures")
    if initial is not None:
        _check(initial, "measures")
        now, start = ((k.kind, k.n, k.classes) for k in (kernel, initial))
        if now != start:
            raise ShapeError(
                "the kernel is {!r} of {} samples and {} outputs, ".format(*now)
                + "and was {!r} of {} and {} at the start: ".format(*start)
                + "the same kind on the same samples is needed."
            )
    matrix = kernel.matrix
    targets = None if labels is None else _targets(labels, kernel).to(matrix.device)
    before = None if initial is None else initial.matrix.to(matrix.device)
    precision = torch.finfo(getattr(torch, kernel.dtype)).eps
    outputs = kernel.classes if kernel.kind == "full" else 1
    return TangentKernel(matrix, before, targets, precision=precision, outputs=outputs)


def _check(kernel: Kernel, what: str) -> None:
    """Refuse what is no kernel of samples with themselves."""
    if not isinstance(kernel, Kernel):
        raise LazyrichError(
            f"{what} are of a Kernel, as lz.ntk returns it, not of {type(kernel).__name__}."
        )
    if kernel.matrix.ndim != 2 or kernel.n != kernel.m or kernel.crossed:
        others = f"{kernel.m} others" if kernel.crossed else f"{kernel.m}"
        raise ShapeError(
            f"a {kernel.kind!r} kernel of {kernel.n} samples with {others}: {what} are of one "
            "kernel of samples with themselves, such as lz.ntk(model, x)."
        )
    if not kernel.matrix.isfinite().all():
        raise NonFinite("the kernel holds NaN or infinity.")


def _parts(
    kernel: Kernel, initial: Kernel | None, whole: TangentKernel
) -> dict[str, TangentKernel]:
    before = {} if initial is None else initial.terms
    return {
        row_of(name): TangentKernel(
            term, before.get(name), None, whole, whole.precision, whole.outputs
        )
        for name, term in kernel.terms.items()
    }


def _targets(labels: Any, kernel: Kernel) -> Tensor:
    """One column for each class, or the targets of a regression; side by side for all outputs."""
    found = _numbers(labels, kernel.n)
    of_outputs = kernel.kind == "full" and kernel.classes > 1
    if found.ndim == 1 and not found.is_floating_point():
        if of_outputs:
            found = _of_outputs(found, kernel.classes)
        else:
            found = one_hot(torch.unique(found, return_inverse=True)[1])
    found = found.double().reshape(kernel.n, -1)
    if not of_outputs:
        return found
    if found.shape[1] != kernel.classes:
        raise ShapeError(
            f"targets of {found.shape[1]} columns for a full kernel of {kernel.classes} outputs."
        )
    return found.reshape(-1, 1)


def _of_outputs(labels: Tensor, classes: int) -> Tensor:
    """One column for each output, where a label is the number of one."""
    if labels.min() < 0 or labels.max() >= classes:
        raise LazyrichError(
            f"labels: {int(labels.min())} to {int(labels.max())} for a full kernel of {classes} "
            "outputs: numbers of outputs are needed, counted from 0."
        )
    return (labels[:, None] == torch.arange(classes, device=labels.device)).long()


def _numbers(labels: Any, n: int) -> Tensor:
    try:
        found = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"labels: numbers are needed ({error}).") from error
    if found.ndim not in (1, 2) or len(found) != n:
        raise ShapeError(f"{n} samples came with labels of {tuple(found.shape)}.")
    if found.is_complex():
        raise LazyrichError("labels: classes or real targets are needed, not complex numbers.")
    if not found.isfinite().all():
        raise NonFinite("labels: NaN or infinity is no target.")
    return found


def _chosen(measures: Sequence[Measure | str] | Measure | str | None) -> list[Measure]:
    known = {name: m for name, m in CATALOGUE.items() if m.needs is TangentKernel}
    if measures is None:
        return list(known.values())
    asked: Iterable[Measure | str] = (
        [measures] if isinstance(measures, (str, Measure)) else measures
    )
    chosen: list[Measure] = []
    for one in asked:
        if isinstance(one, Measure):
            if one.needs is not TangentKernel:
                raise LazyrichError(
                    f"{one.name}: no measure of kernels. There is {', '.join(known)}."
                )
            chosen.append(one)
            continue
        hits = [m for name, m in known.items() if fnmatchcase(name, one)]
        if not hits:
            raise UnknownName("measure", one, known)
        chosen += hits
    return chosen
