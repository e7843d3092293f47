"""The decorator that turns a pure function into a catalogued, cited measure."""

import inspect
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from torch import Tensor

from ..errors import LazyrichWarning, Undefined, UnknownName
from ..statistics import Batch, LinearMap, Statistic, TangentKernel, Weights

Invariance = Literal[
    "shift",
    "rotation",
    "scale",
    "order",
    "affine",
    "swap",
    "output_shift",
    "output_scale",
    "output_map",
]
Richer = Literal["low", "high", "neither"]
Curve = dict[int, float]
"""Values by rank, from 1."""


class Profile(dict[str, float]):
    """A measure's values by layer in execution order; the argument bears the measure's name."""


class Estimate(NamedTuple):
    """A value with what is known about it: what a measure returns when a number is not enough.

    Attributes:
        value: the number.
        note: a caution before trusting it, or just what stands behind it.
        caution: which of the two.
        standard_error, low, high: of a measure that draws samples itself, with `own_interval`.
        null: the level that unrelated data would give.
    """

    value: float
    note: str = ""
    caution: bool = False
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None


class Evaluated(NamedTuple):
    """What became of a measure on its data: a curve, or an estimate that may be undefined."""

    found: Estimate | Curve
    defined: bool = True


Data = Statistic | Weights | Profile | LinearMap | TangentKernel
SecondPass = Callable[[Batch, Any], Batch]


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
        own_interval: it estimates its error itself, so that no blocks of samples are left out.
        second_pass: what puts beside the rows of a second reading of the data what a first one has
            found; None where one is enough.
        options: conventions fixed by `using`, by name.
        name: the function's name.
        argument: name of the argument that carries the data.
        needs: the kind of statistic, `Weights`, `LinearMap`, `TangentKernel` or `Profile`.
        first: the kind of statistic of a first reading, where there is a second.
        takes_initial: whether it compares with the start of training.
        takes_head: whether it compares with the weights of the Linear that reads the features.
    """

    function: Callable[..., Any] = field(repr=False)
    source: str = field(repr=False)
    bounds: tuple[float, float] = field(default=(-inf, inf), repr=False)
    richer: Richer = field(default="neither", repr=False)
    invariant: frozenset[Invariance] = field(default=frozenset(), repr=False)
    estimator: str = field(default="plug-in", repr=False)
    layer: str | None = field(default=None, repr=False)
    own_interval: bool = field(default=False, repr=False)
    second_pass: SecondPass | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(init=False)
    argument: str = field(init=False, repr=False)
    needs: type[Any] = field(init=False, repr=False)
    first: type[Statistic] | None = field(init=False, repr=False)
    takes_initial: bool = field(init=False, repr=False)
    takes_head: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        argument, needs = next(iter(get_type_hints(self.function).items()))
        parameters = inspect.signature(self.function).parameters
        derived = {
            "name": self.function.__name__,
            "argument": argument,
            "needs": needs,
            "first": _first(self.second_pass),
            "takes_initial": "initial" in parameters,
            "takes_head": "head" in parameters,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "__doc__", self.function.__doc__)

    def __call__(
        self,
        data: Data,
        initial: Data | None = None,
        head: Tensor | None = None,
        **options: Any,
    ) -> float | Curve:
        found, defined = self.using(**options).evaluate(data, initial, head)
        if isinstance(found, dict):
            return found
        if found.caution or not defined:
            warnings.warn(f"{self.name}: {found.note}", LazyrichWarning, stacklevel=2)
        return found.value

    def using(self, **options: Any) -> "Measure":
        """The same measure under other conventions, which its records will state.

        Raises:
            UnknownName: an option that the measure does not have.
        """
        known = self.defaults()
        for option in options:
            if option not in known:
                raise UnknownName(f"option of {self.name}", option, known)
            words = get_args(get_type_hints(self.function).get(option))
            if words and all(isinstance(w, str) for w in words) and options[option] not in words:
                raise UnknownName(f"{option} of {self.name}", str(options[option]), words)
        return replace(self, options={**self.options, **options})

    def evaluate(
        self, data: Data, initial: Data | None = None, head: Tensor | None = None
    ) -> Evaluated:
        """The value with what is known about it, or NaN with the reason why there is none.

        Args:
            data: what the measure needs.
            initial: the same at the start of training, for measures that compare with it.
            head: weights of the Linear that reads the features, [outputs, units], for measures
                that compare with them.
        """
        beside: dict[str, Any] = {"initial": initial} if self.takes_initial else {}
        beside |= {"head": head} if self.takes_head else {}
        try:
            found = self.function(data, **beside, **self.options)
        except Undefined as reason:
            return Evaluated(Estimate(nan, str(reason)), defined=False)
        if isinstance(found, (Estimate, dict)):
            return Evaluated(found)
        return Evaluated(Estimate(found))

    def defaults(self) -> dict[str, Any]:
        """The options and what they are unless told otherwise."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    @cached_property
    def conventions(self) -> str:
        """The estimator and every option in force but the seed, as records state it."""
        options = self.defaults() | dict(self.options)
        stated = (f"{k}={v}" for k, v in options.items() if k != "seed")
        return ", ".join([self.estimator, *stated])

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
        title = self.source.replace("&", r"\&")
        fields = {"title": f"{{{title}}}", "note": f"{{measure {self.name} of lazyrich}}"}
        for key, pattern in (("doi", r"doi:([^\s,;)]+)"), ("eprint", r"arXiv:(\d+\.\d+)")):
            if found := re.search(pattern, self.source):
                fields[key] = f"{{{found[1].rstrip('.:')}}}"
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
    own_interval: bool = False,
    second_pass: SecondPass | None = None,
) -> Callable[[Callable[..., Any]], Measure]:
    """Enter a function in the catalogue, with its source and the laws its tests will hold it to.

    The first argument's annotation says what it needs: a statistic, `Weights`, a `LinearMap`, a
    `TangentKernel`, or a `Profile` of the measure that the argument is named after. A further
    argument named `initial` is the same at the start of training; one named `head` is the weight
    matrix of the Linear that reads the penultimate features. Arguments with defaults are options.
    `second_pass` is a function of a batch and of what a first reading has to find: the statistic
    that its annotation names.

    Raises:
        ValueError: another function of that name is in the catalogue already.
    """

    def enter(function: Callable[..., Any]) -> Measure:
        measure = Measure(
            function,
            source,
            bounds,
            richer,
            frozenset(invariant),
            estimator,
            layer,
            own_interval,
            second_pass,
        )
        known = CATALOGUE.get(measure.name)
        # the same function again is a module that was loaded anew, as notebooks do
        if known is not None and _place(known.function) != _place(function):
            raise ValueError(f"two measures are named {measure.name!r}")
        CATALOGUE[measure.name] = measure
        return measure

    return enter


def _first(second_pass: SecondPass | None) -> type[Statistic] | None:
    hints = get_type_hints(second_pass) if second_pass else {}
    return list(hints.values())[1] if hints else None


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__module__, function.__qualname__
