"""The decorator that turns a pure function into a catalogued, cited measure."""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isnan, nan
from typing import Any, Literal, NamedTuple, get_type_hints

from ..errors import LazyrichWarning, Undefined, UnknownName
from ..statistics import Statistic

Invariance = Literal[
    "shift", "rotation", "scale", "order", "affine", "output_shift", "output_scale", "output_map"
]
Richer = Literal["low", "high", "neither"]
Curve = dict[int, float]
"""Values by rank, from 1."""


class Profile(dict[str, float]):
    """A measure's values by layer in execution order; the argument bears the measure's name."""


class Noted(NamedTuple):
    """A value with a note: a caution before trusting it, or just what stands behind it."""

    value: float
    note: str
    caution: bool = True


class Evaluated(NamedTuple):
    """What became of a measure on a statistic."""

    value: float | Curve
    note: str = ""
    status: Literal["ok", "caution", "undefined"] = "ok"


@dataclass(frozen=True, eq=False)
class Measure:
    """A published measure: a pure function, with what is known about it.

    Call it on what it needs to get its value; NaN, with a warning that says why, where the value
    is undefined.

    Attributes:
        function: the formula.
        source: the publication.
        bounds: the least and the largest value it can take.
        richer: which way is richer feature learning, where the source says so.
        invariant: the changes of the data that leave it as it is.
        estimator: how the value is estimated from samples.
        layer: the one layer that it makes sense for (`outputs`), or None for any.
        options: conventions fixed by `using`, by name.
        name: the function's name.
        argument: name of the argument that carries the data.
        needs: the kind of statistic, or `Profile`.
    """

    function: Callable[..., Any] = field(repr=False)
    source: str = field(repr=False)
    bounds: tuple[float, float] = field(default=(-inf, inf), repr=False)
    richer: Richer = field(default="neither", repr=False)
    invariant: frozenset[Invariance] = field(default=frozenset(), repr=False)
    estimator: str = field(default="plug-in", repr=False)
    layer: str | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(init=False)
    argument: str = field(init=False, repr=False)
    needs: type[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        argument, needs = next(iter(get_type_hints(self.function).items()))
        derived = {"name": self.function.__name__, "argument": argument, "needs": needs}
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    def __call__(self, data: Statistic | Profile, **options: Any) -> float | Curve:
        value, note, status = self.using(**options).evaluate(data)
        if status != "ok":
            warnings.warn(f"{self.name}: {note}", LazyrichWarning, stacklevel=2)
        return value

    def using(self, **options: Any) -> "Measure":
        """The same measure under other conventions, which its records will state.

        Raises:
            UnknownName: an option that the measure does not have.
        """
        known = self.defaults()
        for option in options:
            if option not in known:
                raise UnknownName(f"option of {self.name}", option, known)
        return replace(self, options={**self.options, **options})

    def evaluate(self, data: Statistic | Profile) -> Evaluated:
        """The value with its caveat, or NaN with the reason why there is none."""
        try:
            value = self.function(data, **self.options)
        except Undefined as reason:
            return Evaluated(nan, str(reason), "undefined")
        if isinstance(value, Noted):
            return Evaluated(value.value, value.note, "caution" if value.caution else "ok")
        if isinstance(value, float) and isnan(value):
            return Evaluated(nan, "not a number", "undefined")
        return Evaluated(value)

    def defaults(self) -> dict[str, Any]:
        """The options and what they are unless told otherwise."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    @property
    def conventions(self) -> str:
        """The estimator and every option in force, as records state it."""
        options = self.defaults() | dict(self.options)
        return ", ".join([self.estimator, *(f"{k}={v}" for k, v in options.items())])

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def formula(self) -> str:
        """The first formula of the docstring, as TeX."""
        found = re.search(r"\$(.+?)\$", self.function.__doc__ or "", re.DOTALL)
        return " ".join(found[1].split()) if found else ""

    @property
    def bibtex(self) -> str:
        """The source as a BibTeX entry, for whoever uses the measure to cite its authors."""
        fields = {"title": f"{{{self.source}}}", "note": f"{{measure {self.name} of lazyrich}}"}
        for key, pattern in (("doi", r"doi:([^\s,;)]+)"), ("eprint", r"arXiv:(\d+\.\d+)")):
            if found := re.search(pattern, self.source):
                fields[key] = f"{{{found[1]}}}"
        body = "".join(f"  {key} = {value},\n" for key, value in fields.items())
        return f"@misc{{lazyrich_{self.name},\n{body}}}"

    @property
    def module(self) -> str:
        """The file it is defined in, without its package."""
        return self.function.__module__.rpartition(".")[2]


CATALOGUE: dict[str, Measure] = {}


def published(
    source: str,
    *,
    bounds: tuple[float, float] = (-inf, inf),
    richer: Richer = "neither",
    invariant: set[Invariance] | frozenset[Invariance] = frozenset(),
    estimator: str = "plug-in",
    layer: str | None = None,
) -> Callable[[Callable[..., Any]], Measure]:
    """Enter a function in the catalogue, with its source and the laws its tests will hold it to.

    The first argument's annotation says what it needs: a statistic, or a `Profile` of the measure
    that the argument is named after. Arguments with defaults are options.

    Raises:
        ValueError: another function of that name is in the catalogue already.
    """

    def enter(function: Callable[..., Any]) -> Measure:
        measure = Measure(function, source, bounds, richer, frozenset(invariant), estimator, layer)
        known = CATALOGUE.get(measure.name)
        if known is not None and known.function.__qualname__ != function.__qualname__:
            raise ValueError(f"two measures are named {measure.name!r}")
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(f"two measures are named {measure.name!r}")
        CATALOGUE[measure.name] = measure
        return measure

    return enter
