"""Recursive Feature Machines: kernel machines that learn features, for scikit-learn."""

from ._estimators import RFMClassifier as RFMClassifier, RFMRegressor as RFMRegressor

__all__ = ["RFMClassifier", "RFMRegressor"]
