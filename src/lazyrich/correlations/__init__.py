"""What goes with what among many models, where models of one family are no independent samples."""

from ._associations import correlate
from ._formulas import Partial, adjusted, partial_correlation
from ._models import Models
from ._prediction import predict_early

__all__ = ["Models", "Partial", "adjusted", "correlate", "partial_correlation", "predict_early"]
