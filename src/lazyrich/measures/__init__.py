"""Published measures, one file each. A file dropped in this folder is in the catalogue."""

from importlib import import_module
from pkgutil import iter_modules

from ._published import (
    CATALOGUE,
    Curve,
    Estimate,
    Evaluated,
    Measure,
    Profile,
    SecondPass,
    published,
)

for _module in iter_modules(__path__):
    if not _module.name.startswith("_"):
        import_module(f"{__name__}.{_module.name}")

__all__ = [
    "CATALOGUE",
    "Curve",
    "Estimate",
    "Evaluated",
    "Measure",
    "Profile",
    "SecondPass",
    "published",
]
