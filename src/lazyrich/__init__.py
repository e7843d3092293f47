"""The measuring instrument for feature learning: any PyTorch model, training run or array."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._agop import agop as agop, nfa as nfa, nfm as nfm
    from ._capture import Capture as Capture, Layer as Layer, layers as layers
    from ._comparison import compare as compare
    from ._engine import measure as measure, measure_arrays as measure_arrays
    from ._inputs import Inputs as Inputs
    from ._recorder import Recorder as Recorder
    from ._records import Record as Record, Records as Records
    from ._report import report as report
    from ._schedules import every as every, log_spaced as log_spaced
    from ._tangent_kernel import ntk as ntk
    from .errors import LazyrichError as LazyrichError, LazyrichWarning as LazyrichWarning
    from .measures import (
        CATALOGUE as CATALOGUE,
        Estimate as Estimate,
        Measure as Measure,
        Profile as Profile,
        published as published,
    )

_WHERE = {
    "measure": "_engine",
    "measure_arrays": "_engine",
    "compare": "_comparison",
    "agop": "_agop",
    "nfm": "_agop",
    "nfa": "_agop",
    "ntk": "_tangent_kernel",
    "report": "_report",
    "Recorder": "_recorder",
    "Inputs": "_inputs",
    "Capture": "_capture",
    "Layer": "_capture",
    "layers": "_capture",
    "Record": "_records",
    "Records": "_records",
    "every": "_schedules",
    "log_spaced": "_schedules",
    "CATALOGUE": "measures",
    "Measure": "measures",
    "Estimate": "measures",
    "Profile": "measures",
    "published": "measures",
    "LazyrichError": "errors",
    "LazyrichWarning": "errors",
}
__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that reading records or `--help` never loads torch."""
    if name not in _WHERE:
        raise AttributeError(f"module 'lazyrich' has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
