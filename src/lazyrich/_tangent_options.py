"""Whether what is asked of a tangent kernel makes sense."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from torch.utils.data import DataLoader

from ._capture import Capture
from ._inputs import Inputs
from ._kernel import Kind
from ._scalars import is_real, is_whole
from .errors import EmptyData, LazyrichError, ShapeError, UnknownName

By = Literal["layer", "parameter"]


def check_options(
    kind: str,
    by: str | None,
    logit: int | None,
    sketch: int | None,
    memory: float | None,
    seed: int,
) -> None:
    """Refuse options of a kernel that are none, or do not go together.

    Raises:
        UnknownName: a kind, or what to keep by, that does not exist.
        LazyrichError: anything else.
    """
    if kind not in get_args(Kind):
        raise UnknownName("kind", str(kind), get_args(Kind))
    if by is not None and by not in get_args(By):
        raise UnknownName("by", str(by), get_args(By))
    if (kind == "single") != (logit is not None):
        raise LazyrichError("logit=... says which output kind='single' is of, and goes with it.")
    for name, value in {"logit": logit, "sketch": sketch, "seed": seed}.items():
        if not is_whole(value) and (value is not None or name == "seed"):
            raise LazyrichError(f"{name}={value!r}: a whole number is needed.")
    _check_numbers(sketch, by, memory, seed)


def _check_numbers(sketch: int | None, by: str | None, memory: float | None, seed: int) -> None:
    if sketch is not None and sketch < 2:
        raise LazyrichError(f"sketch={sketch}: two random directions or more.")
    if sketch is not None and by is not None:
        raise LazyrichError("a sketch is of all parameters together: leave out by=.")
    if memory is not None and not (is_real(memory) and memory > 0):
        raise LazyrichError(f"memory={memory!r}: GiB above zero, or None for half of what is free.")
    if not -(2**63) <= seed < 2**64:
        raise LazyrichError(f"seed={seed}: a whole number of 64 bits is needed.")


def weights_by_name(
    parameters: Iterable[str], weights: Mapping[str, float] | None
) -> dict[str, float]:
    """The weight of each parameter.

    Raises:
        UnknownName: a pattern that fits none.
        LazyrichError: no mapping, a weight below zero, or none above.
    """
    names, given = list(parameters), {} if weights is None else weights
    if not isinstance(given, Mapping):
        raise LazyrichError(
            f"weights: a mapping from names of parameters to numbers, not {type(given).__name__}."
        )
    for pattern, weight in given.items():
        if not any(fnmatchcase(name, str(pattern)) for name in names):
            raise UnknownName("parameter", str(pattern), names)
        if not is_real(weight) or weight < 0:
            raise LazyrichError(f"weights: {pattern!r} has {weight!r}, where 0 or more is needed.")

    def of(name: str) -> float:
        fits = (w for pattern, w in given.items() if fnmatchcase(name, pattern))
        return float(given[name] if name in given else next(fits, 1.0))

    found = {name: of(name) for name in names}
    if not any(found.values()):
        raise LazyrichError(
            "weights: every parameter has 0, so that nothing is left of the kernel."
        )
    return found


def one_batch(capture: Capture, name: str, item: Any) -> Inputs:
    """The samples in one batch.

    Raises:
        LazyrichError: several batches, or what holds no tensor.
        EmptyData: no sample.
    """
    batches = isinstance(item, list) and all(isinstance(i, (tuple, list, Mapping)) for i in item)
    if isinstance(item, (DataLoader, Iterator)) or (batches and item):
        raise LazyrichError(
            f"{name}: one batch is needed, not a loader or several: next(iter(loader)) is one."
        )
    inputs = capture.inputs(item)
    if not inputs.tensors():
        raise ShapeError(
            f"{name}: one batch of tensors is needed, not {type(item).__name__}. "
            "torch.as_tensor(...) makes a tensor of an array; next(iter(loader)) is a batch."
        )
    if not inputs.samples(capture.samples_axis):
        raise EmptyData(f"{name}: a batch without samples.")
    return inputs
