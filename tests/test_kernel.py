"""What tangent kernels say: records, linearized models, regression and known limits."""

import copy
import re
from itertools import pairwise
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import kernel
from lazyrich.errors import LazyrichError, ShapeError, UnknownName
from lazyrich.measures.tangent_kernel import ntk_velocity
from lazyrich.statistics import TangentKernel
from oracles import jacobians


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


class Scaled(nn.Module):
    """A network in the neural tangent parametrization, without biases."""

    def __init__(
        self, d: int, width: int, depth: int, outputs: int = 1, relu: bool = False
    ) -> None:
        super().__init__()
        sizes = [d, *[width] * depth, outputs]
        self.weights = nn.ParameterList(
            torch.randn(b, a, dtype=torch.float64) for a, b in pairwise(sizes)
        )
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        h = x @ self.weights[0].T / x.shape[1] ** 0.5
        for weight in list(self.weights)[1:]:
            h = (2**0.5 * torch.relu(h)) if self.relu else torch.tanh(h)
            h = h @ weight.T / h.shape[1] ** 0.5
        return h


def trained(model: nn.Module, x: Tensor, y: Tensor, rate: float, steps: int) -> nn.Module:
    model = copy.deepcopy(model)
    for _ in range(steps):
        gradients = torch.autograd.grad(((model(x) - y) ** 2).mean(), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p.sub_(rate * g)
    return model


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def test_records_of_a_kernel_say_what_the_matrices_say() -> None:
    x, labels = normal(20, 5), torch.arange(20) % 3
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 3)).double()
    before = lz.ntk(model, x, by="layer")
    after = trained(model, x, torch.nn.functional.one_hot(labels).double(), 0.5, 100)
    now = lz.ntk(after, x, by="layer")
    records = kernel.measure(now, initial=before, labels=labels, run="mlp", step=100)
    k, k0 = now.matrix.numpy(), before.matrix.numpy()
    values = {
        "ntk_change": np.linalg.norm(k - k0) / np.linalg.norm(k0),
        "ntk_growth": log(np.sum(k * k0) / np.sum(k0**2)),
        "ntk_participation": np.trace(k) ** 2 / np.sum(k**2),
        "ntk_condition": np.linalg.cond(k),
    }
    for name, value in values.items():
        (record,) = records.where(measure=name, layer="model")
        assert record.value == pytest.approx(value)
        assert (record.run, record.step, record.n, record.view) == ("mlp", 100, 20, "trace kernel")
    shares = records.where(measure="ntk_share")
    assert sum(r.value for r in shares if r.layer != "model") == pytest.approx(1)
    for layer in ("0", "2"):
        change = np.linalg.norm((now.terms[layer] - before.terms[layer]).numpy())
        (record,) = records.where(measure="ntk_layer_change", layer=layer)
        assert record.value == pytest.approx(change / np.linalg.norm(k0))
    plain, centered = records.where(measure="ntk_distance")
    assert "centered=True" in centered.estimator
    assert plain.note.startswith("an angle of ")
    assert plain.value == pytest.approx(1 - np.sum(k * k0) / np.linalg.norm(k) / np.linalg.norm(k0))
    h = np.eye(20) - 1 / 20
    a, b = h @ k @ h, h @ k0 @ h
    cosine = np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b)
    assert centered.value == pytest.approx(1 - cosine)
    (rotation,) = records.where(measure="ntk_rotation", layer="model")
    assert rotation.value**2 == pytest.approx(1 - (1 - plain.value) ** 2)
    (alignment,) = records.where(measure="ntk_alignment")
    (start,) = kernel.measure(before, labels=labels, measures="ntk_alignment")
    assert alignment.value > start.value
    assert kernel.velocity(before, now, 5.0) == pytest.approx(plain.value / 5)
    alone = kernel.measure(now)
    assert {r.measure for r in alone} & {"ntk_change", "ntk_alignment"} == set()


def test_null_levels_are_means_over_shuffled_labels() -> None:
    x, labels = normal(12, 5), torch.arange(12) % 2
    k = kernel.Kernel(x @ x.T, "trace", 12, 12, 2)
    for name in ("ntk_alignment", "ntk_target_share"):
        found = kernel.measure(k, labels=labels, measures=name)[0]
        shuffled = [
            kernel.measure(k, labels=labels[torch.randperm(12)], measures=name)[0].value
            for _ in range(1500)
        ]
        error = np.std(shuffled) / len(shuffled) ** 0.5
        assert found.null == pytest.approx(np.mean(shuffled), abs=4 * error)


def test_one_backward_pass_gives_the_target_share() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double(), normal(8, 4)
    labels = torch.arange(8) % 3
    y = torch.nn.functional.one_hot(labels).double().flatten()
    y = y - y.mean()
    k = lz.ntk(model, x, kind="full")
    found = kernel.measure(k, labels=labels, measures="ntk_target_share")[0]
    gradients = torch.autograd.grad(model(x).flatten() @ y, list(model.parameters()))
    square = float(sum(g.square().sum() for g in gradients))
    assert found.value == pytest.approx(square / float(y @ y * k.matrix.trace()), rel=1e-12)


def test_distances_are_exact_where_hardly_anything_moved() -> None:
    k = normal(9, 9)
    k = k @ k.T
    turned = normal(9, 9, seed=1)
    turned = turned + turned.T
    for size in (1e-3, 1e-6):
        found = TangentKernel(k + size * turned, k)
        m = lz.CATALOGUE["ntk_distance"]
        across = turned - (turned * k).sum() / k.square().sum() * k
        sine = float(size * across.norm() / k.norm())
        assert m(found) == pytest.approx(sine**2 / 2, rel=20 * size)
        assert lz.CATALOGUE["ntk_rotation"](found) == pytest.approx(sine, rel=20 * size)


def test_kernels_that_do_not_fit_are_refused() -> None:
    x = normal(6, 4)
    model = nn.Linear(4, 2).double()
    one, block, each = lz.ntk(model, x), lz.ntk(model, x, x[:2]), lz.ntk(model, x, kind="class")
    for wrong in (block, each):
        with pytest.raises(ShapeError, match="measures are of one kernel"):
            kernel.measure(wrong)
    with pytest.raises(ShapeError, match="the same kind on the same samples"):
        kernel.measure(one, initial=lz.ntk(model, x[:5]))
    with pytest.raises(ShapeError, match="came with labels"):
        kernel.measure(one, labels=[1, 2])
    with pytest.raises(ShapeError, match="for a full kernel of 2 outputs"):
        kernel.measure(lz.ntk(model, x, kind="full"), labels=normal(6, 3))
    with pytest.raises(UnknownName, match="no measure matches 'ntk_drift'"):
        kernel.measure(one, measures="ntk_drift")
    with pytest.raises(LazyrichError, match="no measure of kernels"):
        kernel.measure(one, measures=lz.CATALOGUE["cka"])
    with pytest.raises(LazyrichError, match="ntk_change is of a kernel of lz.ntk"):
        lz.measure(model, [x], "ntk_change")
    with pytest.raises(LazyrichError, match="a time above zero"):
        ntk_velocity(TangentKernel(one.matrix, one.matrix), 0.0)


@pytest.mark.parametrize("order", [1, 2])
def test_a_linearized_model_is_the_taylor_polynomial(order: int) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double(), normal(8, 4)
    straight = kernel.Linearized(model, order)
    torch.testing.assert_close(straight(x), model(x))
    moved, sizes = copy.deepcopy(model), []
    direction = [torch.randn_like(p) for p in model.parameters()]
    for size in (1e-2, 1e-3):
        with torch.no_grad():
            for p, start, d in zip(moved.parameters(), model.parameters(), direction, strict=True):
                p.copy_(start + size * d)
        sizes.append(float((straight.move_to(moved)(x) - moved(x)).detach().norm()))
    assert sizes[0] / sizes[1] == pytest.approx(10 ** (order + 1), rel=0.1)
    if order == 1:
        change = torch.cat([1e-3 * d.flatten() for d in direction])
        jacobian = jacobians.jacobian(model, x)
        torch.testing.assert_close(straight(x), model(x) + jacobian @ change)


def test_a_linearized_model_trains_as_the_closed_form_says() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    x, y, z = normal(8, 4), normal(8, 3, seed=1), normal(5, 4, seed=2)
    full = lz.ntk(model, torch.cat([x, z]), kind="full").matrix
    k, across = full[:24, :24], full[24:, :24]
    straight = kernel.Linearized(model).train()
    start, rate = (model(x).detach(), model(z).detach()), 0.1
    optimizer = torch.optim.SGD(straight.parameters(), lr=rate)
    for _ in range(200):
        optimizer.zero_grad()
        ((straight(x) - y) ** 2).mean().backward()
        optimizer.step()
    gain = kernel.linearized_descent(k, across, (y - start[0]).reshape(-1, 1), rate, 200, outputs=3)
    assert distance(straight(z).detach(), start[1] + gain.view(5, 3)) < 1e-12
    half = kernel.linearized_descent(
        k, across, (y - start[0]).reshape(-1, 1), rate * 2 / 3, 200, outputs=3, loss="half"
    )
    assert distance(half, gain) < 1e-12
    last = kernel.linearized_descent(k, k, (y - start[0]).reshape(-1, 1), 0.1, 10**8, outputs=3)
    assert distance(last, (y - start[0]).reshape(-1, 1)) < 1e-6
    fast = 1.9 * 12 / float(torch.linalg.eigvalsh(k)[-1])  # each step overshoots
    few = kernel.linearized_descent(k, k, torch.ones(24, 1), fast, 3, outputs=3)
    left = torch.linalg.matrix_power(torch.eye(24).double() - fast / 12 * k, 3)
    assert distance(few, 1 - left.sum(1, keepdim=True)) < 1e-12


def test_remainders_fall_with_the_change_and_vanish_for_linear_models() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double(), normal(8, 4)
    now, found = copy.deepcopy(model), []
    for size in (1e-2, 1e-3):
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p, start in zip(now.parameters(), model.parameters(), strict=True):
                p.copy_(start + size * torch.randn(p.shape, generator=generator))
        found.append([kernel.remainder(now, model, x, order=order)["model"] for order in (1, 2)])
    assert found[0][0] / found[1][0] == pytest.approx(10, rel=0.1)
    assert found[0][1] / found[1][1] == pytest.approx(100, rel=0.1)
    by_layer = kernel.remainder(now, model.state_dict(), x, by="layer")
    assert by_layer.keys() == {"model", "0", "2"}
    assert by_layer["2"] < 1e-9  # the readout is linear
    assert by_layer["model"] == pytest.approx(found[1][0])
    with pytest.raises(LazyrichError, match="order=3"):
        kernel.remainder(now, model, x, order=3)
    with pytest.raises(LazyrichError, match="order=0"):
        kernel.Linearized(model, 0)
    with pytest.raises(LazyrichError, match="nothing to move"):
        kernel.Linearized(copy.deepcopy(model).requires_grad_(False))
    with pytest.raises(LazyrichError, match="no parameter '0.weight'"):
        kernel.Linearized(model).move_to(nn.Linear(4, 3))


def test_the_alpha_dial_has_its_slopes() -> None:
    """F = alpha (f - f_0): drift and remainder fall like 1 / alpha, distance like its square."""
    torch.manual_seed(0)
    x, y = normal(8, 4), normal(8, 1, seed=1)
    model = Scaled(4, 64, 2)
    before, start = lz.ntk(model, x), model(x).detach()
    rate = 4 / float(torch.linalg.eigvalsh(before.matrix)[-1])
    found = []
    for alpha in (16.0, 256.0):
        now = copy.deepcopy(model)
        for _ in range(60):
            loss = ((alpha * (now(x) - start) - y) ** 2).sum() / (2 * 8 * alpha**2)
            gradients = torch.autograd.grad(loss, list(now.parameters()))
            with torch.no_grad():
                for p, g in zip(now.parameters(), gradients, strict=True):
                    p.sub_(rate * g)
        records = kernel.measure(lz.ntk(now, x), initial=before)
        values = [records.where(measure=m)[0].value for m in ("ntk_change", "ntk_distance")]
        values += [kernel.remainder(now, model, x, order=order)["model"] for order in (1, 2)]
        found.append(values)
    slopes = [log(b / a) / log(16) for a, b in zip(*found, strict=True)]
    assert slopes == pytest.approx([-1, -2, -1, -2], abs=0.12)


def test_critical_rates_are_those_of_the_hessian_of_the_linearized_loss() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    x, n, k = normal(8, 4), 8, 3
    full = lz.ntk(model, x, kind="full")
    j = jacobians.jacobian(model, x).flatten(0, 1)
    outputs = model(x).detach()
    p = outputs.softmax(1)

    def rate(of: Tensor) -> float:
        return 2 / float(torch.linalg.eigvalsh(j.T @ of @ j)[-1])

    eye = torch.eye(n * k).double()
    assert kernel.critical_rate(full) == pytest.approx(rate(2 * eye / (n * k)))
    assert kernel.critical_rate(full, "half") == pytest.approx(rate(eye / n))
    labels = torch.arange(n) % k
    hessian = torch.autograd.functional.hessian(
        lambda f: torch.nn.functional.cross_entropy(f.view(n, k), labels), outputs.flatten()
    )
    found = kernel.critical_rate(full, "cross_entropy", probabilities=p)
    assert found == pytest.approx(rate(hessian))
    with pytest.raises(LazyrichError, match="smaller largest eigenvalue"):
        kernel.critical_rate(lz.ntk(model, x))
    with pytest.raises(ShapeError, match="needs the probabilities"):
        kernel.critical_rate(full, "cross_entropy")
    with pytest.raises(LazyrichError, match="no loss matches 'hinge'"):
        kernel.critical_rate(full, "hinge")


def test_the_loss_falls_below_the_critical_rate_and_the_kernel_shrinks_above() -> None:
    torch.manual_seed(0)
    model, x, y = Scaled(4, 512, 2), normal(8, 4), normal(8, 1, seed=1)
    before = lz.ntk(model, x)
    critical = kernel.critical_rate(before)

    def losses(rate: float) -> list[float]:
        now, found = model, []
        for _ in range(60):
            found.append(((now(x) - y) ** 2).mean().item())
            now = trained(now, x, y, rate, 1)
        return found

    calm = losses(0.9 * critical)
    assert all(b < a * (1 + 1e-9) for a, b in pairwise(calm))
    wild = losses(1.5 * critical)
    assert max(wild) > wild[0]
    after = lz.ntk(trained(model, x, y, 1.5 * critical, 60), x)
    largest = [float(torch.linalg.eigvalsh(k.matrix)[-1]) for k in (before, after)]
    assert largest[1] < 0.9 * largest[0]


def test_regression_finds_the_ridge_that_held_out_data_want() -> None:
    x, z = normal(60, 3), normal(200, 3, seed=1)
    clean = (x @ torch.tensor([1.0, -2, 0.5]).double())[:, None]
    truth = (z @ torch.tensor([1.0, -2, 0.5]).double())[:, None]
    noisy = clean + 2 * normal(60, 1, seed=2)

    def rbf(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-torch.cdist(a, b).square() / 2)

    k, across = rbf(x, x), rbf(z, x)
    exact, rough = (kernel.kernel_regression(k, across, y) for y in (clean, noisy))
    assert exact.ridge < rough.ridge
    wanted = across @ torch.linalg.solve(k + rough.ridge * torch.eye(60).double(), noisy)
    assert distance(rough.predictions, wanted) < 1e-10
    tried = {r: kernel.kernel_regression(k, across, noisy, ridges=[r]) for r in rough.scores}
    errors = {r: float((t.predictions - truth).square().mean()) for r, t in tried.items()}
    assert errors[rough.ridge] < 2 * min(errors.values())
    assert rough.scores[rough.ridge] == min(rough.scores.values())
    assert tried[1e-4].scores[1e-4] == pytest.approx(rough.scores[1e-4])
    for options in ({"ridges": ()}, {"ridges": (0.0,)}, {"folds": 1}, {"folds": 61}):
        with pytest.raises(LazyrichError, match="ridges above zero and 2 to 60 folds"):
            kernel.kernel_regression(k, across, clean, **options)
    for wrong in ((k[:5], across, clean), (k, across[:, :3], clean), (k, across, clean[:4])):
        with pytest.raises(ShapeError, match="are needed|one row each"):
            kernel.kernel_regression(*wrong)
    with pytest.raises(LazyrichError, match="none below zero"):
        kernel.linearized_descent(k, across, clean, -1.0, 3)


def test_gaps_have_the_interval_of_the_paired_bootstrap() -> None:
    generator = torch.Generator().manual_seed(0)
    network = torch.rand(400, generator=generator) < 0.9
    baseline = network & (torch.rand(400, generator=generator) < 0.9)
    found = kernel.accuracy_gap(network, baseline, draws=4000)
    difference = network.double() - baseline.double()
    half = 1.96 * float(difference.std()) / 20
    assert found.value == pytest.approx(float(difference.mean()))
    assert (found.low, found.high) == pytest.approx(
        (found.value - half, found.value + half), abs=0.006
    )
    assert kernel.accuracy_gap(network, network) == (0, 0, 0)
    with pytest.raises(ShapeError, match="one for each test point"):
        kernel.accuracy_gap(network, baseline[:3])


@pytest.mark.parametrize("depth", [1, 2])
def test_the_infinite_width_is_the_expectation_of_its_recursion(depth: int) -> None:
    x = normal(3, 4)
    found = kernel.arc_cosine_ntk(x, depth=depth)
    wanted = torch.from_numpy(jacobians.arc_cosine(x.numpy(), depth))
    assert distance(found, wanted) < 3e-3
    block = kernel.arc_cosine_ntk(x, torch.cat([x[:2], torch.zeros(1, 4)]), depth=depth)
    torch.testing.assert_close(block[:, :2], found[:, :2])
    assert not block[:, 2].any()
    alike = kernel.arc_cosine_ntk(x[:1], -x[:1])
    assert float(alike[0, 0]) == pytest.approx(0, abs=1e-7)
    same = kernel.arc_cosine_ntk(x[:1], depth=depth)
    assert float(same[0, 0]) == pytest.approx((depth + 1) * float(x[0] @ x[0]) / 4)
    assert float(kernel.arc_cosine_ntk(x[:1], torch.eye(4)[:1])[0, 0]) < pi
    with pytest.raises(LazyrichError, match="one hidden layer or more"):
        kernel.arc_cosine_ntk(x, depth=0)


def test_wide_networks_approach_it_like_the_root_of_their_width() -> None:
    x, widths = normal(6, 8), (32, 128, 512)
    limit = kernel.arc_cosine_ntk(x, depth=2)
    spreads, means = [], []
    for width in widths:
        found = []
        for seed in range(16):
            torch.manual_seed(seed)
            found.append(lz.ntk(Scaled(8, width, 2, relu=True), x, certify=False).matrix)
        each = torch.stack(found)
        spreads.append(float((each - limit).square().mean().sqrt()))
        means.append(distance(each.mean(0), limit))
    slope = log(spreads[-1] / spreads[0]) / log(widths[-1] / widths[0])
    assert slope == pytest.approx(-0.5, abs=0.1)
    assert means[-1] < 0.04


@pytest.mark.slow
def test_the_kernel_of_smooth_networks_drifts_like_the_inverse_of_their_width() -> None:
    x, y = normal(12, 6), normal(12, 1, seed=1)
    widths, drifts, distances = (64, 256, 1024), [], []
    for width in widths:
        found = []
        for seed in range(4):
            torch.manual_seed(seed)
            model = Scaled(6, width, 2)
            before = lz.ntk(model, x, certify=False)
            after = trained(model, x, y, kernel.critical_rate(before) / 2, 60)
            records = kernel.measure(lz.ntk(after, x, certify=False), initial=before)
            found.append(
                [records.where(measure=m)[0].value for m in ("ntk_change", "ntk_distance")]
            )
        means = np.mean(np.log(found), 0)
        drifts.append(means[0])
        distances.append(means[1])
    span = log(widths[-1] / widths[0])
    assert (drifts[-1] - drifts[0]) / span == pytest.approx(-1.0, abs=0.12)
    assert (distances[-1] - distances[0]) / span == pytest.approx(-2.0, abs=0.25)


@pytest.mark.slow
def test_the_gap_to_the_time_matched_model_closes_where_training_is_lazy() -> None:
    """2-parity: a rich network learns it, its kernel at the start does not."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 2, (900, 20), generator=generator).double() * 2 - 1
    y = x[:, :1] * x[:, 1:2]
    n, steps, found = 300, 400, {}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 1)).double()
    start = model(x).detach()
    k = lz.ntk(model, x, x[:n], certify=False).matrix
    rate = 0.5 * n / float(torch.linalg.eigvalsh(k[:n])[-1])
    right = (kernel.linearized_descent(k[:n], k[n:], y[:n], rate, steps, loss="half") * y[n:] > 0)[
        :, 0
    ]
    for alpha in (0.3, 100.0):
        now = copy.deepcopy(model)
        for _ in range(steps):
            loss = ((alpha * (now(x[:n]) - start[:n]) - y[:n]) ** 2).sum() / (2 * n * alpha**2)
            gradients = torch.autograd.grad(loss, list(now.parameters()))
            with torch.no_grad():
                for p, g in zip(now.parameters(), gradients, strict=True):
                    p.sub_(rate * g)
        answers = ((now(x[n:]) - start[n:]) * y[n:] > 0)[:, 0]
        found[alpha] = kernel.accuracy_gap(answers, right)
    assert found[0.3].low > 0.1
    assert abs(found[100.0].value) < 0.03


def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[1] / "docs" / "measures" / "tangent_kernel.md"
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, page.name, "exec"), {})
    assert blocks
    assert (tmp_path / "kernel.safetensors").exists()
