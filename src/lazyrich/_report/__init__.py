"""One offline HTML page drawn from records alone; never loads torch or numpy."""

from .page import report

__all__ = ["report"]
