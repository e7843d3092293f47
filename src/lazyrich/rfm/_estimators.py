"""Recursive Feature Machines for numbers and for classes."""

from math import isnan
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ..errors import LazyrichError, ShapeError, UnknownName
from ._base import RecursiveFeatureMachine
from ._tree import Executor


class RFMRegressor(RegressorMixin, RecursiveFeatureMachine):  # type: ignore[misc]
    """Kernel ridge regression in a metric that it learns from its own gradients.

    Reference: Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639.
    Everything but landmarks and trees is exact: equal rows are merged with their weights, and
    weights count as repetitions.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 10))
    >>> machine = RFMRegressor().fit(X, X[:, 0] * X[:, 1])
    >>> sorted(machine.feature_importances_.argsort()[-2:].tolist())
    [0, 1]
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        executor: Executor | None = None,
    ) -> Self:
        """Learn from [n, d] and targets [n] or [n, c].

        Args:
            X, y: at least two distinct rows, unless selection is None.
            sample_weight: [n], 0 or more; a weight of 2 is the same row twice.
            X_val, y_val: rows to choose the iteration by, in place of a part of X; then M and the
                function are those learned from X when it was chosen.
            executor: with `.submit`, where the leaves of a tree are fitted.

        Raises:
            LazyrichError: the data or an option cannot be used; the message says what to do.
        """
        x, targets = self._checked(X, y, multi_output=True, y_numeric=True)
        self._flat = targets.ndim == 1
        given = None
        if X_val is not None or y_val is not None:
            x_val, wanted = self._checked_rest(X_val, y_val, multi_output=True, y_numeric=True)
            if wanted.shape[1:] != targets.shape[1:]:
                raise ShapeError(
                    f"y_val has shape {wanted.shape} beside y of {targets.shape}: the same outputs."
                )
            given = x_val, _columns(wanted)
        return self._fit((x, _columns(targets), sample_weight), given, executor, classify=False)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Of [n, d]: [n], or [n, c] if the targets were."""
        x = self._seen(X)
        outputs: NDArray[Any] = self._tree(x).astype(x.dtype)
        return outputs[:, 0] if self._flat else outputs

    def _told(self) -> dict[str, Any]:
        return super()._told() | {"flat": self._flat}

    def _recall(self, told: dict[str, Any]) -> None:
        super()._recall(told)
        self._flat = told["flat"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class RFMClassifier(ClassifierMixin, RecursiveFeatureMachine):  # type: ignore[misc]
    """Kernel ridge regression on 0/1 indicators of the classes, in a metric that it learns.

    Reference: Radhakrishnan, Beaglehole, Pandit & Belkin 2024, doi:10.1126/science.adi5639.
    The largest output is the prediction. Probabilities are softmax(outputs / T), with the T that
    fits the rows which were held out; without such rows the nearest point of the simplex.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(300, 10))
    >>> machine = RFMClassifier().fit(X, np.where(X[:, 0] * X[:, 1] > 0, "same", "other"))
    >>> machine.predict([[1, 1] + 8 * [0]])
    array(['same'], dtype='<U5')

    Attributes:
        classes_: labels, in the order of the columns.
    """

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        executor: Executor | None = None,
    ) -> Self:
        """Learn from [n, d] and labels [n] of any kind, of two classes or more.

        Args:
            X, y, sample_weight, X_val, y_val, executor: as in `RFMRegressor.fit`.

        Raises:
            LazyrichError: the data or an option cannot be used; the message says what to do.
        """
        x, labels = self._checked(X, y)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise LazyrichError(f"y has one class only, {str(self.classes_[0])!r}: two or more.")
        given = None
        if X_val is not None or y_val is not None:
            x_val, wanted = self._checked_rest(X_val, y_val)
            for label in np.setdiff1d(wanted, self.classes_):
                raise UnknownName("class of y", str(label), map(str, self.classes_))
            given = x_val, self._indicators(np.searchsorted(self.classes_, wanted))
        targets = self._indicators(codes)
        return self._fit((x, targets, sample_weight), given, executor, classify=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Labels of [n, d]: [n]."""
        x = self._seen(X)
        return np.asarray(self.classes_[self._tree(x).argmax(1)])

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Outputs [n, k]; of two classes how far the second is above the first, [n]."""
        x = self._seen(X)
        outputs: NDArray[Any] = self._tree(x).astype(x.dtype)
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Probabilities [n, k]."""
        x = self._seen(X)
        outputs = self._tree(x)
        t = self._tree.temperature
        found = _nearest_in_simplex(outputs) if isnan(t) else softmax(outputs / t, axis=1)
        return np.asarray(found.astype(x.dtype))

    def _told(self) -> dict[str, Any]:
        kind = "object" if self.classes_.dtype == object else self.classes_.dtype.str
        return super()._told() | {"classes": self.classes_.tolist(), "kind": kind}

    def _recall(self, told: dict[str, Any]) -> None:
        super()._recall(told)
        self.classes_ = np.array(told["classes"], dtype=told["kind"])

    def _indicators(self, codes: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.eye(len(self.classes_))[codes]


def _columns(y: NDArray[Any]) -> NDArray[np.float64]:
    return y.reshape(len(y), -1).astype(np.float64)


def _nearest_in_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """By Euclidean distance: max(row - theta, 0) with the theta that makes sums of 1."""
    ordered = -np.sort(-rows, axis=1)
    counts = np.arange(1, rows.shape[1] + 1)
    thetas = (ordered.cumsum(1) - 1) / counts
    used = (ordered > thetas).sum(1)
    return np.asarray(np.maximum(rows - thetas[np.arange(len(rows)), used - 1][:, None], 0))
