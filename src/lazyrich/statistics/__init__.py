"""Sufficient statistics: all that a measure may know about a stream of activations."""

from ._base import Batch, Statistic, leave_one_out, total
from .classes import NO_LABEL, ClassCounts, ClassMoments
from .clouds import Clouds
from .gradients import GradientMoments, OutputByOutput
from .joint import JointClassMoments, JointMoments
from .linear_map import LinearMap, top_directions
from .moments import FourthMoments, Moments
from .nearest import NearestMeans
from .pairs import CrossMoments, PairMoments
from .points import Points
from .predictions import Predictions
from .residuals import Residuals
from .tangent_kernel import TangentKernel
from .weights import Weights

__all__ = [
    "NO_LABEL",
    "Batch",
    "ClassCounts",
    "ClassMoments",
    "Clouds",
    "CrossMoments",
    "FourthMoments",
    "GradientMoments",
    "OutputByOutput",
    "JointClassMoments",
    "JointMoments",
    "LinearMap",
    "Moments",
    "NearestMeans",
    "PairMoments",
    "Points",
    "Predictions",
    "Residuals",
    "Statistic",
    "TangentKernel",
    "Weights",
    "leave_one_out",
    "total",
    "top_directions",
]
