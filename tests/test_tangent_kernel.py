"""The tangent kernel against Jacobians of single samples, closed forms and its own certificate."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from oracles import tangent_kernel as oracle
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import lazyrich as lz
from lazyrich._kernel import Kernel
from lazyrich.errors import LazyrichError, MemoryRefused, ShapeError, UnknownName, UnreadableFile

KINDS = ("trace", "full", "class", "sum_logits")


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def distance(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for d, w in zip(widths[:-1], widths[1:], strict=True):
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


@pytest.mark.parametrize("name", ["residual", "transformer", "tied weights", "fused attention"])
@pytest.mark.parametrize("kind", KINDS)
def test_little_memory_changes_nothing(name: str, kind: Any, monkeypatch: Any) -> None:
    model, x = MODELS[name]()
    whole = lz.ntk(model, x, x[:5], kind=kind, by="parameter")
    passes = []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, x: passes.append(len(x)) or forward(self, x)
    )
    memory = 1e-6
    while True:
        try:
            tight = lz.ntk(model, x, x[:5], kind=kind, by="parameter", memory=memory)
            break
        except MemoryRefused:
            memory *= 1.1
    assert min(passes[-3:]) < 7
    assert len(passes) > 6
    assert distance(tight.matrix, whole.matrix) < 1e-12
    assert tight.terms.keys() == whole.terms.keys()
    for key, term in whole.terms.items():
        torch.testing.assert_close(tight.terms[key], term)


def test_too_little_memory_is_refused_with_what_to_do() -> None:
    model, x = MODELS["mlp"]()
    for kind in KINDS:
        with pytest.raises(MemoryRefused, match="kind='trace', or 'sum_logits'"):
            lz.ntk(model, x, kind=kind, memory=1e-7)
    with pytest.raises(MemoryRefused, match="layer '0'|parameter"):
        lz.ntk(mlp(2000, 1, 1), normal(200, 2000), memory=0.00285)
