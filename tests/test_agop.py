"""AGOP and NFM against Jacobians, closed forms and theorems, on every kind of layer."""

import math
import statistics
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import lazyrich as lz
from lazyrich._agop import Positions
from lazyrich.errors import (
    LazyrichError,
    NonFinite,
    ShapeError,
    Undefined,
    UnknownName,
    UnreadableFile,
)
from lazyrich.statistics import GradientMoments


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def jacobians(rest: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """Of what follows, sample by sample: [n, c, *h]."""
    found = [torch.autograd.functional.jacobian(rest, x[None]) for x in h.detach()]
    return torch.stack([j[0].flatten(0, -h.ndim - 1)[:, 0] for j in found])


def reference(rest: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """The AGOP with respect to h, [n, positions, d], each position an input of its own."""
    j = jacobians(rest, h)
    return torch.einsum("ncpi,ncpj->ij", j, j) / len(h)


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


def mlp(dtype: torch.dtype = torch.float64, inplace: bool = True) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(7, 12), nn.ReLU(inplace), nn.Linear(12, 9), nn.GELU(), nn.Linear(9, 3)]
    return nn.Sequential(*layers).to(dtype)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("layer", ["0", "2", "4"])
def test_equals_the_jacobians_of_an_mlp(layer: str, dtype: torch.dtype, close: float) -> None:
    model, x = mlp(dtype), normal(30, 7, dtype=dtype)
    place = int(layer)
    with torch.no_grad():
        h = x if place == 0 else model[:place](x)
    wanted = reference(lambda h: mlp(dtype, inplace=False)[place:](h[:, 0]), h[:, None])
    assert distance(lz.agop(model, [x[:7], x[7:8], x[8:]], layer).matrix, wanted) < close
    w = model[place].weight.detach().double()
    assert distance(lz.nfm(model, layer).matrix, w.T @ w) < 1e-15


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": (2, 1)}]
)
def test_equals_the_jacobians_of_patches(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    first = nn.Conv2d(2, 5, 3, **options).double()
    rest = nn.Sequential(nn.Tanh(), nn.Conv2d(5, 3, 2), nn.Flatten(), nn.Softmax(1)).double()
    x = normal(3, 2, 7, 6)
    size = first(x).shape[2:]
    patches = functional.unfold(x, 3, **options).transpose(1, 2)

    def after(patches: Tensor) -> Tensor:
        z = patches @ first.weight.flatten(1).T + first.bias
        return rest(z.transpose(1, 2).unflatten(2, size))

    found = lz.agop(nn.Sequential(first, rest), [x], "0")
    assert distance(found.matrix, reference(after, patches)) < 1e-12
    assert len(found.diagonal) == 2 * 3 * 3


class Attention(nn.Module):
    """One block; queries, keys and values by separate modules, or all by torch's own."""

    def __init__(self, fused: bool, batch_first: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.num_heads = 2
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(6, 6) for _ in range(4))
        self.norm, self.fc = nn.LayerNorm(6), nn.Linear(6, 2)
        self.double()
        if fused:
            self.attn = nn.MultiheadAttention(6, 2, batch_first=batch_first).double()
            each = (self.q_proj, self.k_proj, self.v_proj)
            with torch.no_grad():
                self.attn.in_proj_weight.copy_(torch.cat([m.weight for m in each]))
                self.attn.in_proj_bias.copy_(torch.cat([m.bias for m in each]))
            self.attn.out_proj.load_state_dict(self.o_proj.state_dict())
        self.fused, self.time = fused, 1 if batch_first else 0

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            z = self.attn(x, x, x, need_weights=False)[0]
        else:
            z = self.attend(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        return self.fc(self.norm(x + z).mean(self.time))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(-2, -3) for t in (q, k, v))
        return self.o_proj(
            functional.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2)
        )


@pytest.mark.parametrize("letter", "qkv")
def test_equals_the_jacobians_of_each_head(letter: str) -> None:
    model, x = Attention(fused=False), normal(4, 5, 6)
    with torch.no_grad():
        z = {name: getattr(model, f"{name}_proj")(x) for name in "qkv"}

    def after(h: Tensor, sample: int, rows: slice) -> Tensor:
        own = {name: t[sample : sample + 1] for name, t in z.items()}
        projection = getattr(model, f"{letter}_proj")
        here = own[letter].clone()
        here[..., rows] = h @ projection.weight[rows].T + projection.bias[rows]
        mixed = model.attend(*(own | {letter: here}).values())
        return model.fc(model.norm(x[sample : sample + 1] + mixed).mean(1))

    for head in (0, 1):
        rows = slice(3 * head, 3 * head + 3)
        wanted = (
            sum(
                reference(lambda h, s=sample, r=rows: after(h, s, r), x[sample : sample + 1])
                for sample in range(4)
            )
            / 4
        )
        found = lz.agop(model, [x[:1], x[1:]], f"{letter}_proj:head{head}")
        assert distance(found.matrix, wanted) < 1e-12


@pytest.mark.parametrize("batch_first", [True, False])
def test_fused_attention_is_read_like_its_projections(batch_first: bool) -> None:
    x = normal(4, 5, 6)
    plain, fused = Attention(fused=False), Attention(fused=True, batch_first=batch_first)
    data = [x] if batch_first else [x.transpose(0, 1)]
    capture = lz.Capture(fused, samples_axis=0 if batch_first else 1)
    torch.testing.assert_close(plain(x), fused(data[0]))
    pairs = {f"attn:{n}.head{h}": f"{n}_proj:head{h}" for n in "qkv" for h in (0, 1)}
    pairs |= {"attn:k": "k_proj", "attn:out": "o_proj"}
    for name, same in pairs.items():
        wanted = lz.agop(plain, [x], same).matrix
        assert distance(lz.agop(capture, data, name).matrix, wanted) < 1e-12
        assert distance(lz.nfm(fused, name).matrix, lz.nfm(plain, same).matrix) < 1e-15
    names = lz.nfa(capture, data, "nfa_correlation").unique("layer")
    assert list(names[:6]) == list(pairs)[:6]


def test_attention_to_another_sequence_reads_all_three_projections() -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attn = nn.MultiheadAttention(6, 2, batch_first=True).double()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.attn(x, y, y)[0].sum(1)

    model, x, y = Cross(), normal(3, 4, 6), normal(3, 5, 6, seed=1)
    records = lz.nfa(model, [((x, y), None)], "nfa_correlation")
    assert len(records) == 7
    assert all(r.status == "ok" for r in records if not r.layer.endswith("out"))


class Steps(nn.Module):
    """A recurrent network out of Linear layers, each called at every step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.i2h, self.h2h, self.out = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.i2h(x))

    def after(self, z: Tensor) -> Tensor:
        h = torch.zeros(len(z), 6, dtype=z.dtype)
        for step in range(z.shape[1]):
            h = torch.tanh(z[:, step] + self.h2h(h))
        return self.out(h)


@pytest.mark.parametrize("positions", ["free", "summed"])
def test_equals_the_jacobians_of_steps_in_both_conventions(positions: Positions) -> None:
    model, x = Steps(), normal(5, 3, 4)
    j = jacobians(lambda h: model.after(model.i2h(h)), x)
    j = j if positions == "free" else j.sum(2, keepdim=True)
    wanted = torch.einsum("ncpi,ncpj->ij", j, j) / 5
    assert distance(lz.agop(model, [x], "i2h", positions=positions).matrix, wanted) < 1e-12
    looped = lz.agop(model, [x], "h2h", positions=positions)
    assert looped.matrix.shape == (6, 6)


def test_calls_of_a_module_are_positions_of_it() -> None:
    model, x = Steps(), normal(5, 3, 4)

    class Looped(Steps):
        def forward(self, x: Tensor) -> Tensor:
            return self.after(torch.stack([self.i2h(x[:, step]) for step in range(3)], 1))

    for positions in ("free", "summed"):
        one, other = (lz.agop(m, [x], "i2h", positions=positions).matrix for m in (model, Looped()))
        torch.testing.assert_close(one, other)


def test_an_affine_network_has_the_closed_form_and_nothing_when_centered() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)).double()
    whole = (model[1].weight @ model[0].weight).detach()
    for n in (1, 20):
        assert distance(lz.agop(model, [normal(n, 5)], "0").matrix, whole.T @ whole) < 1e-12
    with pytest.raises(Undefined, match="the same for every sample"):
        lz.agop(model, [normal(20, 5)], "0", center=True)


def test_a_quadratic_form_has_the_closed_form() -> None:
    class Quadratic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 6, bias=False).double()
            self.h = nn.Parameter((a := normal(6, 6)) + a.T)

        def forward(self, x: Tensor) -> Tensor:
            z = self.first(x)
            return (z @ self.h * z).sum(1, keepdim=True) / 2

    model, x = Quadratic(), normal(50, 4)
    w = model.first.weight.detach()
    gradients = x @ w.T @ model.h.detach() @ w
    assert distance(lz.agop(model, [x], "first").matrix, gradients.T @ gradients / 50) < 1e-12
    centered = gradients - gradients.mean(0)
    found = lz.agop(model, [x[:9], x[9:]], "first", center=True).matrix
    assert distance(found, centered.T @ centered / 50) < 1e-12


def trained(model: nn.Module, x: Tensor, y: Tensor, steps: int, rate: float) -> nn.Module:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize(("start", "exact"), [(0.0, True), (0.05, False)])
def test_proposition_1_one_sample_from_zero(start: float, exact: bool) -> None:
    """The ansatz is exact where the first layer starts at zero and sees one sample."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20, bias=False), nn.Tanh(), nn.Linear(20, 1)).double()
    with torch.no_grad():
        model[0].weight.normal_().mul_(start)
    model[2].requires_grad_(False)
    trained(model, normal(1, 6), torch.ones(1, 1, dtype=torch.float64), 50, 0.1)
    for z in normal(5, 6, seed=1):
        found = lz.nfa(
            model,
            [z[None]],
            lz.CATALOGUE["nfa_correlation"].using(power=1.0, similarity="cosine"),
            layers="0",
        )
        assert (1 - found[0].value < 1e-12) == exact


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_balanced_deep_linear_networks_have_a_power_for_each_layer(depth: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(5, 5, bias=False) for _ in range(depth))).double()
    with torch.no_grad():  # balanced: W_l+1' W_l+1 = W_l W_l'
        bases = [torch.linalg.qr(normal(5, 5, seed=s))[0] for s in range(depth + 1)]
        sizes = torch.tensor([2.0, 1.5, 1.0, 0.7, 0.3], dtype=torch.float64)
        for place, layer in enumerate(model):
            layer.weight.copy_(bases[place + 1] * sizes @ bases[place].T)
    scan = lz.nfa(model, [normal(9, 5)], "nfa_power_scan")
    best = {
        layer: max((r.value, r.index) for r in scan.where(layer=layer))
        for layer in scan.unique("layer")
    }
    for place in range(depth):
        value, k = best[str(place)]
        assert k == depth - place
        assert value == pytest.approx(1, abs=1e-10)


def test_theorem_1_averages_over_initializations() -> None:
    first = normal(16, 10)

    def moments(inits: int) -> float:
        total = 0.0
        for seed in range(inits):
            torch.manual_seed(seed)
            model = nn.Sequential(
                nn.Linear(10, 16, bias=False), nn.ReLU(), nn.Linear(16, 1)
            ).double()
            with torch.no_grad():
                model[0].weight.copy_(first)
            total = total + lz.agop(model, [normal(1000, 10, seed=seed)], "0").matrix
        nfm = first.T @ first
        return float((nfm * total).sum() / nfm.norm() / total.norm())

    assert moments(60) > max(moments(3), 0.97)


def test_the_last_linear_map_is_flagged_and_is_one() -> None:
    records = lz.nfa(mlp(), [normal(30, 7)]).where(layer="4")
    plain = [r for r in records if "power=1.0" in r.estimator]
    assert [r.value for r in plain] == pytest.approx([1, 1])
    assert all(r.status == "caution" and "whatever was learned" in r.note for r in plain)
    assert all(r.status == "ok" for r in lz.nfa(mlp(), [normal(30, 7)]).where(layer="2"))


def wide() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(4)
    layers = [nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 120)]
    return nn.Sequential(*layers).double(), normal(60, 20)


def test_mixtures_of_outputs_estimate_all_without_bias() -> None:
    model, x = wide()
    exact = lz.agop(model, [x], "0", probes=0).matrix
    many = torch.stack([lz.agop(model, [x], "0", probes=2, seed=s).matrix for s in range(100)])
    far = ((many.mean(0) - exact) / (many.std(0) / 10)).abs()
    assert float((far > 3).double().mean()) < 0.02
    assert lz.agop(model, [x], "0").note == "60 samples, free positions, 16 mixtures of outputs"
    few = lz.agop(model[:3], [x], "0")
    assert few.note == "60 samples, free positions"


def test_two_halves_take_the_bias_off_the_correlation() -> None:
    model, x = wide()
    m = lz.CATALOGUE["nfa_correlation"].using(power=1.0)

    def value(probes: int, seed: int = 0) -> float:
        return lz.nfa(model, [x], m, layers="0", probes=probes, seed=seed)[0].value

    exact = value(0)
    several = torch.tensor([value(2, seed) for seed in range(20)])
    assert float(several.mean()) == pytest.approx(exact, abs=4 * float(several.std()) / sqrt(20))
    record = lz.nfa(model, [x], "nfa_correlation", layers="0", probes=2)[0]
    assert record.status == "caution"
    assert "2 random mixtures stand for all outputs, which lowers this" in record.note
    centered = lz.nfa(model, [x], m.using(center=True), layers="0", probes=2)[0]
    assert centered.status == "undefined"


def test_mixing_the_outputs_changes_nothing() -> None:
    model, x = mlp(), normal(30, 7)
    turned = nn.Sequential(*mlp(), last := nn.Linear(3, 3, bias=False).double())
    with torch.no_grad():
        last.weight.copy_(torch.linalg.qr(normal(3, 3))[0])
    for center in (False, True):
        one, other = (lz.agop(m, [x], "0", center=center).matrix for m in (model, turned))
        torch.testing.assert_close(one, other)


def test_moments_add_up() -> None:
    g = normal(12, 3, 4)
    parts = [GradientMoments.of([p]) for p in g.split([5, 1, 6])]
    whole = GradientMoments.of([g])
    for found in ((parts[0] + parts[1]) + parts[2], parts[0] + (parts[1] + parts[2])):
        for name in ("n", "rows", "sums", "outer"):
            torch.testing.assert_close(getattr(found, name), getattr(whole, name))


@pytest.mark.parametrize("sizes", [[30], [7, 1, 22]])
def test_batches_and_their_order_do_not_matter(sizes: list[int]) -> None:
    model, x = mlp(), normal(30, 7)
    one = lz.nfa(model, [x]).values()
    other = lz.nfa(model, list(x.split(sizes))[::-1]).values()
    assert one == pytest.approx(other, rel=1e-9, nan_ok=True)


def test_effective_weights_of_parametrized_layers() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 6)), *plain[1:]).double()
    with torch.no_grad():
        normed[0].parametrizations.weight.original0.mul_(3)
        plain[0].weight.copy_(normed[0].weight)
        plain[0].bias.copy_(normed[0].bias)
    x = normal(20, 5)
    for one, other in (
        (lz.nfm(plain, "0"), lz.nfm(normed, "0")),
        (lz.agop(plain, [x], "0"), lz.agop(normed, [x], "0")),
    ):
        torch.testing.assert_close(one.matrix, other.matrix)


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm = nn.Embedding(9, 6), nn.BatchNorm1d(6)
        self.fc, self.unused, self.out = nn.Linear(6, 5), nn.Linear(2, 2), nn.Linear(5, 2)
        self.groups, self.rnn = nn.Conv1d(6, 6, 1, groups=2), nn.LSTM(6, 6, batch_first=True)
        self.drop = nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.rnn(self.groups(self.embedding(tokens).transpose(1, 2)).transpose(1, 2))[0]
        return self.out(torch.relu(self.fc(self.drop(self.norm(x.mean(1))))))


def test_layers_without_a_matrix_have_a_row_that_says_why() -> None:
    records = lz.nfa(Mixed(), [torch.randint(0, 9, (20, 4))])
    reasons = {r.layer: r.note for r in records if r.status == "failed"}
    assert reasons["embedding"].startswith("its inputs are one-hot")
    assert reasons["norm"].startswith("normalization")
    assert reasons["groups"].startswith("a grouped convolution")
    assert reasons["unused"] == "never ran in the forward pass"
    assert records.where(status="ok").unique("layer") == ["rnn:ih_l0", "rnn:hh_l0", "fc", "out"]


def test_the_model_comes_back_as_it_was() -> None:
    model, data = Mixed(), [torch.randint(0, 9, (20, 4))]
    model.fc.requires_grad_(False)
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags = [p.requires_grad for p in model.parameters()]
    modes = [m.training for m in model.modules()]
    state = torch.get_rng_state()
    first = lz.nfa(model, data).values()
    assert torch.equal(state, torch.get_rng_state())
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    model.requires_grad_(False)  # a frozen model is measured as well
    assert lz.nfa(model, data).values() == pytest.approx(first, nan_ok=True)
    assert functional.linear.__module__ != "lazyrich._gradients"


def test_the_start_of_training_as_a_model_and_as_a_state() -> None:
    start, x = mlp(), normal(40, 7)
    state = {name: tensor.clone() for name, tensor in start.state_dict().items()}
    model = trained(mlp(), x, normal(40, 3, seed=5), 40, 0.3)
    one, other = (lz.nfa(model, [x], initial=i) for i in (start, state))
    assert one.values() == pytest.approx(other.values(), nan_ok=True)
    assert {"initial_nfm_correlation"} < set(one.unique("measure"))
    change = (model[0].weight - start[0].weight).detach()
    torch.testing.assert_close(lz.nfm(model, "0", initial=state).matrix, change.T @ change)
    record = next(r for r in one if r.layer == "0" and "weights=change" in r.estimator)
    agop = lz.agop(model, [x], "0").matrix
    values, vectors = torch.linalg.eigh(agop)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    wanted = torch.corrcoef(torch.stack([(change.T @ change).flatten(), root.flatten()]))[0, 1]
    assert record.value == pytest.approx(float(wanted))
    without = lz.nfa(model, [x], lz.CATALOGUE["nfa_correlation"].using(weights="change"))[0]
    assert "pass initial" in without.note


def test_the_null_level_is_the_mean_over_shuffled_coordinates() -> None:
    model, x = mlp(), normal(40, 7)
    for options in ({}, {"off_diagonal": True}, {"similarity": "cosine", "power": 1.0}):
        m = lz.CATALOGUE["nfa_correlation"].using(**options)
        record = lz.nfa(model, [x], m, layers="2")[0]
        n = lz.nfm(model, "2").matrix
        values, vectors = torch.linalg.eigh(lz.agop(model, [x], "2").matrix)
        a = vectors * values.clamp(min=0) ** options.get("power", 0.5) @ vectors.T
        keep = (
            ~torch.eye(12, dtype=torch.bool)
            if "off_diagonal" in options
            else torch.ones(12, 12, dtype=torch.bool)
        )
        shuffles = []
        for seed in range(400):
            order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
            pair = torch.stack([n[keep], a[order][:, order][keep]])
            pair = pair - pair.mean(1, keepdim=True) if "similarity" not in options else pair
            shuffles.append(float(functional.cosine_similarity(*pair, dim=0)))
        spread = torch.tensor(shuffles)
        assert record.null == pytest.approx(float(spread.mean()), abs=4 * float(spread.std()) / 20)


def test_intervals_leave_samples_out() -> None:
    records = lz.nfa(mlp(), [normal(100, 7)], "nfa_correlation", interval=10)
    assert all(r.low < r.value < r.high for r in records.where(layer="2"))
    assert records[0].n == 100
    assert records[0].dtype == "float64"
    with pytest.raises(LazyrichError, match="interval=10 needs 20 samples"):
        lz.nfa(mlp(), [normal(10, 7)], interval=10)


def test_top_directions_and_files(tmp_path: Path) -> None:
    found = lz.agop(mlp(), [normal(30, 7)], "0")
    sizes, directions = found.top(3)
    torch.testing.assert_close(found.matrix @ directions.T, directions.T * sizes)
    assert bool((directions.gather(1, directions.abs().argmax(1, keepdim=True)) > 0).all())
    torch.testing.assert_close(found.diagonal, found.matrix.diagonal())
    path = found.save(tmp_path / "deep" / "agop.safetensors")
    back = type(found).load(path)
    torch.testing.assert_close(back.matrix, found.matrix)
    assert (back.kind, back.layer, back.note) == (found.kind, found.layer, found.note)
    path.write_bytes(b"nothing")
    with pytest.raises(UnreadableFile, match="holds no matrix"):
        type(found).load(path)
    with pytest.raises(LazyrichError, match="cannot write"):
        found.save(path / "below")
    with pytest.raises(LazyrichError, match="k=0"):
        found.top(0)


def test_diagonals_are_shares_of_the_trace() -> None:
    records = lz.nfa(mlp(), [normal(30, 7)], ["agop_diagonal", "nfm_diagonal"], layers="0")
    agop = [r.value for r in records if r.measure == "agop_diagonal"]
    assert len(agop) == 7
    assert sum(agop) == pytest.approx(1)
    wanted = lz.agop(mlp(), [normal(30, 7)], "0").diagonal
    assert agop == pytest.approx((wanted / wanted.sum()).tolist())


@pytest.mark.parametrize(
    ("layer", "kind", "message"),
    [
        ("1", LazyrichError, "layer '1': no linear, convolutional or attention layer"),
        ("9", UnknownName, "no layer matches '9'"),
        ("0:head3", UnknownName, "no layer matches '0:head3'. Nearest: 0 "),
    ],
)
def test_layers_that_are_none_are_refused(layer: str, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        lz.agop(mlp(), [normal(9, 7)], layer)
    with pytest.raises(kind, match=message):
        lz.nfm(mlp(), layer)


def test_what_cannot_be_measured_is_refused() -> None:
    x = [normal(9, 7)]
    with pytest.raises(LazyrichError, match="probes=3: an even number"):
        lz.nfa(mlp(), x, probes=3)
    with pytest.raises(UnknownName, match="positions matches 'tied'"):
        lz.nfa(mlp(), x, positions="tied")  # type: ignore[arg-type]
    with pytest.raises(LazyrichError, match="none multiplies its inputs"):
        lz.nfa(nn.ReLU(), x)
    with pytest.raises(UnknownName, match="no layer matches 'fc'"):
        lz.nfa(mlp(), x, layers="fc")
    with pytest.raises(LazyrichError, match=r"capacity: lz.nfa\(\) takes nfa_correlation"):
        lz.nfa(mlp(), x, lz.CATALOGUE["capacity"])
    with pytest.raises(UnknownName, match="no measure matches 'nope'"):
        lz.nfa(mlp(), x, "nope")
    with pytest.raises(LazyrichError, match=r"lz.nfa\(\) takes it"):
        lz.measure(mlp(), x, "nfa_correlation")
    with pytest.raises(LazyrichError, match="no state dict of this model"):
        lz.nfa(mlp(), x, initial={"a": torch.ones(1)})
    with pytest.raises(ShapeError, match="outputs need one row each"):
        lz.nfa(nn.Sequential(nn.Linear(7, 3), nn.Flatten(0)).double(), x)


def test_outputs_that_depend_on_nothing_have_no_gradients() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(7, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).detach())

    records = lz.nfa(Cut(), [normal(9, 7, dtype=torch.float32)], "nfa_correlation")
    assert [r.status for r in records] == ["undefined", "caution"]
    assert "no output depends on this layer" in records[0].note


@pytest.mark.parametrize("scale", [1e-24, 1e24])
def test_gradients_whose_squares_float32_does_not_hold(scale: float) -> None:
    g = normal(12, 3, 4)
    small = GradientMoments.of([(g * scale).float()])
    torch.testing.assert_close(
        small.outer / scale**2, GradientMoments.of([g]).outer, rtol=1e-5, atol=1e-5
    )


def test_gradients_in_half_precision_are_multiplied_in_single() -> None:
    g = normal(2000, 1, 4).bfloat16()
    found, exact = (GradientMoments.of([x]).outer for x in (g, g.double()))
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-3)


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight * 4, self.bias)


def test_layers_that_do_not_act_by_their_weights_are_refused() -> None:
    model, x = nn.Sequential(Scaled(5, 7), nn.Tanh(), nn.Linear(7, 3)), torch.randn(12, 5)
    records = lz.nfa(model, [x], "nfa_correlation")
    assert {r.layer: r.status for r in records}["0"] == "failed"
    assert "not those of its weights" in records.where(layer="0")[0].note
    with pytest.raises(LazyrichError, match="layer '0': its outputs are not those of its weights"):
        lz.agop(model, [x], "0")
    hooked = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    before = lz.agop(hooked, [x], "0").matrix
    watching = hooked[0].register_forward_hook(lambda *_: None)
    torch.testing.assert_close(lz.agop(hooked, [x], "0").matrix, before)
    watching.remove()
    hooked[0].register_forward_hook(lambda m, i, o: o * 2)
    with pytest.raises(LazyrichError, match="not those of its weights"):
        lz.agop(hooked, [x], "0")


def test_samples_for_which_a_layer_does_not_run_count_as_zero() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).tanh() if bool((x > 0).all()) else x)

    torch.manual_seed(0)
    model, x = Sometimes(), torch.rand(6, 5)
    alone, both = lz.agop(model, [x], "a"), lz.agop(model, [x, -x], "a")
    torch.testing.assert_close(both.matrix, alone.matrix / 2)
    torch.testing.assert_close(lz.agop(model, [-x, x], "a").matrix, both.matrix)
    with pytest.raises(LazyrichError, match="never ran"):
        lz.agop(model, [-x], "a")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_named(bad: float) -> None:
    x = torch.randn(6, 7, dtype=torch.float64)
    x[2, 3] = bad
    with pytest.raises(NonFinite):
        lz.nfa(mlp(), [x])


def test_the_last_map_is_trivial_on_tokens_and_places_too() -> None:
    torch.manual_seed(0)
    tokens = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    places = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1))
    for model, x in ((tokens, torch.randn(6, 4, 5)), (places, torch.randn(6, 2, 4, 4))):
        last = lz.nfa(model, [x], "nfa_correlation").where(layer="2")[0]
        assert last.status == "caution" and "the last linear map" in last.note


def test_inference_mode_checkpoints_and_mixed_precision() -> None:
    class Half(nn.Module):
        def __init__(self, checkpointed: bool = False) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(4, 9), nn.Linear(9, 3)
            self.checkpointed = checkpointed

        def trunk(self, x: Tensor) -> Tensor:
            return self.a(x.to(self.a.weight.dtype)).tanh()

        def forward(self, x: Tensor) -> Tensor:
            z = (
                checkpoint(self.trunk, x, use_reentrant=False)
                if self.checkpointed
                else self.trunk(x)
            )
            return self.b(z.float())

    x = torch.randn(6, 4)
    wanted = lz.agop(Half(), [x], "a").matrix
    torch.testing.assert_close(lz.agop(Half(checkpointed=True), [x], "a").matrix, wanted)
    model = Half()
    with torch.inference_mode():
        found = lz.agop(model, [x.clone()], "a").matrix
        with pytest.raises(LazyrichError, match="made in torch.inference_mode"):
            lz.agop(Half(), [x], "a")
    torch.testing.assert_close(found, wanted)
    model.a.bfloat16()
    torch.testing.assert_close(lz.agop(model, [x], "a").matrix, wanted, rtol=0.05, atol=0.01)


def test_frozen_attention_is_read() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, x = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 2)), torch.randn(5, 3, 8)
    wanted = lz.agop(model, [x], "0.self_attn:q.head0").matrix
    model.requires_grad_(False)
    torch.testing.assert_close(lz.agop(model, [x], "0.self_attn:q.head0").matrix, wanted)
    assert torch.backends.mha.get_fastpath_enabled()


def test_halves_of_mixtures_serve_the_diagonal_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 12))
    measure = lz.CATALOGUE["nfa_correlation"].using(power=1.0, off_diagonal=True)
    data = [torch.randn(60, 20)]
    exact = lz.nfa(model, data, measure, layers="0")[0].value
    found = [lz.nfa(model, data, measure, layers="0", probes=2, seed=s)[0].value for s in range(60)]
    spread = statistics.stdev(found) / 60**0.5
    assert abs(statistics.mean(found) - exact) < 4 * spread


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"interval": 2.5}, "interval=2.5"),
        ({"positions": None}, "positions"),
        ({"measures": 3}, "measures=3"),
        ({"measures": []}, "measures"),
        ({"seed": None}, "seed=None"),
        ({"seed": 2**70}, "seed="),
        ({"data": [torch.randn(4, 7)[:0]]}, "every batch is empty"),
        ({"initial": nn.Linear(5, 2)}, "no earlier state"),
    ],
)
def test_arguments_that_mean_nothing_are_named(options: dict[str, Any], told: str) -> None:
    options = {"data": [normal(4, 7)]} | options
    with pytest.raises(LazyrichError, match=told):
        lz.nfa(mlp(), options.pop("data"), **options)


def test_sequences_of_other_lengths_are_told_to_be_padded() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    with pytest.raises(ShapeError, match="Pad sequences"):
        lz.nfa(model, [torch.randn(4, 3, 5), torch.randn(4, 6, 5)])


def test_embeddings_keep_their_weights_and_complex_layers_are_refused() -> None:
    model = nn.Sequential(nn.Embedding(10, 5, max_norm=0.5), nn.Flatten(), nn.Linear(20, 3))
    before = model[0].weight.clone()
    lz.nfa(model, [torch.randint(0, 10, (6, 4))])
    assert torch.equal(model[0].weight, before)
    with pytest.raises(LazyrichError, match="complex"):
        lz.nfm(nn.Sequential(nn.Linear(3, 2, dtype=torch.complex64)), "0")
