"""Parametrizations held to networks written out by hand, and to the rules of the package mup."""

import copy
from math import sqrt

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import lazyrich as lz
from lazyrich import kernel
from lazyrich.errors import LazyrichError, ShapeError, UnknownName
from lazyrich.parametrization import describe, parametrize, slope
from oracles import parametrizations as oracle

KINDS = ("standard", "ntk", "mean-field", "mup")
D, C, BASE, WIDE = 6, 3, 8, 24


def perceptron(width: int, depth: int = 2, bias: bool = False) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(D, width, bias), nn.Tanh()]
    for _ in range(depth - 1):
        parts += [nn.Linear(width, width, bias), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(width, C, bias)).double()


class Convolutional(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.mix = nn.Conv2d(width, 2 * width, 1)
        self.head = nn.Linear(2 * width, C)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.stem(x)))
        return self.head(torch.relu(self.mix(self.depthwise(h))).mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, width: int, heads: int | None = None) -> None:
        super().__init__()
        self.words = nn.Embedding(11, width, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(5, width))
        heads = heads or width // 4
        self.block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, C)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.block(self.words(tokens) + self.places[: tokens.shape[1]])
        return self.head(self.norm(h).mean(1))


def roles(model: nn.Module, base: nn.Module, **options) -> dict[str, str]:
    return {row.tensor: row.role for row in describe(model, "mup", base=base, **options)}


def data() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(16, D, generator=g, dtype=torch.float64)
    return x, torch.randint(C, (16,), generator=g)


def trained(model, groups, steps: int, optimizer=torch.optim.SGD) -> list[float]:
    x, y = data()
    optimizer, losses = optimizer(groups), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def originals(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("alpha", [1.0, 5.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("based", [True, False])
def test_training_is_that_of_the_form_written_out(kind: str, alpha: float, based: bool) -> None:
    depth = 1 if kind == "mean-field" else 3
    model = perceptron(WIDE, depth)
    base = perceptron(BASE, depth) if based else None
    groups = parametrize(model, kind, base=base, lr=0.1, alpha=alpha, gain=1.5, seed=1)
    ratio = WIDE / BASE if based else WIDE
    factors = oracle.multipliers(kind, depth, ratio, 1 if based else D)
    # in the form with one learning rate, weights are divided by the multiplier that they gain
    start = originals(model)
    if kind in ("mup", "mean-field"):
        start = [start[0] / sqrt(ratio), *start[1:-1], start[-1] / sqrt(ratio)]
    x, y = data()
    wanted, _ = oracle.train(
        start,
        factors,
        x,
        y,
        lr=0.1,
        steps=20,
        activation=torch.tanh,
        loss=functional.cross_entropy,
        alpha=alpha,
    )
    assert trained(model, groups, 20) == pytest.approx(wanted, rel=1e-12)
    assert wanted[-1] < wanted[0]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_are_the_same_network_at_the_width_of_the_base(kind: str, optimizer) -> None:
    depth = 1 if kind == "mean-field" else 3
    torch_one = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    base = perceptron(BASE, depth, True), perceptron(WIDE, depth, True)
    losses = []
    for each in (kind, "standard"):
        model = perceptron(BASE, depth, True)
        groups = parametrize(model, each, base=base, optimizer=optimizer, lr=0.01, gain=1.3)
        losses.append(trained(model, groups, 10, torch_one))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_maximal_update_follows_the_rules_of_its_package(optimizer: str) -> None:
    model, base = perceptron(WIDE, 3, True), perceptron(BASE, 3, True)
    shapes = {n: tuple(p.shape) for n, p in base.named_parameters()}
    groups = parametrize(model, "mup", base=base, optimizer=optimizer, lr=1.0)
    rows = describe(model, "mup", base=base, optimizer=optimizer, groups=groups)
    assert len(rows) == 8 and not rows.problems
    for row in rows:
        start, multiplier, rate = oracle.mup_package_rules(
            row.shape,
            shapes[row.tensor],
            readout=row.tensor == "6.weight",
            adam=optimizer == "adam",
        )
        assert row.wanted_rate == row.rate == pytest.approx(rate), row.tensor
        assert row.wanted_multiplier == row.multiplier == pytest.approx(multiplier)
        if "weight" in row.tensor:
            assert row.wanted_size == pytest.approx(start / sqrt(row.fan_in))


def test_every_kind_starts_with_the_variances_it_states() -> None:
    wide, n, r = 512, 512, 512 / 64
    expected = {
        "standard": (D**-0.5, n**-0.5, n**-0.5, n**-0.5),
        "ntk": (D**-0.5, 64**-0.5, 64**-0.5, n**-0.5),
        "mup": (D**-0.5, n**-0.5, 64**-0.5, 64**-0.5 / r),
    }
    for kind, (first, hidden, last, used) in expected.items():
        model = perceptron(wide, 2, True)
        parametrize(model, kind, base=perceptron(64, 2, True), lr=1.0, seed=3)
        rows = {r.tensor: r for r in describe(model, kind, base=perceptron(64, 2, True))}
        for name, size in {"0.weight": first, "2.weight": hidden, "4.weight": last}.items():
            assert rows[name].size == pytest.approx(size, rel=0.1), (kind, name)
        assert model[4].weight.square().mean().sqrt().item() == pytest.approx(used, rel=0.1)
        assert not any(model[i].bias.any() for i in (0, 2, 4))


def test_multipliers_are_part_of_the_state(tmp_path) -> None:
    model, base = perceptron(WIDE), perceptron(BASE)
    parametrize(model, "mup", base=base, lr=1.0, alpha=3.0, seed=1)
    x, _ = data()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    again = perceptron(WIDE)
    parametrize(again, "mup", base=base, lr=1.0, seed=2)
    assert not torch.equal(again(x), model(x))
    again.load_state_dict(state)
    assert torch.equal(again(x), model(x))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        perceptron(WIDE).load_state_dict(state)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    single = copy.deepcopy(model).float()
    assert torch.allclose(single(x.float()).double(), model(x), atol=1e-5)


def test_a_weight_that_is_assigned_is_the_one_that_is_used() -> None:
    model = perceptron(WIDE)
    parametrize(model, "mup", base=perceptron(BASE), lr=1.0)
    wanted = torch.ones(C, WIDE, dtype=torch.float64)
    model[4].weight = wanted
    assert torch.allclose(model[4].weight, wanted)


def test_seeds_draw_weights_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    models = [perceptron(WIDE) for _ in range(3)]
    torch.set_rng_state(state)
    for model, seed in zip(models, (1, 1, 2), strict=True):
        parametrize(model, "ntk", base=perceptron(BASE), lr=1.0, seed=seed)
        torch.set_rng_state(state)
    assert torch.equal(models[0][0].weight, models[1][0].weight)
    assert not torch.equal(models[0][0].weight, models[2][0].weight)


def test_a_convolutional_network() -> None:
    found = roles(Convolutional(16), Convolutional(4))
    assert found == {
        "stem.weight": "input",
        "norm.weight": "vector",
        "norm.bias": "vector",
        "depthwise.weight": "input",
        "depthwise.bias": "vector",
        "mix.weight": "hidden",
        "mix.bias": "vector",
        "head.weight": "output",
        "head.bias": "fixed",
    }
    model, base = Convolutional(16), Convolutional(4)
    groups = parametrize(model, "mup", base=base, optimizer="adam", lr=0.1)
    rows = describe(model, "mup", base=base, optimizer="adam", groups=groups)
    assert not rows.problems
    by_name = {row.tensor: row for row in rows}
    assert [by_name[f"{n}.weight"].fan_in for n in ("stem", "depthwise", "mix", "head")] == [
        27,
        9,
        16,
        32,
    ]
    assert by_name["mix.weight"].rate == pytest.approx(1 / 4)
    assert torch.equal(model.norm.weight, torch.ones(16))
    model(torch.randn(2, 3, 5, 5)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_transformer() -> None:
    gain = {"places": 0.02, "head.weight": 0.0}
    model, base = Transformer(16), Transformer(8)
    groups = parametrize(model, "mup", base=base, optimizer="adam", lr=0.1, gain=gain)
    rows = describe(model, "mup", base=base, optimizer="adam", gain=gain, groups=groups)
    assert {row.role for row in rows if row.tensor.endswith(("proj_weight", "weight"))} == {
        "input",
        "hidden",
        "vector",
        "output",
    }
    by_name = {row.tensor: row for row in rows}
    assert by_name["words.weight"].role == "input" and by_name["places"].role == "vector"
    assert by_name["block.self_attn.in_proj_weight"].role == "hidden"
    assert by_name["block.self_attn.in_proj_weight"].rate == pytest.approx(0.5)
    assert by_name["places"].size == pytest.approx(0.02, rel=0.3)
    assert not model.words.weight[0].any() and model.words.weight[1].any()
    tokens = torch.randint(11, (4, 5), generator=torch.Generator().manual_seed(0))
    assert not model(tokens).any()  # its last layer starts at zero
    optimizer = torch.optim.AdamW(groups)
    functional.cross_entropy(model(tokens), torch.arange(4) % C).backward()
    optimizer.step()
    after = model(tokens)
    assert after.any()
    with torch.no_grad():  # where attention takes a path of its own
        assert torch.allclose(model.eval()(tokens), after, atol=1e-5)
    again = Transformer(16)
    parametrize(again, "mup", base=base, lr=0.1, gain=gain)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(tokens), model(tokens))


def test_frozen_tensors_are_in_no_group() -> None:
    model = perceptron(WIDE)
    model[0].requires_grad_(False)
    groups = parametrize(model, "mup", base=perceptron(BASE), lr=1.0)
    assert {g["role"] for g in groups} == {"hidden", "output"}
    assert not describe(model, "mup", base=perceptron(BASE), groups=groups).problems


def test_a_description_tells_what_is_wrong() -> None:
    base = perceptron(BASE)
    model = perceptron(WIDE)
    plain = torch.optim.SGD(model.parameters(), lr=0.1).param_groups
    told = describe(model, "mup", base=base, groups=plain)
    assert {row.tensor for row in told if "learning rate" in row.problem} == {"2.weight"}
    assert [row.problem for row in told if row.role == "output"] == ["size, multiplier"]
    assert "4.weight: size, multiplier" in told.problems
    for face in (str(told), told._repr_html_()):
        assert "multiplier" in face and "2.weight" in face and "hidden" in face
    part = [{"params": [model[0].weight], "lr": 0.1}]
    alone = describe(model, "mup", base=base, groups=part)
    assert {row.tensor for row in alone if "in no group" in row.problem} == {"2.weight", "4.weight"}


REFUSED = {
    "no such kind": (lambda: (perceptron(24), "mupp"), {}, UnknownName, "kind.*'mupp'.*mup"),
    "no such optimizer": (
        lambda: (perceptron(24), "mup"),
        {"optimizer": "lion"},
        UnknownName,
        "optimizer.*lion",
    ),
    "no rate": (lambda: (perceptron(24), "mup"), {"lr": 0.0}, LazyrichError, "lr=0.0"),
    "no scale": (lambda: (perceptron(24), "mup"), {"alpha": -1.0}, LazyrichError, "alpha=-1.0"),
    "depth of the mean field": (
        lambda: (perceptron(24), "mean-field"),
        {},
        LazyrichError,
        r"2.weight lies between.*'mup'",
    ),
    "the base is as wide": (
        lambda: (perceptron(8), "mup"),
        {},
        ShapeError,
        r"as wide as its base.*\(base, wider\)",
    ),
    "the base is deeper": (
        lambda: (perceptron(24, 3), "mup"),
        {},
        LazyrichError,
        "6.weight is in one of",
    ),
    "no size": (lambda: (perceptron(24), "mup"), {"gain": -1.0}, LazyrichError, "gain=-1.0"),
    "a gain of what is not drawn": (
        lambda: (perceptron(24, bias=True), "mup"),
        {"gain": {"0.bias": 0.1}, "base": perceptron(BASE, bias=True)},
        UnknownName,
        "no tensor matches '0.bias'",
    ),
    "no such pattern": (
        lambda: (perceptron(24), "mup"),
        {"gain": {"head*": 0.0}},
        UnknownName,
        "tensor.*head",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    make, options, error, message = REFUSED[name]
    model, kind = make()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=message):
        parametrize(model, kind, **{"base": perceptron(BASE), "lr": 1.0} | options)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_unknown_tensors_are_named() -> None:
    with pytest.raises(LazyrichError, match=r"places: nobody can tell.*gain=\{'places': 0.02\}"):
        parametrize(Transformer(16), "mup", base=Transformer(8), lr=1.0)
    gru = nn.Sequential(nn.GRU(4, 8))
    with pytest.raises(LazyrichError, match="0.weight_ih_l0: nobody can tell.*GRU"):
        parametrize(gru, "mup", base=nn.Sequential(nn.GRU(4, 4)), lr=1.0)
    up = [nn.Sequential(nn.ConvTranspose1d(2, w, 3)) for w in (8, 4)]
    with pytest.raises(LazyrichError, match="0.weight: nobody can tell.*ConvTranspose1d"):
        parametrize(up[0], "mup", base=up[1], lr=1.0)


def test_shared_weights_and_other_parametrizations_are_refused() -> None:
    def tied(width: int) -> nn.Sequential:
        model = nn.Sequential(nn.Embedding(5, width), nn.Linear(width, 5, bias=False))
        model[1].weight = model[0].weight
        return model

    with pytest.raises(LazyrichError, match=r"0.weight and 1.weight are one tensor"):
        parametrize(tied(8), "mup", base=tied(4), lr=1.0)
    normed = perceptron(WIDE)
    nn.utils.parametrizations.weight_norm(normed[2])
    with pytest.raises(LazyrichError, match="has a parametrization already, _WeightNorm"):
        parametrize(normed, "mup", base=perceptron(BASE), lr=1.0)
    twice = perceptron(WIDE)
    parametrize(twice, "ntk", base=perceptron(BASE), lr=1.0)
    with pytest.raises(LazyrichError, match="multipliers already"):
        parametrize(twice, "ntk", base=perceptron(BASE), lr=1.0)


def test_growth_that_is_not_of_width_is_refused() -> None:
    def kernel(width: int, size: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv1d(2, width, size), nn.Flatten(), nn.Linear(width, 2))

    with pytest.raises(ShapeError, match=r"0.weight has shape \(8, 2, 5\).*axis 2"):
        parametrize(kernel(8, 5), "mup", base=kernel(4, 3), lr=1.0)
    words = [nn.Sequential(nn.Embedding(n, n), nn.Linear(n, 2)) for n in (8, 4)]
    with pytest.raises(ShapeError, match=r"0.weight has as many rows as words"):
        parametrize(words[0], "mup", base=words[1], lr=1.0)
    norm = [nn.Sequential(nn.Linear(3, n), nn.LayerNorm((n, n)), nn.Linear(n, 2)) for n in (8, 4)]
    with pytest.raises(ShapeError, match=r"1.weight has shape \(8, 8\)"):
        parametrize(norm[0], "mup", base=norm[1], lr=1.0)
    with pytest.raises(LazyrichError, match="its heads have 16 units, and 8 in the base"):
        parametrize(
            Transformer(32, 2), "mup", base=Transformer(16, 2), lr=1.0, gain={"places": 0.1}
        )


def test_order_tells_roles_in_a_stack_alone() -> None:
    stack = nn.Sequential(nn.LayerNorm(D), *perceptron(WIDE, 2, True), nn.LayerNorm(C))
    found = {r.tensor: r.role for r in describe(stack, "mup")}
    assert found["0.weight"] == found["6.weight"] == found["5.bias"] == "fixed"
    assert found["1.weight"] == "input" and found["5.weight"] == "output"
    assert found["3.weight"] == "hidden" and found["3.bias"] == "vector"
    with pytest.raises(LazyrichError, match=r"the model is a Convolutional.*Pass base="):
        parametrize(Convolutional(8), "mup", lr=1.0)
    grouped = nn.Sequential(nn.Conv1d(4, 8, 3), nn.Conv1d(8, 8, 3, groups=8), nn.Linear(8, 2))
    with pytest.raises(LazyrichError, match=r"1 is a grouped Conv1d.*Pass base="):
        parametrize(grouped, "mup", lr=1.0)
    with pytest.raises(LazyrichError, match="two layers or more"):
        parametrize(nn.Sequential(nn.Linear(3, 4)), "mup", lr=1.0)
    with pytest.raises(LazyrichError, match="no parameters"):
        parametrize(nn.Sequential(nn.ReLU()), "mup", lr=1.0)
    with pytest.raises(LazyrichError, match=r"base= takes a model"):
        parametrize(perceptron(8), "mup", base=[], lr=1.0)


def test_alpha_needs_one_output() -> None:
    class Two(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.a, self.b = (
                nn.Linear(*s) for s in ((3, width), (width, 1), (width, 2))
            )

    parametrize(Two(8), "mup", base=Two(4), lr=1.0)
    with pytest.raises(LazyrichError, match="one layer that makes the outputs; found: a, b"):
        parametrize(Two(8), "mup", base=Two(4), lr=1.0, alpha=2.0)


def test_groups_of_another_model_are_refused() -> None:
    other = torch.optim.SGD(perceptron(4).parameters(), lr=0.1).param_groups
    with pytest.raises(LazyrichError, match="none of them holds a tensor"):
        describe(perceptron(WIDE), "mup", base=perceptron(BASE), groups=other)


@pytest.mark.slow
def test_alpha_makes_training_lazy_by_its_power() -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(16, D, generator=g, dtype=torch.float64)
    y = torch.randn(16, C, generator=g, dtype=torch.float64).sign()
    alphas = (4.0, 16.0, 64.0)
    found: dict[str, list[float]] = {"change": [], "distance": [], "remainder": []}
    for alpha in alphas:
        model = perceptron(64)
        groups = parametrize(model, "ntk", lr=0.1, gain=sqrt(2), alpha=alpha, seed=3)
        start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        before, outputs = lz.ntk(model, x).matrix, model(x).detach()
        optimizer = torch.optim.SGD(groups)
        for _ in range(60):
            optimizer.zero_grad()
            functional.mse_loss(model(x) - outputs, y).backward()
            optimizer.step()
        after = lz.ntk(model, x).matrix
        cosine = (before * after).sum() / before.norm() / after.norm()
        found["change"].append(((after - before).norm() / before.norm()).item())
        found["distance"].append(1 - cosine.item())
        found["remainder"].append(kernel.remainder(model, start, x)["model"])
    for name, wanted, within in (
        ("change", -1, 0.1),
        ("distance", -2, 0.1),
        ("remainder", -1, 0.1),
    ):
        assert slope(alphas, found[name]).value == pytest.approx(wanted, abs=within), name
