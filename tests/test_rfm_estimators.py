"""Recursive Feature Machines as scikit-learn uses them: data of all kinds, choices, files."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lazyrich.errors import (
    LazyrichError,
    MemoryRefused,
    ShapeError,
    TooFewSamples,
    UnknownName,
    UnreadableFile,
)
from lazyrich.rfm import RFMClassifier, RFMRegressor, _fitting, _saved
from lazyrich.rfm._rows import Rows, folds, held_out

Data = tuple[NDArray[np.float64], NDArray[Any]]


def product(n: int = 200, d: int = 8, seed: int = 0) -> Data:
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x, x[:, 0] * x[:, 1]


def signs(n: int = 200, d: int = 8, seed: int = 0) -> Data:
    x, y = product(n, d, seed)
    return x, np.where(y > 0, 1, -1)


@parametrize_with_checks(
    [
        RFMRegressor(),
        RFMClassifier(),
        RFMClassifier(max_leaf_size=40, landmarks=10, diagonal=True, bandwidth="median"),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_features_are_learned() -> None:
    (x, y), (new, wanted) = product(600, 20), product(400, 20, seed=1)
    found = RFMRegressor().fit(x, y)
    plain = RFMRegressor(iterations=0, selection=None).fit(x, y)
    assert found.score(new, wanted) > 0.9 > 0.6 > plain.score(new, wanted)
    assert found.iteration_ > 0
    assert set(found.feature_importances_.argsort()[-2:]) == {0, 1}
    assert found.feature_importances_.sum() == pytest.approx(1)
    top = found.top_directions_[:2, :2]
    assert np.abs(np.linalg.det(top)) > 0.98
    assert np.allclose(found.top_directions_ @ found.top_directions_.T, np.eye(20), atol=1e-12)
    inside = found.transform(x[:5])
    apart = x[0] - x[1]
    assert np.square(inside[0] - inside[1]).sum() == pytest.approx(apart @ found.M_ @ apart)


def test_the_choice_is_on_rows_that_are_not_learned_from() -> None:
    (x, y), (x_val, y_val) = product(), product(60, seed=1)
    given = RFMRegressor().fit(x, y, X_val=x_val, y_val=y_val)
    fixed = [RFMRegressor(selection=None, iterations=t).fit(x, y) for t in range(5)]
    errors = [np.square(f.predict(x_val) - y_val).mean() for f in fixed]
    assert given.validation_scores_ == pytest.approx(-np.array(errors))
    assert given.iteration_ == np.argmin(errors)
    best = fixed[int(given.iteration_)]
    assert np.array_equal(given.M_, best.M_)  # from X alone
    for selection in ("validation", "cv"):
        chosen = RFMRegressor(selection=selection).fit(x, y)
        assert len(chosen.validation_scores_) == 5
        assert chosen.iteration_ == chosen.validation_scores_.argmax()
        again = RFMRegressor(selection=None, iterations=int(chosen.iteration_)).fit(x, y)
        assert np.array_equal(chosen.M_, again.M_)  # from all rows
    assert len(fixed[0].validation_scores_) == 0


def test_cross_validation_holds_each_row_out_once() -> None:
    x, y = product(15, 3)
    found = RFMRegressor(selection="cv", folds=15, iterations=2).fit(x, y)
    for t in range(3):
        plain, rows = RFMRegressor(selection=None, iterations=t), np.arange(15)
        errors = [plain.fit(x[rows != i], y[rows != i]).predict(x[[i]]) - y[i] for i in rows]
        assert found.validation_scores_[t] == pytest.approx(-np.square(errors).mean())


def test_every_class_is_on_both_sides() -> None:
    labels = np.repeat([0, 1, 2, 3], [60, 30, 9, 1])
    x = np.random.default_rng(0).normal(size=(100, 3))
    rows = Rows.merged(x, np.eye(4)[labels], np.ones(100))
    ((most, rest),) = held_out(rows, 0.2, 0, stratified=True)
    assert rest.y.sum(0).tolist() == [12, 6, 2, 0]
    assert most.y.sum(0).tolist() == [48, 24, 7, 1]
    counts = np.array([rest.y.sum(0) for _, rest in folds(rows, 5, 0, stratified=True)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert counts.sum(0).tolist() == [60, 30, 9, 1]


@pytest.mark.parametrize("labels", [["no", "yes"], [-1, 1], [True, False], [2.0, 7.0], [3, 9, 4]])
def test_labels_of_any_kind_come_back(labels: list[Any]) -> None:
    x = np.random.default_rng(0).normal(size=(90, 3))
    y = np.array(labels)[np.digitize(x[:, 0], [-0.4, 0.4][: len(labels) - 1])]
    found = RFMClassifier().fit(x, y)
    assert found.predict(x).dtype == y.dtype
    assert found.score(x, y) > 0.95
    assert sorted(found.classes_.tolist()) == sorted(labels)
    assert found.decision_function(x).shape == ((90, 3) if len(labels) == 3 else (90,))


def test_temperature_makes_probabilities_honest() -> None:
    x, y = signs(400, 5)
    flips = np.random.default_rng(1).random(400) < 0.2
    y = np.where(flips, -y, y)
    new, wanted = signs(2000, 5, seed=2)
    wanted = np.where(np.random.default_rng(3).random(2000) < 0.2, -wanted, wanted)
    for selection in ("validation", "cv"):
        found = RFMClassifier(selection=selection, reg=0.1).fit(x, y)
        t = found._tree.temperature
        outputs = found._tree(new)

        def loss(temperature: float, outputs: Any = outputs) -> float:
            raised = np.exp(outputs / temperature)
            return log_loss(wanted, raised / raised.sum(1, keepdims=True))

        assert log_loss(wanted, found.predict_proba(new)) == pytest.approx(loss(t))
        assert loss(t) < min(loss(t / 3), loss(t * 3), np.log(2))


def test_without_rows_held_out_outputs_go_to_the_nearest_probabilities() -> None:
    x, y = load_iris(return_X_y=True)
    found = RFMClassifier(selection=None).fit(x, y)
    outputs, probabilities = found.decision_function(x), found.predict_proba(x)
    assert probabilities.sum(1) == pytest.approx(np.ones(150))
    assert np.array_equal(probabilities.argmax(1), outputs.argmax(1))
    corners = np.random.default_rng(0).dirichlet(np.ones(3), size=2000)
    for row, nearest in zip(outputs[::30], probabilities[::30], strict=True):
        assert np.square(row - nearest).sum() <= np.square(row - corners).sum(1).min() + 1e-12


def test_names_of_features_and_pipelines() -> None:
    x, y = product(80, 3)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    found = RFMRegressor().set_output(transform="pandas").fit(frame, y)
    assert list(found.feature_names_in_) == ["a", "b", "c"]
    assert list(found.transform(frame).columns) == [f"rfmregressor{i}" for i in range(3)]
    search = GridSearchCV(RFMRegressor(), {"reg": [1e-3, 10.0], "diagonal": [False, True]}, cv=2)
    assert search.fit(x, y).best_params_["reg"] == 1e-3
    (x, y), (new, wanted) = product(300, 10), product(300, 10, seed=1)
    near = KNeighborsRegressor()
    steps = make_pipeline(StandardScaler(), RFMRegressor(), near)
    assert steps.fit(1e3 * x, y).score(1e3 * new, wanted) > 0.8
    assert near.fit(x, y).score(new, wanted) < 0.5
    assert cross_val_score(RFMClassifier(), *signs(80), cv=2).mean() > 0.5
    copy = clone(RFMClassifier(reg=0.2, bandwidth="median"))
    assert (copy.reg, copy.bandwidth) == (0.2, "median")


def test_float32_stays_float32() -> None:
    x, y = product(60, 3)
    found = RFMRegressor().fit(x.astype(np.float32), y.astype(np.float32))
    assert found.predict(x.astype(np.float32)).dtype == np.float32
    assert found.transform(x.astype(np.float32)).dtype == np.float32
    assert found.predict(x).dtype == np.float64
    assert np.allclose(found.predict(x), RFMRegressor().fit(x, y).predict(x), atol=1e-4)


def test_shapes_of_targets() -> None:
    x, y = product(60, 3)
    flat, one, two = (RFMRegressor().fit(x, t) for t in (y, y[:, None], np.stack([y, -y], 1)))
    assert flat.predict(x).shape == (60,)
    assert one.predict(x).shape == (60, 1)
    assert two.predict(x).shape == (60, 2)
    assert np.array_equal(one.predict(x)[:, 0], flat.predict(x))


def test_columns_that_do_not_vary_have_no_weight() -> None:
    x, y = product(60, 3)
    x[:, 2] = 7.0
    found = RFMRegressor(selection=None).fit(x, y)
    assert found.feature_importances_[2] == 0
    wanted = RFMRegressor(selection=None, normalize=None, iterations=1)
    without = clone(wanted).fit(x[:, :2], y)
    assert np.allclose(wanted.fit(x, y).M_[:2, :2], without.M_, rtol=1e-10)


def test_no_global_generator_is_touched() -> None:
    x, y = product(60, 3)
    np.random.seed(3)  # noqa: NPY002
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    one = RFMRegressor(landmarks=20).fit(x, y)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(torch_before, torch.get_rng_state())
    same, other = (RFMRegressor(landmarks=20, random_state=s).fit(x, y) for s in (0, 1))
    assert np.array_equal(one.M_, same.M_)
    assert not np.array_equal(one.M_, other.M_)


@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("max_leaf_size", [None, 30])
def test_files(classify: bool, max_leaf_size: int | None, tmp_path: Path) -> None:
    x, y = product(100, 3)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    options = {"max_leaf_size": max_leaf_size, "reg": np.float64(0.1), "random_state": 4}
    if classify:
        found = RFMClassifier(**options).fit(frame, np.where(y > 0, "up", "down"))
    else:
        found = RFMRegressor(**options).fit(frame, y)
    path = found.save(tmp_path / "deep" / "machine.safetensors")
    for back in (type(found).load(path), pickle.loads(pickle.dumps(found))):
        for outputs in ("transform", "predict_proba" if classify else "predict"):
            wanted = getattr(found, outputs)(frame)
            assert np.allclose(getattr(back, outputs)(frame), wanted, rtol=1e-12, atol=1e-14)
        assert np.array_equal(back.M_, found.M_)
        assert np.array_equal(back.validation_scores_, found.validation_scores_)
        assert back.get_params() == found.get_params()
        assert list(back.feature_names_in_) == ["a", "b", "c"]
        if classify:
            assert np.array_equal(back.predict(frame), found.predict(frame))
            assert back.classes_.dtype == found.classes_.dtype
    other = RFMRegressor if classify else RFMClassifier
    with pytest.raises(UnreadableFile, match=f"and no {other.__name__}"):
        other.load(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    path.write_bytes(b"nothing")
    for missing in (path, tmp_path / "nowhere"):
        with pytest.raises(UnreadableFile, match="holds no machine that lazyrich saved"):
            RFMRegressor.load(missing)
    x, y = product(30, 3)
    found = RFMRegressor(random_state=np.random.RandomState(0)).fit(x, y)
    with pytest.raises(LazyrichError, match="cannot write the machine.*RandomState has no place"):
        found.save(path)
    with pytest.raises(LazyrichError, match="cannot write the machine"):
        RFMRegressor().fit(x, y).save(path / "below")
    assert path.read_bytes() == b"nothing"
    with pytest.raises(Exception, match="not fitted yet"):
        RFMRegressor().save(path)


def test_files_of_another_version(tmp_path: Path) -> None:
    found = RFMRegressor().fit(*product(30, 3))
    about = {"class": "RFMRegressor", "options": {"later": 1}, "fitted": found._told()}
    _saved.write(tmp_path / "later", found._tree, about)
    with pytest.raises(UnreadableFile, match="is of another version of lazyrich.*later"):
        RFMRegressor.load(tmp_path / "later")


def test_trees_halve_along_the_direction_that_matters() -> None:
    x = np.random.default_rng(0).normal(size=(400, 6))
    y = 3 * x[:, 2]
    found = RFMRegressor(max_leaf_size=100).fit(x, y)
    tree = found._tree
    assert [len(f.machine.expansion.centers) for f in tree.leaves] == 4 * [100]
    assert np.abs(tree.directions[:, 2]).min() > 0.95
    assert np.array_equal(np.bincount(tree.leaf(x)), 4 * [100])
    assert found.score(x, y) > 0.99
    assert np.trace(found.M_) == pytest.approx(6)
    inside, apart = found.transform(x[:2]), x[0] - x[1]
    assert np.square(inside[0] - inside[1]).sum() == pytest.approx(apart @ found.M_ @ apart)


def test_a_tree_of_one_leaf_is_a_machine() -> None:
    x, y = product(50)
    one, other = RFMRegressor(max_leaf_size=50).fit(x, y), RFMRegressor().fit(x, y)
    assert np.array_equal(one.predict(x), other.predict(x))
    assert np.array_equal(one.transform(x), other.transform(x))


def test_leaves_are_fitted_anywhere() -> None:
    x, y = signs(300)
    rest = signs(12, seed=1)  # some leaves get none of them, and hold out rows of their own
    options = {"X_val": rest[0], "y_val": rest[1]}
    here = RFMClassifier(max_leaf_size=40).fit(x, y, **options)
    with ThreadPoolExecutor(2) as executor:
        there = RFMClassifier(max_leaf_size=40).fit(x, y, **options, executor=executor)
    assert len(here._tree.leaves) == 8
    assert np.array_equal(here.predict_proba(x), there.predict_proba(x))


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_trees_divide_what_has_no_slopes(target: float) -> None:
    x = np.zeros((64, 2))
    x[:, 1] = np.repeat(np.arange(32), 2)
    x[::2, 0] = 1e-3
    found = RFMRegressor(max_leaf_size=10, selection=None).fit(x, np.full(64, target))
    assert max(len(f.machine.expansion.centers) for f in found._tree.leaves) <= 10
    assert found.predict(x) == pytest.approx(target, abs=0.01)


def test_friedman_by_exact_landmarks_and_trees() -> None:
    x, y = make_friedman1(900, noise=0.5, random_state=0)
    train, rest = slice(600), slice(600, None)
    options = {"center_targets": True, "bandwidth": "median", "reg": 1e-2}
    scores = [
        RFMRegressor(**options, **more).fit(x[train], y[train]).score(x[rest], y[rest])
        for more in ({}, {"landmarks": 200}, {"max_leaf_size": 300}, {"dtype": "float32"})
    ]
    assert min(scores) > 0.85
    assert scores[3] == pytest.approx(scores[0], abs=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bandwidth": -1}, "bandwidth=-1: a number above 0, or 'median'"),
        ({"bandwidth": "mean"}, "bandwidth='mean': a number above 0, or 'median'"),
        ({"exponent": 2.5}, "exponent=2.5: a number above 0 and up to 2"),
        ({"reg": 0}, "reg=0: a number above 0"),
        ({"reg": float("nan")}, "reg=nan: a number above 0"),
        ({"iterations": -1}, "iterations=-1: a whole number, 0 or more"),
        ({"iterations": 2.0}, "iterations=2.0: a whole number, 0 or more"),
        ({"normalize": "sum"}, "normalize='sum': one of 'trace', 'max', None"),
        ({"selection": "loo"}, "selection='loo': one of 'validation', 'cv', None"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0: a number above 0 and below 1"),
        ({"folds": 1}, "folds=1: a whole number, 2 or more"),
        ({"landmarks": 0}, "landmarks=0: a whole number, 1 or more, or None"),
        ({"max_leaf_size": 1}, "max_leaf_size=1: a whole number, 2 or more, or None"),
        ({"dtype": "float16"}, "dtype='float16': one of 'auto', 'float32', 'float64'"),
        ({"device": "abacus"}, "device='abacus': None for LAPACK on this machine"),
        ({"memory_limit": 0}, "memory_limit=0: a number above 0, or None"),
        ({"selection": "cv", "folds": 31}, "folds=31 need as many distinct rows, and there are 30"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LazyrichError, match=message):
        RFMRegressor(**options).fit(*product(30, 3))


def test_data_that_cannot_be_used_is_refused() -> None:
    x, y = product(30, 3)
    with pytest.raises(LazyrichError, match="y has one class only, 'a': two or more"):
        RFMClassifier().fit(x, np.full(30, "a"))
    with pytest.raises(TooFewSamples, match="n_samples=1 distinct row cannot be divided"):
        RFMRegressor().fit(x[:1].repeat(5, axis=0), y[:5])
    alone = RFMRegressor(selection=None, reg=1.0).fit(x[:1], [3.0])
    assert alone.predict(x[:1]) == pytest.approx(1.5)
    with pytest.raises(TooFewSamples, match="all weights are zero"):
        RFMRegressor().fit(x, y, np.zeros(30))
    with pytest.raises(LazyrichError, match="sample_weight has entries below 0"):
        RFMRegressor().fit(x, y, -np.ones(30))
    with pytest.raises(ShapeError, match=r"sample_weight has shape \(29,\): one for each of 30"):
        RFMRegressor().fit(x, y, np.ones(29))
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        RFMRegressor().fit(x, y, np.full(30, np.nan))
    with pytest.raises(LazyrichError, match="X_val and y_val come together"):
        RFMRegressor().fit(x, y, X_val=x)
    with pytest.raises(LazyrichError, match="selection='cv' makes no use of X_val"):
        RFMRegressor(selection="cv").fit(x, y, X_val=x, y_val=y)
    with pytest.raises(ShapeError, match=r"y_val has shape \(30, 2\) beside y of \(30,\)"):
        RFMRegressor().fit(x, y, X_val=x, y_val=np.stack([y, y], 1))
    with pytest.raises(UnknownName, match="no class of y matches '2'"):
        RFMClassifier().fit(*signs(30), X_val=signs(30)[0], y_val=np.full(30, 2))
    with pytest.raises(LazyrichError, match="overflow when they are squared"):
        RFMRegressor(selection=None).fit(1e200 * x, y)
    with pytest.raises(MemoryRefused, match="max_leaf_size"):
        (refused := RFMRegressor(memory_limit=1e-6)).fit(x, y)
    with pytest.raises(NotFittedError):
        refused.predict(x)


def test_a_bar_where_a_fit_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def bar(rounds: Any, **how: Any) -> Any:
        shown.append((how["desc"], how["total"], how["disable"]))
        return rounds

    monkeypatch.setattr(_fitting, "tqdm", bar)
    for progress in (True, False):
        RFMRegressor(selection=None, iterations=1, progress=progress).fit(*product(30, 3))
    assert shown == [("learning from 30 rows", 2, None), ("learning from 30 rows", 2, True)]
