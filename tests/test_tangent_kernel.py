"""The tangent kernel against Jacobians of single samples, closed forms and its own certificate."""

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import lazyrich as lz
from lazyrich._kernel import Kernel
from lazyrich._tangent_plan import Plan
from lazyrich.errors import LazyrichError, MemoryRefused, ShapeError, UnknownName, UnreadableFile
from oracles import jacobians as oracle

KINDS = ("trace", "full", "class", "sum_logits")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def distance(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for d, w in pairwise(widths):
        layers += [nn.Linear(d, w), activation()]
    return nn.Sequential(*layers[:-1]).double()


class Residual(nn.Module):
    """Convolutions with BatchNorm whose statistics are not those of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(4, 4, 3, padding="same", padding_mode="circular")
        self.bn, self.fc = nn.BatchNorm2d(4), nn.Linear(4, 3)
        self.double()
        for module in (self.norm, self.bn):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.norm(self.stem(x)), inplace=True)
        return self.fc(functional.relu(h + self.bn(self.conv(h))).mean((2, 3)))


class Transformer(nn.Module):
    """One block over embeddings, with the positions' embedding of a batch of one."""

    def __init__(self, fused: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(11, 6, padding_idx=0), nn.Embedding(5, 6)
        self.norms = nn.ModuleList([nn.LayerNorm(6), nn.RMSNorm(6)])
        self.qkv, self.o = nn.Linear(6, 18), nn.Linear(6, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True) if fused else None
        self.up, self.down = nn.Linear(6, 9), nn.Linear(9, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.double()
        if tied:
            self.head.weight = self.table.weight
        for norm in self.norms:
            nn.init.normal_(norm.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.table(tokens) + self.places(torch.arange(tokens.shape[1])[None])
        z = self.norms[0](h)
        if self.attention is not None:
            h = h + self.attention(z, z, z, need_weights=False)[0]
        else:
            q, k, v = self.qkv(z).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
            mixed = functional.softmax(q @ k.mT / 3**0.5, -1) @ v
            h = h + self.o(mixed.transpose(1, 2).flatten(2))
        h = h + self.down(functional.gelu(self.up(self.norms[1](h))))
        return self.head(h.mean(1))


class Looped(nn.Module):
    """The same module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 5), nn.Linear(5, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Convolutions(nn.Module):
    """Strides, dilations, groups, channel norms, and one and three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
        self.b = nn.Conv2d(4, 6, 2, groups=2)
        self.depthwise = nn.Conv2d(6, 6, 1, groups=6)
        self.norm = nn.GroupNorm(3, 6)
        self.c = nn.Conv1d(6, 3, 2, padding_mode="reflect", padding=1)
        self.d = nn.Conv3d(1, 2, (2, 1, 2))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(torch.tanh(self.b(torch.tanh(self.a(x))))))
        line = self.c(h.flatten(2)).mean(2)
        return torch.cat([line, self.d(x[:, None]).square().flatten(2).mean(2)], 1)


def tokens(n: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 11, (n, 5), generator=torch.Generator().manual_seed(seed))


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (mlp(7, 12, 9, 3), normal(7, 7)),
    "residual": lambda: (Residual().eval(), normal(7, 2, 5, 4)),
    "convolutions": lambda: (Convolutions(), normal(7, 2, 7, 6)),
    "transformer": lambda: (Transformer(), tokens(7)),
    "fused attention": lambda: (Transformer(fused=True), tokens(7)),
    "tied weights": lambda: (Transformer(tied=True), tokens(7)),
    "module used twice": lambda: (Looped(), normal(7, 5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_jacobians_of_single_samples(name: str, kind: Any) -> None:
    model, x = MODELS[name]()
    for other in (None, x[:3]):
        found = lz.ntk(model, x, other, kind=kind)
        assert distance(found.matrix, oracle.kernel(model, x, other, kind)) < 1e-12
        assert found.certificate is not None
        assert found.certificate < 1e-10
        assert (found.n, found.m) == (7, 7 if other is None else 3)
        assert found.matrix.dtype == torch.float64


def test_layout_is_samples_then_outputs() -> None:
    model, x = MODELS["mlp"]()
    a, b = (oracle.jacobian(model, x)[i, c] for i, c in ((1, 2), (4, 0)))
    found = lz.ntk(model, x, kind="full")
    assert float(found.matrix[1 * 3 + 2, 4 * 3 + 0]) == pytest.approx(float(a @ b))
    assert float(found.blocks[1, 2, 4, 0]) == pytest.approx(float(a @ b))
    assert lz.ntk(model, x, x[:2], kind="full").blocks.shape == (7, 3, 2, 3)
    with pytest.raises(LazyrichError, match="has no blocks"):
        _ = lz.ntk(model, x).blocks


def test_one_logit_and_outputs_taken_out() -> None:
    model, x = MODELS["mlp"]()
    found = lz.ntk(model, x, kind="single", logit=1)
    assert distance(found.matrix, oracle.kernel(model, x, None, "single", 1)) < 1e-12
    assert distance(lz.ntk(model, x, out=lambda y: y[:, 1:2]).matrix, found.matrix) < 1e-12
    assert distance(lz.ntk(model, x, kind="single", logit=-2).matrix, found.matrix) < 1e-12


@pytest.mark.parametrize("name", ["residual", "tied weights", "fused attention"])
@pytest.mark.parametrize("kind", ["full", "trace"])
def test_little_memory_changes_nothing(name: str, kind: Any, monkeypatch: Any) -> None:
    model, x = MODELS[name]()
    whole = lz.ntk(model, x, kind=kind, by="parameter")
    planned, plans = Plan.of, []

    def unblocked(*options: Any) -> Plan:
        plan = planned(*options)
        if plan.block < 7:
            raise MemoryRefused("more than the least that needs no blocks is wanted")
        plans.append(plan)
        return plan

    monkeypatch.setattr(Plan, "of", unblocked)
    memory = 1e-6
    while not plans:
        memory *= 1.3
        with suppress(MemoryRefused):
            tight = lz.ntk(model, x, kind=kind, by="parameter", memory=memory)
    assert plans[-1].limit < 20_000
    assert distance(tight.matrix, whole.matrix) < 1e-12
    assert tight.terms.keys() == whole.terms.keys()
    for key, term in whole.terms.items():
        torch.testing.assert_close(tight.terms[key], term)


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("by", [None, "parameter"])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_samples_make_the_same_kernel(
    kind: Any, by: Any, other: bool, monkeypatch: Any
) -> None:
    model, x = MODELS["residual"]()
    z = normal(4, 2, 5, 4, seed=1) if other else None
    whole = lz.ntk(model, x, z, kind=kind, by=by)
    planned = Plan.of
    for size in (3, 1):
        monkeypatch.setattr(Plan, "of", lambda *a, size=size: replace(planned(*a), block=size))
        found = lz.ntk(model, x, z, kind=kind, by=by)
        assert distance(found.matrix, whole.matrix) < 1e-12
        assert found.engines.keys() == whole.engines.keys()
        assert found.certificate is not None
        assert found.terms.keys() == whole.terms.keys()
        for key, term in whole.terms.items():
            torch.testing.assert_close(found.terms[key], term)


def test_too_little_memory_is_refused_with_what_to_do() -> None:
    model, x = MODELS["mlp"]()
    for kind in KINDS:
        with pytest.raises(MemoryRefused, match="kind='trace', or 'sum_logits'"):
            lz.ntk(model, x, kind=kind, memory=1e-7)
    with pytest.raises(MemoryRefused, match="layer '2'.*numbers for its gradients"):
        lz.ntk(mlp(2, 3, 200), normal(1, 2), kind="full", memory=0.00101)


def test_a_linear_model_has_the_closed_form() -> None:
    model, x = nn.Linear(4, 3).double(), normal(6, 4)
    inner = x @ x.T + 1
    full = torch.kron(inner, torch.eye(3, dtype=torch.double))
    assert distance(lz.ntk(model, x, kind="full").matrix, full) < 1e-14
    assert distance(lz.ntk(model, x).matrix, 3 * inner) < 1e-14
    assert distance(lz.ntk(model, x, kind="sum_logits").matrix, inner) < 1e-14


def test_one_hidden_layer_has_the_closed_form() -> None:
    d, w, x = 5, 40, normal(8, 5)

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.a = nn.Linear(d, w, bias=False), nn.Linear(w, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(torch.tanh(self.w(x) / d**0.5)) / w**0.5

    model = Hidden().double()
    phi = torch.tanh(x @ model.w.weight.T / d**0.5).detach()
    slope = (1 - phi.square()) * model.a.weight.detach()
    wanted = (phi @ phi.T + slope @ slope.T * (x @ x.T) / d) / w
    assert distance(lz.ntk(model, x).matrix, wanted) < 1e-14


def test_frozen_but_for_the_readout_it_is_the_features() -> None:
    model, x = MODELS["mlp"]()
    model.requires_grad_(False)[-1].weight.requires_grad_(True)
    with torch.no_grad():
        features = model[:-1](x)
    found = lz.ntk(model, x, kind="full")
    wanted = torch.kron(features @ features.T, torch.eye(3, dtype=torch.double))
    assert distance(found.matrix, wanted) < 1e-14
    assert list(found.engines) == ["4.weight"]
    with pytest.raises(LazyrichError, match="no parameter of the model requires a gradient"):
        lz.ntk(model.requires_grad_(False), x)


@pytest.mark.parametrize("name", MODELS)
def test_laws(name: str) -> None:
    model, x = MODELS[name]()
    found = lz.ntk(model, x, kind="full", by="parameter")
    k = found.matrix
    assert torch.equal(k, k.T) or distance(k.T, k) < 1e-15
    assert torch.linalg.eigvalsh(k)[0] > -1e-12 * k.trace()
    assert distance(sum(found.terms.values()), k) < 1e-14
    layers = lz.ntk(model, x, kind="full", by="layer").terms
    assert distance(sum(layers.values()), k) < 1e-14
    assert layers.keys() == {name.rpartition(".")[0] for name in found.terms}
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    permuted = lz.ntk(model, x[order], kind="full").blocks
    assert distance(permuted, found.blocks[order][:, :, order]) < 1e-12
    split = torch.cat([lz.ntk(model, part, x, kind="full").matrix for part in (x[:4], x[4:])])
    assert distance(split, k) < 1e-12
    scaled = lz.ntk(model, x, kind="full", out=lambda y: 3 * y).matrix
    assert distance(scaled, 9 * k) < 1e-12
    trace = lz.ntk(model, x).matrix
    assert distance(torch.einsum("icjc->ij", found.blocks), trace) < 1e-12
    assert distance(lz.ntk(model, x, kind="class").matrix.sum(0), trace) < 1e-12


def test_units_may_trade_places_but_not_scales() -> None:
    model, x = mlp(7, 12, 3), normal(6, 7)
    k = lz.ntk(model, x).matrix
    order = torch.randperm(12)
    with torch.no_grad():
        for parameter in (model[0].weight, model[0].bias):
            parameter.copy_(parameter[order])
        model[2].weight.copy_(model[2].weight[:, order])
    assert distance(lz.ntk(model, x).matrix, k) < 1e-13
    before = model(x)
    with torch.no_grad():
        model[0].weight.mul_(2)
        model[0].bias.mul_(2)
        model[2].weight.div_(2)
    torch.testing.assert_close(model(x), before)
    assert distance(lz.ntk(model, x).matrix, k) > 0.1


def test_weights_are_learning_rates_by_layer() -> None:
    model, x = mlp(7, 12, 9, 3, activation=nn.Tanh), normal(6, 7)
    terms = lz.ntk(model, x, kind="full", by="parameter").terms
    rates = {"0.*": 3.0, "4.weight": 0.0, "*.weight": 0.5}
    wanted = 3 * (terms["0.weight"] + terms["0.bias"]) + terms["2.bias"] + terms["4.bias"]
    wanted = wanted + 0.5 * terms["2.weight"]
    found = lz.ntk(model, x, kind="full", weights=rates)
    assert distance(found.matrix, wanted) < 1e-13
    assert "4.weight" not in found.engines
    residual, before = normal(6, 3, seed=1), model(x).detach()
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad((model(x) * residual).sum(), list(named.values()))
    by_name = {"0.weight": 3.0, "0.bias": 3.0, "2.weight": 0.5, "4.weight": 0.0}
    errors = []
    for step in (1e-3, 1e-4):
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for (name, p), g in zip(moved.named_parameters(), gradients, strict=True):
                p.sub_(step * by_name.get(name, 1.0) * g)
            change = (moved(x) - before).flatten() / step
        errors.append(distance(change, -found.matrix @ residual.flatten()))
    assert errors[0] < 1e-2
    assert errors[1] == pytest.approx(errors[0] / 10, rel=0.2)
    with pytest.raises(UnknownName, match="no parameter matches 'fc'"):
        lz.ntk(model, x, weights={"fc": 1.0})
    with pytest.raises(LazyrichError, match="has -1.0, where 0 or more"):
        lz.ntk(model, x, weights={"0.*": -1.0})


class Edge(nn.Module):
    """A body over a hidden layer, for what modules do not show."""

    def __init__(self, body: Callable[["Edge", Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.inner, self.head = body, nn.Linear(8, 8), nn.Linear(8, 3)
        self.gain, self.cell = nn.Parameter(normal(8)), nn.LSTM(8, 8, batch_first=True)
        self.scale = nn.Parameter(normal(1))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self, x))


def _functional(m: Edge, x: Tensor) -> Tensor:
    return torch.tanh(functional.linear(x, m.inner.weight, m.inner.bias))


def _both(m: Edge, x: Tensor) -> Tensor:
    return torch.tanh(m.inner(torch.tanh(functional.linear(x, m.inner.weight))))


def _branching(m: Edge, x: Tensor) -> Tensor:
    return torch.tanh(m.inner(x)) * (m.gain if bool(x.isfinite().all()) else 2 * m.gain)


BODIES: dict[str, tuple[Callable[[Edge, Tensor], Tensor], dict[str, str]]] = {
    "bare parameter": (lambda m, x: m.inner(x).tanh() * m.gain, {"gain": "jacobian"}),
    "functional": (_functional, {"inner.weight": "jacobian", "inner.bias": "jacobian"}),
    "module and functional": (_both, {"inner.weight": "jacobian, as modules do not show"}),
    "branches on data": (_branching, {"gain": "jacobian, sample by sample"}),
    "recurrent": (lambda m, x: m.cell(x[:, None])[0][:, 0], {"cell.weight_ih_l0": "jacobian"}),
    "in place after": (lambda m, x: functional.relu(m.inner(x), inplace=True), {}),
    "in place on the scaled": (lambda m, x: m.inner(x).mul_(m.scale), {"scale": "jacobian"}),
    "sign": (lambda m, x: torch.sign(m.inner(x)), {}),
    "detach": (lambda m, x: m.inner(x).detach(), {"inner.weight": "unused"}),
    "no_grad": (lambda m, x: torch.no_grad()(m.inner)(x), {"inner.weight": "unused"}),
    "checkpoint": (lambda m, x: checkpoint(m.inner, x, use_reentrant=False).tanh(), {}),
    "keyword": (lambda m, x: m.inner(input=x).tanh(), {"inner.weight": "outer"}),
    "samples in rows": (lambda m, x: m.inner(x.view(-1, 4, 2).repeat(1, 1, 4)).sum(1), {}),
}


@pytest.mark.parametrize("kind", ["trace", "full"])
@pytest.mark.parametrize("body", BODIES)
def test_edge_cases(body: str, kind: Any) -> None:
    model, x = Edge(BODIES[body][0]), normal(6, 8)
    reference = copy.deepcopy(model)
    if body == "in place after":
        reference.body = lambda m, x: functional.relu(m.inner(x))
    for other in (None, x[:2]):
        found = lz.ntk(model, x, other, kind=kind)
        assert distance(found.matrix, oracle.kernel(reference, x, other, kind)) < 1e-12
        for name, engine in BODIES[body][1].items():
            assert found.engines[name].startswith(engine)
    if body == "sign":
        zero = lz.ntk(model, x, by="parameter").terms["inner.weight"]
        assert not zero.any()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_weight_norm_is_differentiated_at_its_parameters(old: bool, moved: bool) -> None:
    norm = nn.utils.weight_norm if old else parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Linear(5, 9)), nn.Tanh(), nn.Linear(9, 2)).double()
    if moved:
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.3 * torch.randn_like(p))
    x = normal(6, 5)
    found = lz.ntk(model, x, kind="full", by="layer")
    assert distance(found.matrix, oracle.kernel(model, x)) < 1e-12
    assert found.terms.keys() == {"0", "2"}


def test_evaluation_mode_whatever_mode_the_model_is_in() -> None:
    model = nn.Sequential(
        nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(9, 2)
    ).double()
    model(normal(20, 5))
    x = normal(6, 5)
    wanted = oracle.kernel(copy.deepcopy(model).eval(), x)
    assert distance(lz.ntk(model, x, kind="full").matrix, wanted) < 1e-12


def test_outputs_that_depend_on_other_samples_are_refused() -> None:
    model = nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9, track_running_stats=False))
    model.append(nn.Linear(9, 2)).double()
    for kind in ("full", "trace"):
        with pytest.raises(LazyrichError, match="does not run on a sample by itself"):
            lz.ntk(model, normal(6, 5), kind=kind)
    coupled = Edge(lambda m, x: torch.tanh(m.inner(x) - m.inner(x).mean(0)))
    with pytest.raises(LazyrichError, match="outputs of a sample depend on the others"):
        lz.ntk(coupled, normal(6, 8))
    assert lz.ntk(coupled, normal(6, 8), certify=False).certificate is None


def test_the_certificate_sees_a_wrong_part(monkeypatch: Any) -> None:
    """A Gram matrix with an error in one parameter is found out, and that parameter mended."""
    import lazyrich._tangent_sum as tangent_sum

    right = tangent_sum.gram

    def wrong(left: Any, other: Any, pairs: Any, limit: int) -> Any:
        term = right(left, other, pairs, limit)
        return term._replace(matrix=term.matrix * 1.001) if term.engine == "outer" else term

    monkeypatch.setattr(tangent_sum, "gram", wrong)
    model, x = MODELS["mlp"]()
    for kind in KINDS:
        for other in (None, x[:4]):
            found = lz.ntk(model, x, other, kind=kind)
            assert distance(found.matrix, oracle.kernel(model, x, other, kind)) < 1e-12
            assert found.engines["0.weight"].startswith("jacobian, as modules do not show")
    assert (
        distance(lz.ntk(model, x, certify=False).matrix, oracle.kernel(model, x, None, "trace"))
        > 1e-5
    )


@pytest.mark.parametrize("size", [(1, 3), (5, 1), (1, 1)])
def test_one_sample_and_one_output(size: tuple[int, int]) -> None:
    n, c = size
    model, x = mlp(4, 6, c), normal(n, 4)
    for kind in KINDS:
        assert (
            distance(lz.ntk(model, x, kind=kind).matrix, oracle.kernel(model, x, None, kind))
            < 1e-12
        )
    tiny = Transformer()
    found = lz.ntk(tiny, tokens(n), kind="full").matrix
    assert distance(found, oracle.kernel(tiny, tokens(n))) < 1e-12


def test_rank_deficient_kernels_are_what_they_are() -> None:
    model = nn.Linear(2, 1, bias=False).double()
    x = torch.cat([normal(4, 2), normal(2, 2)[:1] * 0, normal(4, 2)[:1]])
    found = lz.ntk(model, x).matrix
    assert int(torch.linalg.matrix_rank(found)) == 2
    assert not found[4].any()
    assert torch.equal(found[0], found[5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_precisions(dtype: torch.dtype) -> None:
    model, x = mlp(7, 12, 9, 3, activation=nn.Tanh), normal(7, 7)
    model = model.to(dtype)
    wanted = oracle.kernel(copy.deepcopy(model).double(), x.to(dtype).double())
    found = lz.ntk(model, x.to(dtype), kind="full")
    assert distance(found.matrix, wanted) < 1e-6
    assert found.certificate is not None
    assert found.certificate < 1e-6
    assert model[0].weight.dtype == dtype
    exact = lz.ntk(model, x.to(dtype), kind="full", dtype=torch.float64)
    assert distance(exact.matrix, wanted) < 1e-14


def test_the_model_comes_back_as_it_was() -> None:
    for model, x in (made() for made in MODELS.values()):
        model.train()
        first = next(model.parameters())
        first.grad = torch.ones_like(first)
        state = copy.deepcopy(model.state_dict())
        modes = [m.training for m in model.modules()]
        draws = torch.get_rng_state()
        for options in ({}, {"kind": "full"}, {"sketch": 2}):
            lz.ntk(model, x, **options)
        assert torch.equal(torch.get_rng_state(), draws)
        assert modes == [m.training for m in model.modules()]
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
        assert torch.equal(first.grad, torch.ones_like(first))
        assert all(p.grad is None for p in list(model.parameters())[1:])
        assert not any(m._forward_hooks for m in model.modules())


def test_mappings_time_first_and_what_models_return() -> None:
    class Dictionary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Transformer()

        def forward(self, input_ids: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
            return {"hidden": input_ids.double(), "logits": self.inner(input_ids) * scale}

    model = Dictionary()
    wanted = oracle.kernel(model.inner, tokens(5))
    item = {"input_ids": tokens(5), "labels": torch.zeros(5)}
    assert distance(lz.ntk(model, item, kind="full").matrix, wanted) < 1e-12
    assert distance(lz.ntk(model, (tokens(5), None), kind="full").matrix, wanted) < 1e-12

    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.cell, self.b = nn.Linear(3, 4), nn.GRU(4, 4), nn.Linear(4, 2)
            self.gain = nn.Parameter(normal(4))
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.cell(torch.tanh(self.a(x)))[0].mean(0) * self.gain)

    late = TimeFirst()
    x = normal(6, 5, 3)
    capture = lz.Capture(late, samples_axis=1)

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = late

        def forward(self, x: Tensor) -> Tensor:
            return self.late(x.transpose(0, 1))

    found = lz.ntk(capture, x.transpose(0, 1), kind="full")
    assert distance(found.matrix, oracle.kernel(First(), x)) < 1e-12


def test_many_outputs_are_done_in_parts_and_the_first_is_certified() -> None:
    model, x = mlp(6, 8, 40), normal(5, 6)
    for kind in ("trace", "class"):
        found = lz.ntk(model, x, kind=kind)
        assert distance(found.matrix, oracle.kernel(model, x, None, kind)) < 1e-12


def test_it_is_saved_and_read(tmp_path: Path) -> None:
    model, x = MODELS["mlp"]()
    for options in ({"kind": "full", "by": "layer"}, {"sketch": 4}):
        kernel = lz.ntk(model, x, **options)
        found = Kernel.load(kernel.save(tmp_path / "kernel.safetensors"))
        assert torch.equal(found.matrix, kernel.matrix)
        assert found.terms.keys() == kernel.terms.keys()
        assert all(torch.equal(found.terms[k], kernel.terms[k]) for k in found.terms)
        plain = [
            (k.kind, k.n, k.m, k.classes, k.engines, k.certificate, k.sketch_error)
            for k in (found, kernel)
        ]
        assert plain[0] == plain[1]
    (tmp_path / "other").write_text("no kernel")
    with pytest.raises(UnreadableFile, match="holds no kernel"):
        Kernel.load(tmp_path / "other")
    with pytest.raises(LazyrichError, match="cannot write"):
        kernel.save(tmp_path / "other" / "kernel")


def test_wrong_options_are_told() -> None:
    model, x = MODELS["mlp"]()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "traec"}, "no kind matches 'traec'. Nearest: trace"),
        ({"by": "layers"}, "no by matches 'layers'"),
        ({"kind": "single"}, "logit=... says which output"),
        ({"logit": 1}, "goes with it"),
        ({"kind": "single", "logit": 3}, "the model has 3 outputs"),
        ({"sketch": 1}, "two random directions or more"),
        ({"sketch": 4, "by": "layer"}, "leave out by="),
    ]
    for options, message in wrong:
        with pytest.raises(LazyrichError, match=message):
            lz.ntk(model, x, **options)
    with pytest.raises(ShapeError, match="outputs need one row each"):
        lz.ntk(model, x, out=lambda y: y.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_a_sketch_is_unbiased_and_tells_its_error(kind: Any) -> None:
    model, x = mlp(7, 12, 9, 3), normal(7, 7)
    exact = oracle.kernel(model, x, None, kind)
    found = [lz.ntk(model, x, kind=kind, sketch=32, seed=s) for s in range(40)]
    mean = torch.stack([k.matrix for k in found]).mean(0)
    errors = torch.tensor([distance(k.matrix, exact) for k in found])
    expected = torch.tensor([k.sketch_error for k in found])
    assert distance(mean, exact) < 2 * float(errors.square().mean().sqrt()) / 40**0.5
    size = float(errors.square().mean().sqrt())
    assert float(expected.square().mean().sqrt()) == pytest.approx(size, rel=0.15)
    if kind == "full":
        ratio = float(exact.trace() ** 2 / exact.square().sum())
        assert size == pytest.approx(((1 + ratio) / 32) ** 0.5, rel=0.1)


def test_a_sketch_takes_weights_blocks_and_models_that_nothing_else_fits() -> None:
    model, x = mlp(7, 12, 3), normal(5, 7)
    weights = {"0.*": 4.0, "2.bias": 0.0}
    both = lz.ntk(model, x, kind="full", sketch=6, weights=weights).matrix
    block = lz.ntk(model, x, x[:2], kind="full", sketch=6, weights=weights).matrix
    torch.testing.assert_close(block, both[:, :6])
    exact = lz.ntk(model, x, weights=weights).matrix
    many = [lz.ntk(model, x, sketch=50, weights=weights, seed=s).matrix for s in range(20)]
    assert distance(torch.stack(many).mean(0), exact) < 0.1
    coupled = Edge(lambda m, x: torch.tanh(m.inner(x) - m.inner(x).mean(0)))
    assert lz.ntk(coupled, normal(6, 8), sketch=4).engines["gain"] == "sketch"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_hugging_face_models(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    x = torch.randint(0, 50, (5, 6))
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=50, hidden_size=8, max_position_embeddings=10, num_labels=3, **small
        )
        model = transformers.BertForSequenceClassification(config)
    elif name == "gpt2":  # its table is its head, too
        config = transformers.GPT2Config(
            vocab_size=50,
            n_positions=10,
            n_embd=8,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.ViTConfig(
            hidden_size=8, image_size=8, patch_size=4, num_labels=3, **small
        )
        model, x = transformers.ViTForImageClassification(config), normal(5, 3, 8, 8)
    model = model.double().eval()

    def out(returned: Any) -> Tensor:
        return returned.logits[:, -1] if name == "gpt2" else returned.logits

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            return out(self.inner(x))

    wanted = oracle.kernel(Plain(), x)
    assert distance(lz.ntk(model, x, kind="full", out=out).matrix, wanted) < 1e-12
