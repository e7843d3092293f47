"""What Recursive Feature Machines share, with the interface of scikit-learn."""

from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import tensor

from ..errors import LazyrichError, ShapeError, UnreadableFile
from ._machine import Metric, Normalization
from ._recipe import Bandwidth, Choice, Precision, Recipe, Selection, whole
from ._rows import Rows
from ._saved import read, write
from ._tree import Executor, Tree, grow

_FLOATS = [np.float64, np.float32]


class RecursiveFeatureMachine(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """What the regressor and the classifier share: options, the metric, and files."""

    def __init__(
        self,
        *,
        bandwidth: Bandwidth = 10.0,
        exponent: float = 1.0,
        reg: float = 1e-3,
        iterations: int = 4,
        diagonal: bool = False,
        normalize: Normalization = "trace",
        center_gradients: bool = False,
        center_targets: bool = False,
        selection: Selection = "validation",
        validation_fraction: float = 0.2,
        folds: int = 5,
        landmarks: int | None = None,
        max_leaf_size: int | None = None,
        dtype: Precision = "auto",
        device: str | None = None,
        memory_limit: float | None = None,
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        """Options are checked when data comes.

        Args:
            bandwidth: L, in the units of the features; "median" for the median distance of two
                rows, anew in every metric. Scale features alike, as with StandardScaler.
            exponent: q of the kernel exp(-(r / L)^q): 1 for Laplace, up to 2 for the Gaussian.
            reg: lambda on the diagonal of the kernel matrix, not times n.
            iterations: how often M is updated, at most.
            diagonal: learn a weight for each feature in place of a matrix.
            normalize: scale M to trace d ("trace"), to largest entry 1 ("max", as the packages rfm
                and xrfm; depends on the basis), or take the AGOP as it is (None, as the paper).
            center_gradients: take off the mean gradient of each output.
            center_targets: predict the mean of the targets far from all data, in place of 0.
            selection: choose how many updates to keep by rows that are held out ("validation") or
                by cross-validation ("cv"), and learn from all rows; or keep all updates (None).
            validation_fraction: share of the distinct rows that is held out.
            folds: of the cross-validation.
            landmarks: centers at so many rows only (Nyström), where a square matrix over all rows
                does not fit; None for the exact solution.
            max_leaf_size: halve the rows along the top direction of the AGOP until leaves are that
                small, with a machine in each, as in xRFM; None for one machine.
            dtype: "float32" takes half the time and memory, and goes on in float64 if rounding
                makes the kernel matrix indefinite; "auto" is float64 up to 3000 rows. Landmarks
                are always in float64.
            device: None to solve with LAPACK in one square; "cuda", or another device of torch.
            memory_limit: GiB that a fit may take; None for half of what is free, on a GPU all.
            random_state: of all divisions and choices of rows.
            progress: a bar on stderr after three seconds, where that is a terminal.
        """
        self.bandwidth = bandwidth
        self.exponent = exponent
        self.reg = reg
        self.iterations = iterations
        self.diagonal = diagonal
        self.normalize = normalize
        self.center_gradients = center_gradients
        self.center_targets = center_targets
        self.selection = selection
        self.validation_fraction = validation_fraction
        self.folds = folds
        self.landmarks = landmarks
        self.max_leaf_size = max_leaf_size
        self.dtype = dtype
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """X times the root of M_: coordinates whose Euclidean distance is the one learned."""
        x = self._seen(X)
        leaves = self._tree.leaves
        metric = leaves[0].machine.metric if len(leaves) == 1 else Metric.of(tensor(self.M_))
        return np.asarray(metric.cpu().coordinates(tensor(x)).numpy())

    def save(self, path: str | Path) -> Path:
        """Write a safetensors file, which holds numbers and JSON and no code.

        Raises:
            LazyrichError: it cannot be written, or an option or label is no number or text.
        """
        check_is_fitted(self)
        about = {
            "class": type(self).__name__,
            "options": self.get_params(deep=False),
            "fitted": self._told(),
        }
        write(Path(path), self._tree, about)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` has written, on the CPU.

        Raises:
            UnreadableFile: it is no such file, or holds another kind of machine.
        """
        tree, about = read(Path(path))
        if about["class"] != cls.__name__:
            raise UnreadableFile(f"{path} holds an {about['class']}, and no {cls.__name__}.")
        try:
            machine = cls(**about["options"])
            machine._recall(about["fitted"])
        except (KeyError, TypeError) as error:
            raise UnreadableFile(f"{path} is of another version of lazyrich ({error}).") from error
        machine._tree = tree
        return machine

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_tree")

    def _told(self) -> dict[str, Any]:
        """What is known of the data."""
        told: dict[str, Any] = {"n_features": self.n_features_in_}
        if hasattr(self, "feature_names_in_"):
            told["feature_names"] = self.feature_names_in_.tolist()
        return told

    def _recall(self, told: dict[str, Any]) -> None:
        self.n_features_in_ = told["n_features"]
        if "feature_names" in told:
            self.feature_names_in_ = np.array(told["feature_names"], dtype=object)

    @property
    def M_(self) -> NDArray[np.float64]:
        """[d, d], or [d] if diagonal; of a tree the mean over leaves by their weight."""
        check_is_fitted(self)
        return self._tree.mean(lambda fit: fit.machine.metric.matrix.cpu().numpy())

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The diagonal of M over its sum, [d]."""
        m = self.M_
        diagonal = m if m.ndim == 1 else m.diagonal()
        return np.asarray(diagonal / diagonal.sum())

    @property
    def top_directions_(self) -> NDArray[np.float64]:
        """Eigenvectors of M in rows, the largest eigenvalue first.

        Signs are chosen so that the largest entry is positive.
        """
        m = self.M_
        _, vectors = np.linalg.eigh(np.diag(m) if m.ndim == 1 else m)
        rows = vectors.T[::-1]
        largest = np.abs(rows).argmax(1)
        return np.asarray(rows * np.sign(rows[np.arange(len(rows)), largest])[:, None])

    @property
    def iteration_(self) -> float:
        """Updates of M that were kept; of a tree the mean over leaves."""
        check_is_fitted(self)
        return float(self._tree.mean(lambda fit: np.array(fit.iteration)))

    @property
    def validation_scores_(self) -> NDArray[np.float64]:
        """After 0, 1, ... updates, on rows that were held out: accuracy, or - mean squared error.

        Empty if none were; of a tree the mean over leaves.
        """
        check_is_fitted(self)
        return self._tree.mean(lambda fit: fit.scores)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_in_)

    def _fit(
        self,
        data: tuple[NDArray[Any], NDArray[np.float64], ArrayLike | None],
        given: tuple[NDArray[Any], NDArray[np.float64]] | None,
        executor: Executor | None,
        classify: bool,
    ) -> Self:
        x, targets, sample_weight = data
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        same = {f.name: getattr(self, f.name) for f in fields(Recipe) if f.name != "seed"}
        recipe = Recipe(seed=seed, **same)
        choice = Choice(self.selection, self.validation_fraction, self.folds)
        if given is not None and self.selection != "validation":
            raise LazyrichError(
                f"selection={self.selection!r} makes no use of X_val and y_val: leave them out, or "
                "choose selection='validation'."
            )
        if self.max_leaf_size is not None:
            whole("max_leaf_size", self.max_leaf_size, least=2, other="None")
        rows = Rows.merged(x, targets, _weights(sample_weight, len(x)))
        rest = None if given is None else Rows(*given, np.ones(len(given[0])))
        self._tree: Tree = grow(
            rows,
            recipe,
            choice,
            rest,
            max_leaf_size=self.max_leaf_size,
            classify=classify,
            executor=executor,
        )
        return self

    def _checked(
        self, X: ArrayLike, y: ArrayLike, **how: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        x, targets = validate_data(self, X, y, dtype=_FLOATS, **how)
        return x, targets

    def _checked_rest(
        self, X_val: ArrayLike | None, y_val: ArrayLike | None, **how: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows to choose by, like those that were learned from."""
        if X_val is None or y_val is None:
            raise LazyrichError("X_val and y_val come together: one of them is missing.")
        return self._checked(X_val, y_val, reset=False, **how)

    def _seen(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=_FLOATS))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """One for each sample.

    Raises:
        LazyrichError: it is no such thing, or below 0.
    """
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(
        check_array(sample_weight, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
    )
    if weights.shape != (n,):
        raise ShapeError(f"sample_weight has shape {weights.shape}: one for each of {n} samples.")
    if (weights < 0).any():
        raise LazyrichError("sample_weight has entries below 0: a weight counts repetitions.")
    return weights
