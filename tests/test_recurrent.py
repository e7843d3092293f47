"""Recurrent modules read step by step: the same values as fused, and gradients of every product."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.func import functional_call
from torch.nn.utils.rnn import pack_sequence

import lazyrich as lz
from lazyrich._recurrent import unrolled
from lazyrich.errors import LazyrichError

KINDS = [nn.RNN, nn.GRU, nn.LSTM]
BOTH = list(product((False, True), (False, True)))
CELLS = {nn.RNN: nn.RNNCell, nn.GRU: nn.GRUCell, nn.LSTM: nn.LSTMCell}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain(parameter: str, z: Tensor) -> Tensor:
    return z


def made(kind: Any, *sizes: int, **options: Any) -> Any:
    torch.manual_seed(0)
    return kind(*sizes, **options).double()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers, both, first", list(product((1, 2), (False, True), (False, True))))
@pytest.mark.parametrize("given, batched", BOTH)
def test_steps_say_what_the_fused_module_says(
    kind: Any, layers: int, both: bool, first: bool, given: bool, batched: bool
) -> None:
    module = made(kind, 4, 3, num_layers=layers, bidirectional=both, batch_first=first, bias=given)
    x = normal(5, 6, 4) if batched else normal(6, 4)
    shape = (layers * (1 + both), *((5 if first else 6,) if batched else ()), 3)
    states = normal(*shape, seed=1), normal(*shape, seed=2)
    state = (states if kind is nn.LSTM else states[0]) if given else None
    wanted = module(x, state)
    with unrolled("rnn", module, plain):
        found = module(x, state)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("options", [{"proj_size": 2}, {"proj_size": 2, "bidirectional": True}])
def test_projections_of_an_lstm(options: dict[str, Any]) -> None:
    module, x = made(nn.LSTM, 4, 3, num_layers=2, **options), normal(6, 5, 4)
    wanted = module(x)
    with unrolled("rnn", module, plain):
        torch.testing.assert_close(module(x), wanted)
    model = Last(module, 2 * (1 + module.bidirectional))
    records = lz.nfa(model, [normal(5, 6, 4)], "nfa_correlation")
    read = [layer for layer in records.where(status="ok").unique("layer") if layer != "out"]
    assert len(read) == 6 * (1 + module.bidirectional) and "rnn:hr_l1" in read


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given, batched", BOTH)
def test_cells(kind: Any, given: bool, batched: bool) -> None:
    cell = made(CELLS[kind], 4, 3, bias=given)
    x, h, c = normal(5, 4), normal(5, 3, seed=1), normal(5, 3, seed=2)
    x, h, c = (x, h, c) if batched else (x[0], h[0], c[0])
    state = ((h, c) if kind is nn.LSTM else h) if given else None
    wanted = cell(x, state)
    with unrolled("cell", cell, plain):
        torch.testing.assert_close(cell(x, state), wanted)


def test_relu() -> None:
    for kind in (nn.RNN, nn.RNNCell):
        module, x = made(kind, 4, 3, nonlinearity="relu"), normal(5, 4)
        wanted = module(x)
        with unrolled("rnn", module, plain):
            torch.testing.assert_close(module(x), wanted)


class Last(nn.Module):
    """A readout of what a recurrent module says at the last step."""

    def __init__(self, rnn: nn.Module, width: int = 3) -> None:
        super().__init__()
        self.rnn, self.out = rnn, nn.Linear(width, 2).double()
        self.rnn.batch_first = True

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("kind", KINDS)
def test_equals_jacobians_of_cells_whose_biases_move_at_each_step(kind: Any) -> None:
    rnn = made(kind, 4, 3)
    model, x = Last(rnn), normal(5, 6, 4)
    held = {name.removesuffix("_l0"): p.detach() for name, p in rnn.named_parameters()}
    cell = made(CELLS[kind], 4, 3)

    def outputs(moved: Tensor, at: str, x: Tensor) -> Tensor:
        h = torch.zeros(1, 3, dtype=torch.float64)
        state = (h, h) if kind is nn.LSTM else h
        for step, e in zip(x, moved, strict=True):
            biased = held | {at: held[at] + e}
            state = functional_call(cell, biased, (step[None], state))
        return model.out(state[0] if kind is nn.LSTM else state)[0]

    still = torch.zeros(6, len(held["bias_hh"]), dtype=torch.float64)
    for part in ("ih", "hh"):
        of_each = [jacobian(lambda e, s=s, at=f"bias_{part}": outputs(e, at, s), still) for s in x]
        j = torch.stack(of_each)
        for positions in ("free", "summed"):
            seen = j if positions == "free" else j.sum(2, keepdim=True)
            b = torch.einsum("nctv,nctw->vw", seen, seen) / 5
            wanted = held[f"weight_{part}"].T @ b @ held[f"weight_{part}"]
            found = lz.agop(model, [x], f"rnn:{part}_l0", positions=positions).matrix  # type: ignore[arg-type]
            assert float((found - wanted).norm() / wanted.norm()) < 1e-12


def test_cells_in_a_loop_are_read_as_the_fused_module() -> None:
    rnn = made(nn.LSTM, 4, 3)
    model, x = Last(rnn), normal(5, 6, 4)

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = made(nn.LSTMCell, 4, 3), model.out
            with torch.no_grad():
                for name, p in self.cell.named_parameters():
                    p.copy_(getattr(rnn, f"{name}_l0"))

        def forward(self, x: Tensor) -> Tensor:
            state = None
            for step in range(x.shape[1]):
                state = self.cell(x[:, step], state)
            return self.out(state[0])

    for part in ("ih", "hh"):
        one = lz.agop(model, [x], f"rnn:{part}_l0").matrix
        torch.testing.assert_close(lz.agop(Loop(), [x], f"cell:{part}").matrix, one)


def test_the_module_comes_back_fused() -> None:
    model, x = Last(made(nn.GRU, 4, 3)), normal(5, 6, 4)
    lz.nfa(model, [x])
    assert "forward" not in vars(model.rnn)
    broken = [x, normal(5, 6, 7)]
    with pytest.raises(RuntimeError):
        lz.nfa(model, broken)
    assert "forward" not in vars(model.rnn)


def test_states_go_by_torch_s_own_name() -> None:
    class Named(Last):
        def forward(self, x: Tensor) -> Tensor:
            h = torch.ones(1, len(x), 3, dtype=x.dtype)
            return self.out(self.rnn(input=x, hx=h)[0][:, -1])

    assert lz.agop(Named(made(nn.GRU, 4, 3)), [normal(5, 6, 4)], "rnn:ih_l0").matrix.shape == (4, 4)


def test_a_forward_pass_of_its_own_is_not_replaced() -> None:
    class Louder(nn.GRU):
        def forward(self, x: Tensor) -> Any:
            found, h = super().forward(x)
            return found * 3, h

    with pytest.raises(LazyrichError, match="a forward pass of its own"):
        lz.agop(Last(made(Louder, 4, 3)), [normal(5, 6, 4)], "rnn:ih_l0")
    model = Last(made(nn.GRU, 4, 3))
    patch = model.rnn.forward
    model.rnn.forward = lambda *a, **k: patch(*a, **k)
    records = lz.nfa(model, [normal(5, 6, 4)])
    assert "of its own" in records.where(layer="rnn")[0].note
    assert "forward" in vars(model.rnn)


def test_packed_sequences_are_refused_by_name() -> None:
    class Packed(Last):
        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(pack_sequence(list(x)))[1][0])

    with pytest.raises(LazyrichError, match="layer 'rnn' is given a packed sequence"):
        lz.nfa(Packed(made(nn.GRU, 4, 3)), [normal(5, 6, 4)])
