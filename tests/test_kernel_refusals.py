"""What tangent kernels are not computed of, and what is said instead."""

import copy
import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lazyrich as lz
from lazyrich import kernel
from lazyrich.errors import (
    EmptyData,
    LazyrichError,
    LazyrichWarning,
    NonFinite,
    ShapeError,
    UnknownName,
)

# public, though they are measures, whose calls are held to their annotations here
kernel_regression, linearized_descent, accuracy_gap, arc_cosine_ntk = map(
    inspect.unwrap,
    (
        kernel.kernel_regression,
        kernel.linearized_descent,
        kernel.accuracy_gap,
        kernel.arc_cosine_ntk,
    ),
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


class Bodied(nn.Module):
    """Two layers with something between them."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.body, self.b = nn.Linear(4, 6), body, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.body(self.a(x)))


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_modes_without_gradients_are_left(mode: Any) -> None:
    model, x = mlp(), normal(5, 4)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        moved[0].weight.mul_(1.1)
    wanted, left = lz.ntk(model, x).matrix, kernel.remainder(moved, model, x)
    straight = kernel.Linearized(model).move_to(moved)
    outputs = straight(x)
    with mode():
        found = lz.ntk(model, x.clone())
        assert kernel.remainder(moved, model.state_dict(), x.clone()) == left
        torch.testing.assert_close(straight(x.clone()), outputs)
    assert torch.equal(found.matrix, wanted)
    assert not found.matrix.is_inference()
    assert "unused" not in found.engines.values()


def test_what_was_made_in_inference_mode_serves() -> None:
    wanted = lz.ntk(nn.Sequential(mlp(), nn.BatchNorm1d(3)).double(), normal(5, 4)).matrix
    with torch.inference_mode():
        model, x = nn.Sequential(mlp(), nn.BatchNorm1d(3)).double(), normal(5, 4)
    assert torch.equal(lz.ntk(model, x).matrix, wanted)
    assert all(p.is_inference() for p in model.parameters())


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("sketch", [None, 4])
def test_a_model_that_takes_no_gradients_is_refused(mode: Any, sketch: int | None) -> None:
    class Silent(nn.Sequential):
        @mode()
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    with pytest.raises(LazyrichError, match="depend on no parameter that requires a gradient"):
        lz.ntk(Silent(*mlp()), normal(5, 4), sketch=sketch)


class Named(nn.Module):
    """A module called as the row of the whole is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.gain = nn.Parameter(torch.ones(3))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.model(x).tanh()) * self.gain


def test_the_whole_keeps_its_row_beside_a_module_of_its_name() -> None:
    model, x = Named(), normal(8, 4)
    k = lz.ntk(model, x, by="layer")
    assert set(k.terms) == {"model", "head", "Named"}
    records = kernel.measure(k)
    (whole,) = records.where(measure="ntk_share", layer="model")
    parts = [r for r in records.where(measure="ntk_share") if r.layer != "model"]
    assert {r.layer for r in parts} == {"model.", "head", "Named"}
    assert (whole.value, sum(r.value for r in parts)) == (1, pytest.approx(1))
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for p in moved.parameters():
            p.add_(0.1 * torch.randn_like(p))
    left = kernel.remainder(moved, model, x, by="layer")
    assert set(left) == {"model", "model.", "head", "Named"}
    assert left["model"] == kernel.remainder(moved, model, x)["model"] != left["model."]


def test_a_bare_layer_has_a_name() -> None:
    assert set(lz.ntk(nn.Linear(4, 2), normal(5, 4), by="layer").terms) == {"Linear"}
    inside = Named()
    inside.add_module("Named", nn.Linear(1, 1))
    assert "Named." in lz.ntk(inside, normal(5, 4), by="layer").terms


@pytest.mark.parametrize("options", [{}, {"kind": "full"}, {"certify": False}, {"sketch": 4}])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_are_named(bad: float, options: Any) -> None:
    x = normal(6, 4)
    x[5, 0] = bad
    with pytest.raises(NonFinite):
        lz.ntk(mlp()[:1], x, **options)
    if not {"certify", "sketch"} & options.keys():
        with pytest.raises(NonFinite, match="and so do its inputs"):
            lz.ntk(mlp()[:1], x, **options)
    spoiled = nn.Sequential(mlp(), nn.BatchNorm1d(3).double())
    spoiled[1].running_mean[0] = float("nan")
    with pytest.raises(NonFinite, match=r"outputs hold NaN, and so does its '1.running_mean'"):
        lz.ntk(spoiled, normal(6, 4), **options)


def test_inputs_that_the_model_changes_are_put_back() -> None:
    class Doubling(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.gain = inner, nn.Parameter(torch.ones(1).double())

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.mul_(2)) * self.gain

    x = normal(5, 4)
    before = x.clone()
    for kind in ("trace", "full"):
        found = lz.ntk(Doubling(mlp()), x, kind=kind, by="parameter")
        assert torch.equal(x, before)
        wanted = lz.ntk(mlp(), 2 * x, kind=kind, by="parameter")
        assert distance(found.terms["inner.0.weight"], wanted.terms["0.weight"]) < 1e-12


def test_other_precisions_within_the_model_are_named() -> None:
    def cast(h: Tensor) -> Tensor:
        return h.to(torch.bfloat16).float()

    def automatic(h: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (h @ torch.eye(6)).float()

    x = normal(6, 4).float()
    for body in (cast, automatic):
        with pytest.raises(LazyrichError, match=r"computes in torch.bfloat16.* cast or autocast"):
            lz.ntk(Bodied(body), x)
    with pytest.raises(LazyrichError, match=r"does not run in torch.float32 .* another precision"):
        lz.ntk(Bodied(lambda h: h.to(torch.bfloat16)), x)
    half = Bodied(lambda h: h.float())
    half.a.to(torch.bfloat16)
    wanted = lz.ntk(copy.deepcopy(half).float(), x.bfloat16().float()).matrix
    assert distance(lz.ntk(half, x.bfloat16()).matrix, wanted) < 1e-6


def test_embeddings_that_are_sparse_or_renormalized() -> None:
    tokens = torch.arange(10).reshape(5, 2) % 7

    def model(**options: Any) -> nn.Module:
        torch.manual_seed(0)
        table = nn.Embedding(7, 3, **options)
        return nn.Sequential(table, nn.Flatten(), nn.Linear(6, 2)).double()

    wanted = lz.ntk(model(), tokens).matrix
    assert torch.equal(lz.ntk(model(sparse=True), tokens).matrix, wanted)
    renormalized = model(max_norm=1.0)
    before = renormalized[0].weight.clone()
    for call in (lambda: lz.ntk(renormalized, tokens), lambda: kernel.Linearized(renormalized)):
        with pytest.raises(LazyrichError, match="layer '0': max_norm changes its weights"):
            call()
    assert torch.equal(renormalized[0].weight, before)


def test_options_that_make_no_sense_are_named() -> None:
    model, x = mlp(), normal(5, 4)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": None}, "no kind matches 'None'"),
        *(({"kind": "single", "logit": i}, f"logit={i}: a whole number") for i in (1.5, True)),
        *(({"memory": m}, "memory=.*GiB above zero") for m in ("a", -1, 0, True)),
        *(({"memory": float(m)}, "memory=.*GiB above zero") for m in ("nan", "inf")),
        *(({"dtype": d}, "dtype=") for d in (torch.float16, torch.bfloat16, "float64")),
        *(({"weights": w}, "weights: a mapping") for w in ([1.0], "0.*", 2.0)),
        *(({"weights": {"*": w}}, "'[*]' has .*0 or more") for w in ("1", None, float("nan"))),
        ({"weights": {"*": 0}}, "every parameter has 0"),
        *(({"seed": s}, "seed=.*whole number") for s in (None, 1.5, True, 2**70)),
        *(({"sketch": s}, "sketch=.*whole number") for s in (2.5, "4", True)),
    ]
    for options, message in wrong:
        with pytest.raises(LazyrichError, match=message):
            lz.ntk(model, x, **options)
    one = lz.ntk(model, x, kind="single", logit=np.int64(1), seed=np.int64(3), memory=np.float64(1))
    assert one.certificate is not None


def test_one_batch_is_needed() -> None:
    model, x = mlp(), normal(6, 4)
    loader = DataLoader(TensorDataset(x, torch.zeros(6)), 3)
    batches: list[Any] = [loader, iter(loader), [(x, None), (x, None)]]
    for item in batches:
        for call in (lambda i: lz.ntk(model, i), lambda i: lz.ntk(model, x, i)):
            with pytest.raises(LazyrichError, match="one batch is needed, not a loader"):
                call(item)
        with pytest.raises(LazyrichError, match="x: one batch is needed, not a loader"):
            kernel.remainder(model, model, item)
    with pytest.raises(LazyrichError, match=r"x: .* not ndarray. torch.as_tensor"):
        lz.ntk(model, x.numpy())
    for options in ({}, {"sketch": 2}):
        with pytest.raises(EmptyData, match="other: a batch without samples"):
            lz.ntk(model, x, x[:0], **options)
    assert torch.equal(lz.ntk(model, next(iter(loader))).matrix, lz.ntk(model, x[:3]).matrix)


def test_a_kernel_is_told_in_a_line_and_compared_as_an_object(tmp_path: Path) -> None:
    k = lz.ntk(mlp(), normal(5, 4), kind="full")
    assert repr(k).startswith("Kernel('full', n=5, m=5, classes=3, engines: ")
    assert "certificate=" in repr(k)
    assert "sketch_error=" in repr(lz.ntk(mlp(), normal(5, 4), sketch=2))
    assert len(repr(k)) < 160
    assert k == k
    assert k != copy.copy(k)
    (tmp_path / "plain").write_text("as any file")
    saved = k.save(tmp_path / "kernel")
    assert saved.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_kernel_with_as_many_others_is_not_symmetric(tmp_path: Path) -> None:
    x = normal(5, 4)
    for options in ({}, {"sketch": 4}):
        across = lz.ntk(mlp(), x, normal(5, 4, seed=1), kind="full", **options)
        for found in (across, kernel.Kernel.load(across.save(tmp_path / "kernel"))):
            for call in (kernel.measure, kernel.critical_rate):
                with pytest.raises(LazyrichError, match="samples with themselves"):
                    call(found)


def test_kernels_and_labels_that_measures_do_not_take() -> None:
    x = normal(6, 4)
    full, trace = lz.ntk(mlp(), x, kind="full"), lz.ntk(mlp(), x)
    with pytest.raises(LazyrichError, match="measures are of a Kernel.* not of Tensor"):
        kernel.measure(full.matrix)
    with pytest.raises(LazyrichError, match="critical rates are of a Kernel"):
        kernel.critical_rate(full.matrix)
    for labels in (["a"] * 6, torch.tensor(1), [None] * 6):
        with pytest.raises(ShapeError, match="labels"):
            kernel.measure(trace, labels=labels)
    with pytest.raises(LazyrichError, match="not complex"):
        kernel.measure(trace, labels=torch.zeros(6, dtype=torch.complex64))
    for labels in ([0, 1, 2, 3, 0, 1], [0, 1, 2, -1, 0, 1]):
        with pytest.raises(LazyrichError, match="full kernel of 3 outputs: numbers of outputs"):
            kernel.measure(full, labels=labels)
    with pytest.raises(NonFinite, match="labels"):
        kernel.measure(trace, labels=[0.0, 1, 2, float("nan"), 0, 1])
    single = lz.ntk(mlp(), x, out=lambda y: y[:, :1])
    whole = lz.ntk(mlp(), x, kind="full", out=lambda y: y[:, :1])
    found = [
        kernel.measure(k, labels=[0, 1, 2, 5, 5, 5], measures="ntk_alignment")[0].value
        for k in (single, whole)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    with pytest.raises(ShapeError, match="of 6 samples and 3 outputs, and was 'trace' of 6 and 1"):
        kernel.measure(trace, initial=single)
    broken = replace(trace, matrix=trace.matrix * float("nan"))
    for call in (kernel.measure, lambda k: kernel.measure(trace, initial=k)):
        with pytest.raises(NonFinite, match="the kernel holds NaN"):
            call(broken)


def test_critical_rates_need_probabilities_and_a_kernel() -> None:
    full = lz.ntk(mlp(), normal(6, 4), kind="full")
    p = normal(6, 3).softmax(1)
    wanted = kernel.critical_rate(full, "cross_entropy", probabilities=p)
    for same in (p.numpy(), p.float()):
        found = kernel.critical_rate(full, "cross_entropy", probabilities=same)
        assert found == pytest.approx(wanted, rel=1e-6)
    for wrong in (p.T, p.flatten(), p[:5]):
        with pytest.raises(ShapeError, match="for 6 samples of 3 classes"):
            kernel.critical_rate(full, "cross_entropy", probabilities=wrong)
    for wrong in (2 * p, p - torch.tensor([2.0, -1, -1])):
        with pytest.raises(LazyrichError, match="below 0, or do not sum to 1"):
            kernel.critical_rate(full, "cross_entropy", probabilities=wrong)
    with pytest.raises(LazyrichError, match="the kernel is zero"):
        kernel.critical_rate(replace(full, matrix=0 * full.matrix))


def test_regression_and_descent_take_kernels_and_refuse_what_is_none() -> None:
    x, z, y = normal(12, 4), normal(5, 4, seed=1), normal(12, 1, seed=2)
    k, across = lz.ntk(mlp(), x), lz.ntk(mlp(), z, x)
    found = kernel_regression(k, across, y)
    wanted = kernel_regression(k.matrix, across.matrix.numpy(), y.numpy())
    assert torch.equal(found.predictions, wanted.predictions)
    assert kernel_regression(k, across, y, ridges=0.1).ridge == 0.1
    with pytest.raises(ShapeError, match="of the training samples with themselves"):
        kernel_regression(lz.ntk(mlp(), x, x), across, y)
    for options in ({"ridges": "a"}, {"ridges": float("nan")}, {"folds": 2.5}):
        with pytest.raises(LazyrichError, match="ridges above zero and 2 to 12 folds"):
            kernel_regression(k, across, y, **options)
    with pytest.raises(LazyrichError, match="the kernel is zero"):
        kernel_regression(0 * k.matrix, across, y)
    for place, name in enumerate(("kernel", "across", "targets")):
        given = [k.matrix.clone(), across.matrix.clone(), y.clone()]
        given[place][0, 0] = float("nan")
        for call in (kernel_regression, partial(linearized_descent, rate=0, steps=1)):
            with pytest.raises(NonFinite, match=f"{name}: NaN"):
                call(*given)
    for rate, steps in ((0.1, 2.5), (0.1, -1), (0.1, None), (float("nan"), 1), ("a", 1)):
        with pytest.raises(LazyrichError, match="none below zero"):
            linearized_descent(k, across, y, rate, steps)
    with pytest.raises(ShapeError, match="nor the full one with 5"):
        linearized_descent(k, across, y, 0.1, 1, outputs=5)
    fast = 3 * 12 / float(torch.linalg.eigvalsh(k.matrix)[-1])
    with pytest.warns(LazyrichWarning, match="is 3 times the critical one .* diverges"):
        few = linearized_descent(k, k.matrix, y, fast, 2)
    step = torch.eye(12).double() - fast / 6 * k.matrix
    assert distance(few, y - step @ step @ y) < 1e-9
    with (
        pytest.warns(LazyrichWarning, match="diverges"),
        pytest.raises(NonFinite, match="diverges beyond all numbers"),
    ):
        linearized_descent(k, across, y, fast, 10_000)


def test_gaps_are_of_right_and_wrong_answers() -> None:
    right, wrong = torch.tensor([True, True, False]), np.array([1.0, 0, 0])
    assert accuracy_gap(right, wrong).value == pytest.approx(1 / 3)
    assert accuracy_gap([1, 0], [0, 1], draws=1).value == 0
    for bad in ([2, 0, 1], [0.5, 0, 1], [-1, 0, 1]):
        with pytest.raises(LazyrichError, match="baseline: whether each answer is right"):
            accuracy_gap(right, bad)
    with pytest.raises(NonFinite, match="network"):
        accuracy_gap([float("nan"), 1, 0], right)
    for draws in (0, 2.5, -1):
        with pytest.raises(LazyrichError, match="draws=.* one or more"):
            accuracy_gap(right, right, draws=draws)


def test_infinite_widths_and_linearized_models_of_what_is_none() -> None:
    x = normal(3, 4)
    for given in ((x[0],), (x, x[:, :2]), (x, x[0])):
        with pytest.raises(ShapeError, match=r"\[n, d\] and \[m, d\] are needed"):
            arc_cosine_ntk(*given)
    assert torch.equal(arc_cosine_ntk(x.numpy()), arc_cosine_ntk(x))
    with pytest.raises(LazyrichError, match="one hidden layer"):
        arc_cosine_ntk(x, depth=1.5)
    model = mlp()
    torch.testing.assert_close(kernel.Linearized(lz.Capture(model))(x), model(x))
    with pytest.raises(LazyrichError, match=r"needs a torch.nn.Module"):
        kernel.Linearized(x)
    for other in (mlp()[:1], nn.Linear(4, 3).double()):
        with pytest.raises(LazyrichError, match="no earlier state of this model"):
            kernel.remainder(model, other, x)
    with pytest.raises(UnknownName, match="no by matches 'parameter'"):
        kernel.remainder(model, model, x, by="parameter")


class Mixed(nn.Module):
    """Mixes tokens by a matrix that is the same for all samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.l = nn.Linear(4, 2).double()

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.l(torch.tanh(w @ x).mean(1))


def test_an_input_that_only_looks_like_samples_is_not_cut() -> None:
    w, x = torch.randn(6, 6, dtype=torch.float64), torch.randn(6, 6, 4, dtype=torch.float64)
    with pytest.raises(ShapeError, match="several inputs are 6 long"):
        lz.ntk(Mixed(), ((x, w), torch.zeros(6)))
    assert lz.ntk(Mixed(), ((x[:5], w), torch.zeros(5))).n == 5


def test_outputs_of_a_full_kernel_are_centered_each_by_itself() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)).double(),
        torch.randn(7, 5),
    )
    full = lz.ntk(model, x.double(), kind="full")
    y = torch.randn(7, 3, dtype=torch.float64)
    names = ["ntk_alignment", "ntk_target_share"]
    found = kernel.measure(full, labels=y, measures=names)
    moved = kernel.measure(full, labels=y + torch.tensor([5.0, 0, -3]), measures=names)
    for one, other in zip(found, moved, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-9)
        assert one.null == pytest.approx(other.null, rel=1e-9)
    dealt = [kernel.measure(full, labels=y[torch.randperm(7)], measures=names) for _ in range(400)]
    for place, record in enumerate(found):
        values = torch.tensor([d[place].value for d in dealt], dtype=torch.float64)
        assert abs(float(values.mean()) - record.null) < 4 * float(values.std()) / 20


def test_descent_and_regression_know_the_outputs() -> None:
    torch.manual_seed(0)
    k = torch.randn(6, 6, dtype=torch.float64)
    k, y = k @ k.T / 6, torch.randn(6, 3, dtype=torch.float64)
    f = torch.zeros(6, 3, dtype=torch.float64)
    for _ in range(20):
        f = f - 0.1 * 2 / 18 * k @ (f - y)
    torch.testing.assert_close(kernel.linearized_descent(k, k, y, 0.1, 20), f)
    one = kernel.linearized_descent(k, k, y[:, :1], 0.1, 20, outputs=3, samples=6)
    torch.testing.assert_close(one, f[:, :1])
    full = torch.kron(k, torch.eye(3, dtype=torch.float64))
    flat = kernel.linearized_descent(full, full, y.reshape(-1, 1), 0.1, 20, outputs=3)
    torch.testing.assert_close(flat.reshape(6, 3), f)
    by_columns = kernel.kernel_regression(k, k, y, folds=3)
    by_rows = kernel.kernel_regression(full, full, y.reshape(-1, 1), folds=3, outputs=3)
    assert by_rows.ridge == by_columns.ridge
    torch.testing.assert_close(by_rows.predictions.reshape(6, 3), by_columns.predictions)
    with pytest.raises(ShapeError, match="not the full one of 4"):
        kernel.kernel_regression(k, k, y, outputs=4)
