"""Sufficient statistics: all that a measure may know about a stream of activations."""

from ._base import Batch, Statistic, leave_one_out, over_ranks, total
from .classes import ClassMoments
from .joint import JointClassMoments, JointMoments
from .moments import Moments
from .predictions import Predictions

__all__ = [
    "Batch",
    "ClassMoments",
    "JointClassMoments",
    "JointMoments",
    "Moments",
    "Predictions",
    "Statistic",
    "leave_one_out",
    "over_ranks",
    "total",
]
