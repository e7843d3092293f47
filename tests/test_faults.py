"""What goes wrong when others read activations, each on a model that shows it, and not here.

The letter and number in a test's name are the row of the project's list of faults found in other
libraries. Most tests first show the fault by a hook as it is usually written.
"""

import ast
import gc
import math
import subprocess
import sys
import weakref
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint

import lazyrich as lz
from lazyrich import Capture, Records, layers
from lazyrich.errors import LazyrichError, NotExecuted, ShapeError, UnknownName
from lazyrich.statistics import Batch

ROWS = {
    "F01": [
        "test_capture.py::test_a_module_that_never_runs_is_named",
        "test_capture.py::test_unknown_names_are_refused",
        "test_engine.py::test_batch_size_and_order_do_not_change_a_number",
        "test_engine.py::test_nan_and_infinity_name_layer_and_batch",
    ],
    "F02": [
        "test_capture.py::test_activations_equal_a_forward_by_hand",
        "test_capture.py::test_layers_come_in_execution_order_with_the_penultimate_in_its_place",
        "test_capture.py::test_order_of_execution_not_of_registration_and_every_call_has_its_name",
    ],
    "F40": [
        "test_engine.py::test_memory_is_refused_before_the_work",
        "test_engine.py::test_wide_arrays_are_measured_in_their_span_with_the_same_values",
    ],
    "F54": ["test_capture.py::test_the_model_comes_back_when_the_reader_stops_early"],
    "F57": [
        "test_integrations.py::test_lightning_records_updates_not_batches",
        "test_integrations.py::test_transformers_records_updates_not_batches",
    ],
    "F58": [
        "test_capture.py::test_order_of_execution_not_of_registration_and_every_call_has_its_name"
    ],
    "F59": ["test_capture.py::test_parts_of_what_a_module_returns_have_addresses"],
    "F60": ["test_capture.py::test_batches_of_many_shapes_are_understood"],
    "F65": ["test_capture.py::test_draws_in_evaluation_are_a_caution_at_the_layers_they_reach"],
    "F66": ["test_capture.py::test_padding_is_left_out_on_either_side"],
    "F67": ["test_engine.py::test_half_precision_gives_the_numbers_of_its_rounded_rows"],
    "F79": ["test_ranks.py::test_samples_that_a_distributed_sampler_repeats_count_once"],
    "F80": ["test_ranks.py::test_uneven_parts", "test_ranks.py::test_a_rank_without_data"],
    "F81": ["test_integrations.py::test_transformers_records_updates_not_batches"],
    "F82": ["test_engine.py::test_a_layer_that_cannot_be_read_is_a_row_with_the_reason"],
}


def names_in(name: str) -> set[str]:
    tree = ast.parse(Path(__file__).with_name(name).read_text())
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_that_cover_a_row_elsewhere_exist(row: str) -> None:
    for address in ROWS[row]:
        file, test = address.split("::")
        assert test in names_in(file), address


def test_every_row_about_capture_has_a_test() -> None:
    here = {name.split("_")[1].upper() for name in names_in("test_faults.py") if "_f" in name}
    # the last row, F68, is about files: test_cache.py
    wanted = {"F01", "F02", "F03", "F21", "F40"} | {f"F{n}" for n in range(46, 68)}
    assert wanted <= here | ROWS.keys()


# What the tests share


def naive(model: nn.Module, *args: Any, inputs: bool = False, **kwargs: Any) -> dict[str, Any]:
    """Activations as they are usually captured: a reference under the name of the module."""
    seen: dict[str, Any] = {}

    def keep(name: str, module: nn.Module, taken: tuple[Any, ...], output: Any = None) -> None:
        seen[name] = taken[0] if inputs else output

    handles = []
    for name, module in model.named_modules():
        register = module.register_forward_pre_hook if inputs else module.register_forward_hook
        handles.append(register(partial(keep, name)))
    with torch.no_grad():
        model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return seen


def read(model: nn.Module, item: Any, *patterns: str, **options: Any) -> dict[str, Batch]:
    return next(Capture(model, list(patterns) or None, **options).batches([item]))


def whole(model: nn.Module, data: Any, *patterns: str, **options: Any) -> dict[str, Batch]:
    parts = list(Capture(model, list(patterns) or None, **options).batches(data))
    return {name: Batch.cat([part[name] for part in parts]) for name in parts[0]}


def observed(capture: Capture, item: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Problems and cautions of one batch."""
    with capture.session() as session:
        session.read(capture.inputs(item))
    return session.problems, session.cautions


def hooks(model: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [sum(len(getattr(m, kind)) for kind in kinds) for m in model.modules()]


def dimension(model: Any, data: Any, **options: Any) -> Records:
    return lz.measure(model, data, "effective_dimension", progress=False, **options)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))


class Calling(nn.Module):
    """Runs a function, and beside it a Linear so that there is something to read."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.fc = Calls(function), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        return self.fc(x)


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


# F01 to F40, where they touch capture


@pytest.mark.parametrize("last", [1, 2, 3])
def test_f01_a_last_batch_of_one_to_three_samples_is_like_any_other(last: int) -> None:
    model, x = net().double(), torch.randn(16 + last, 4, dtype=torch.float64)
    labels = torch.arange(len(x)) % 2
    names = ["effective_dimension", "nc1"]
    parts = list(zip(x.split(8), labels.split(8), strict=True))
    assert len(parts[-1][0]) == last
    found, expected = (lz.measure(model, d, names, progress=False) for d in (parts, [(x, labels)]))
    assert found.values() == pytest.approx(expected.values(), rel=1e-9)


def test_f03_a_model_beside_itself_and_measured_again_is_what_it_is_alone() -> None:
    model, x = net(), torch.randn(12, 4)
    before = hooks(model)
    alone = dimension(model, [x])
    for _ in range(3):
        both = dimension({"a": model, "b": model, "run": Capture(model)}, [x])
    assert hooks(model) == before
    for run in ("a", "b", "run"):
        assert both.where(run=run).tag(run="run") == alone


def test_f03_two_inputs_to_one_model_equal_two_copies_of_it() -> None:
    model, one, other = net(), torch.randn(12, 4), torch.randn(12, 4)
    first = naive(model, one)
    with Capture(model).session() as outer, Capture(model).session() as inner:
        a = outer.read(lz.Inputs((one,)))
        b = inner.read(lz.Inputs((other,)))
    for name in ("0", "1", "2"):
        torch.testing.assert_close(a[name].x, first[name])
        assert not torch.equal(a[name].x, b[name].x)


def test_f03_batches_of_one_model_may_be_read_side_by_side() -> None:
    model, one, other = net().train(), torch.randn(12, 4), torch.randn(12, 4)
    streams = (Capture(model, "1").batches(x.split(5)) for x in (one, other))
    for a, b in zip(*streams, strict=True):
        assert not torch.equal(a["1"].x, b["1"].x)
        assert all(m.training for m in model.modules())
    assert all(m.training for m in model.modules()), "whichever of them ends first"
    assert sum(hooks(model)) == 0


def test_f21_samples_with_ids_are_aligned_by_them_in_whatever_order_they_come(
    tmp_path: Path,
) -> None:
    x, ids = torch.randn(20, 4), torch.arange(100, 120)

    class Turning:
        """A probe that comes in another order each time."""

        def __init__(self) -> None:
            self.times = 0

        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            self.times += 1
            order = torch.arange(20) if self.times == 1 else torch.arange(19, -1, -1)
            yield {"input": x[order], "sample_id": ids[order]}

    model = net()
    path = tmp_path / "r.jsonl"
    measure = "initial_similarity_plain"
    with lz.Recorder(model, Turning(), path, measure, when=lz.every(1)) as recorder:
        values = [recorder.step(step).where(layer="0").values() for step in range(2)]
    assert values == [pytest.approx([1.0])] * 2
    assert read(model, {"input": x, "sample_id": ids})["0"].samples.tolist() == ids.tolist()


# F46, F47: later operations that write where the activation was


def relu(y: Tensor, x: Tensor) -> Tensor:
    return F.relu_(y)


def residual(y: Tensor, x: Tensor) -> Tensor:
    y += x
    return y


def erased(y: Tensor, x: Tensor) -> Tensor:
    y[..., 0] = 0
    return y


def dropped(y: Tensor, x: Tensor) -> Tensor:
    return F.dropout(y, 0.5, training=True, inplace=True)


class Rewriting(nn.Module):
    def __init__(self, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.change = nn.Linear(4, 4), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.fc(x), x)


@pytest.mark.parametrize("view", ["mean", "flatten", "tokens", "last"])
@pytest.mark.parametrize("shape", [(6, 4), (6, 1, 4), (6, 3, 4)])
@pytest.mark.parametrize("change", [relu, residual, erased, dropped])
def test_f46_what_is_read_is_what_the_layer_put_out_not_what_became_of_it(
    change: Callable, shape: tuple[int, ...], view: str
) -> None:
    model, x = Rewriting(change), torch.randn(shape)
    with torch.no_grad():
        expected = model.fc(x)
    assert not torch.equal(naive(model, x)["fc"], expected), "the reference was written over"
    found = read(model, x, "fc", view=view)["fc"].x
    assert torch.equal(found, read(nn.Sequential(model.fc), x, "0", view=view)["0"].x)


def test_f46_inputs_are_read_before_the_layer_writes_into_them() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), torch.randn(6, 4)
    with torch.no_grad():
        expected = model[0](x)
    assert not torch.equal(naive(model, x, inputs=True)["1"], expected)
    assert torch.equal(read(model, x, "1:input")["1:input"].x, expected)


class Preallocated(nn.Module):
    """Writes every batch into the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.empty(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x, 2, out=self.out)


@pytest.mark.parametrize("view", ["mean", "flatten"])
def test_f47_no_memory_is_shared_with_the_model_not_even_on_a_cpu(view: str) -> None:
    model, x = Preallocated(), torch.randn(6, 4)
    kept = naive(model, x)[""].cpu().numpy()
    with torch.no_grad():
        model(torch.zeros(6, 4))
    assert (kept == 0).all(), "an array on the CPU is the model's own memory"
    first, _ = Capture(model, "outputs", view=view).batches([x, torch.zeros(6, 4)])
    assert torch.equal(first["outputs"].x, 2 * x)


# F48, F49: modules whose hooks fire otherwise, or never

# torch's own word on nested tensors, where the fused encoder makes them
NESTED = "ignore:The PyTorch API of nested tensors:UserWarning"


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


def padding(side: str, lengths: tuple[int, ...] = (5, 3, 4)) -> Tensor:
    """True where there is none: of three samples of five tokens."""
    place = torch.arange(5) if side == "right" else torch.arange(4, -1, -1)
    return place < torch.tensor(lengths)[:, None]


def by_one(view: str, tokens: Tensor, counts: Tensor) -> Tensor:
    """What a view should give, sample by sample, from those tokens that count."""
    reduced = {"mean": lambda t: t.mean(0), "last": lambda t: t[-1], "tokens": lambda t: t}[view]
    rows = [reduced(t[c]) for t, c in zip(tokens, counts, strict=True)]
    return torch.cat(rows) if view == "tokens" else torch.stack(rows)


@pytest.mark.filterwarnings(NESTED)
@pytest.mark.parametrize("view", ["mean", "tokens", "last"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_f48_a_fused_encoder_is_read_without_its_padding(side: str, view: str) -> None:
    model, x, counts = encoder(), torch.randn(3, 5, 8), padding(side)
    item = {"src": x, "src_key_padding_mask": ~counts}
    if side == "right":
        assert naive(model, **item)["layers.0"].is_nested, "a hook is given a nested tensor"
    found = read(model, item, "layers.*", "layers.0.norm1", "outputs", view=view)
    assert set(found) == {"layers.0.norm1", "layers.0", "layers.1", "outputs"}
    one_by_one = [naive(model, s[c][None]) for s, c in zip(x, counts, strict=True)]
    for name, batch in found.items():
        alone = [seen["" if name == "outputs" else name][0] for seen in one_by_one]
        everything = [torch.ones(len(a), dtype=torch.bool) for a in alone]
        expected = by_one(view, alone, everything)
        torch.testing.assert_close(batch.x, expected, rtol=1e-4, atol=1e-5)
    if view == "tokens":
        assert found["layers.0"].samples.tolist() == [0] * 5 + [1] * 3 + [2] * 4


@pytest.mark.filterwarnings(NESTED)
def test_f48_padding_that_only_the_model_knows_of_is_left_out_where_it_leaves_it_out() -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Embedding(9, 8), encoder()

        def forward(self, ids: Tensor) -> Tensor:
            return self.encoder(self.embed(ids), src_key_padding_mask=ids == 0).sum(1)

    model, ids = Text(), torch.randint(1, 9, (3, 5)) * padding("right")
    found = read(model, ids, "encoder.layers.0", view="tokens", skip_tokens=[int(ids[0, 1])])
    kept = (ids != 0) & (ids != ids[0, 1])
    assert len(found["encoder.layers.0"].x) == int(kept.sum())
    assert found["encoder.layers.0"].samples.tolist() == kept.nonzero()[:, 0].tolist()


@pytest.mark.filterwarnings(NESTED)
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_f48_nested_tensors_of_either_layout_are_unpacked(layout: torch.layout) -> None:
    parts = [torch.randn(length, 3) for length in (2, 4, 1)]
    model = Calling(lambda x: torch.nested.nested_tensor(parts, layout=layout))
    found = read(model, torch.randn(3, 4), "inner", "outputs")
    torch.testing.assert_close(found["inner"].x, torch.stack([p.mean(0) for p in parts]))
    whole_images = [torch.randn(3, size, size) for size in (2, 4, 1)]
    model = Calling(lambda x: torch.nested.nested_tensor(whole_images))
    problems, _ = observed(Capture(model), torch.randn(3, 4))
    assert "nested tensor, and not one of tokens by units" in problems["inner"]


def test_f49_a_module_whose_weight_is_used_without_a_call_is_refused_by_name() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(8, 2), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attention(x, x, x)[0]).mean(1)

    model, x = Attending(), torch.randn(6, 3, 8)
    assert "attention.out_proj" not in naive(model, x), "silence"
    assert "attention[0]" in read(model, x, "attention")
    with pytest.raises(NotExecuted, match="'attention.out_proj' never ran in the forward pass"):
        read(model, x, "attention.out_proj")
    records = dimension(model, [x], layers=["attention.*", "head"])
    assert {r.layer for r in records if r.status == "failed"} == {"attention.out_proj"}


# F50: compiled models


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.inner(x)


class Compiled(nn.Module):
    """A block in a module, and one of its steps in a method that may be compiled by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = Doubled(), nn.ReLU(inplace=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.step(x))

    def step(self, x: Tensor) -> Tensor:
        return self.act(self.first(x))


def compiled(how: str, model: Compiled, backend: Any) -> nn.Module:
    if how == "model":
        return torch.compile(model, backend=backend)
    if how == "submodule":
        model.first = torch.compile(model.first, backend=backend)
    elif how == "in place":
        model.compile(backend=backend)
    elif how == "submodule in place":
        model.first.compile(backend=backend)
    elif how == "method":
        model.step = torch.compile(model.step, backend=backend)
    return model


@pytest.mark.parametrize("before", ["nothing", "a call", "a hook and a call"])
@pytest.mark.parametrize("how", ["model", "submodule", "in place", "submodule in place", "method"])
def test_f50_compiled_parts_are_read_as_they_were_written_and_stay_compiled(
    how: str, before: str
) -> None:
    torch.compiler.reset()
    compilations, calls = [], []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable:
        compilations.append(graph)
        return graph.forward

    plain, x = Compiled(), torch.randn(6, 4)
    expected = read(plain, x, "**")
    inner = plain.first.inner
    if "hook" in before:
        inner.register_forward_hook(lambda *_: calls.append(1))
    model = compiled(how, plain, backend)
    if "call" in before:
        with torch.no_grad():
            model(x)
    if before == "a call":
        handle = inner.register_forward_hook(lambda *_: calls.append(1))
        with torch.no_grad():
            model(x)
        handle.remove()
        assert calls == [], "a hook that comes after the first compiled call never fires"
    times = len(calls)
    found = read(model, x, "**")
    assert list(found) == list(expected) and "first.inner" in found
    for name, batch in expected.items():
        assert torch.equal(found[name].x, batch.x), name
    assert len(calls) == times + ("hook" in before), "the user's own hook fires"
    times = len(compilations)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected["outputs"].x)
    assert len(compilations) == times if before == "a call" else len(compilations) > 0


def test_f50_without_a_way_to_run_compiled_parts_uncompiled_they_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(torch.compiler, "set_stance")
    model = net().train()
    model[0].compile(backend="eager")
    with pytest.raises(NotExecuted, match=r"compiled parts.*before torch 2.6"):
        read(model, torch.randn(6, 4))
    assert all(m.training for m in model.modules())
    assert list(read(net(), torch.randn(6, 4))) == ["0", "1", "penultimate", "2", "outputs"]


# F51 to F53: recomputation and wrappers for several devices


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")  # torch's
@pytest.mark.parametrize("reentrant", [True, False])
def test_f51_recomputation_in_the_backward_pass_counts_nothing_twice(
    reentrant: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = Checkpointed(reentrant).train()
    torch.manual_seed(0)
    plain = Checkpointed(None).train()
    x = torch.randn(6, 4, requires_grad=True)
    counts = [0, 0, 0]

    def count(number: int, *_: Any) -> None:
        counts[number] += 1

    handles = [b[0].register_forward_hook(partial(count, i)) for i, b in enumerate(model.blocks)]
    model(x).sum().backward()
    assert sum(counts) > 3, "the blocks run again for their gradients"
    for handle in handles:
        handle.remove()
    model.zero_grad()
    plain(x).sum().backward()
    path = tmp_path / "r.jsonl"
    with lz.Recorder(
        model, [x.detach()], path, "effective_dimension", when=lz.every(1), layers="blocks.*"
    ) as recorder:
        loss = model(x).sum()
        recorder.step(0)  # the worst place for it: between the forward and the backward pass
        loss.backward()
        recorder.step(1)
    assert [r.n for r in recorder.records] == [6] * 6
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


class OnTwo(nn.DataParallel):
    """What DataParallel does with two devices, on one: both replicas share the hooks."""

    def __init__(self, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.module, self.dim = module, 0
        self.device_ids, self.output_device = [0, 1], 0
        self.src_device_obj = torch.device("cpu")

    def scatter(self, inputs: tuple[Tensor], kwargs: dict, device_ids: list[int]) -> Any:
        return [(part,) for part in inputs[0].chunk(2)], [{}, {}]

    def replicate(self, module: nn.Module, device_ids: list[int]) -> list[nn.Module]:
        return [module, module]

    def parallel_apply(self, replicas: list[nn.Module], inputs: Any, kwargs: Any) -> list[Tensor]:
        return [m(*i, **k) for m, i, k in zip(replicas, inputs, kwargs, strict=True)]

    def gather(self, outputs: list[Tensor], output_device: int) -> Tensor:
        return torch.cat(outputs)


def test_f52_a_model_on_several_devices_gives_a_row_for_every_sample_in_order() -> None:
    inner, x = net(), torch.randn(6, 4)
    expected = read(inner, x)
    wrapped = OnTwo(inner)
    assert len(naive(wrapped, x)["module.0"]) == 3, "the replica that ran last"
    found = read(wrapped, x)
    assert list(found) == list(expected)
    for name, batch in expected.items():
        assert torch.equal(found[name].x, batch.x)


def test_f52_so_does_a_part_of_a_model_on_several_devices() -> None:
    features, x = net(), torch.randn(6, 4)
    expected = read(nn.Sequential(features, nn.Linear(2, 2)), x, "0.0", "0.2")
    model = nn.Sequential(OnTwo(features), nn.Linear(2, 2))
    assert len(naive(model, x)["0.module.0"]) == 3
    found = read(model, x, "0.module.*")
    for name in ("0", "2"):
        assert torch.equal(found[f"0.module.{name}"].x, expected[f"0.{name}"].x)
    assert model[0].device_ids == [0, 1]


DISTRIBUTED = """
import os, sys, torch, lazyrich as lz
from torch import distributed, nn
torch.manual_seed(0)
inner = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
x = torch.randn(6, 4)

def dimension(model):
    return lz.measure(model, [x], "effective_dimension", progress=False).values()

def hooks(model):
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]

alone = dimension(inner)
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
wrapped = nn.parallel.DistributedDataParallel(inner)
before = hooks(wrapped)
wrapped(x).sum().backward()
grads = [p.grad.clone() for p in inner.parameters()]
assert dimension(wrapped) == alone
assert hooks(wrapped) == before
wrapped.zero_grad()
wrapped(x).sum().backward()
assert all(torch.equal(p.grad, g) for p, g in zip(inner.parameters(), grads))
print("the same", flush=True)
os._exit(0)  # torch may wait for ever for the threads of a group that it takes down
"""


def test_f53_a_distributed_model_is_read_without_its_wrapper(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DISTRIBUTED, str(tmp_path / "meet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "the same\n", done.stderr


# F54 to F57: hooks that stay, memory that stays, and steps


@pytest.mark.parametrize("whose", ["the user's", "the reader's"])
def test_f54_a_hook_that_raises_leaves_nothing_behind(
    whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = net().train(), torch.randn(6, 4)

    def raising(*_: Any, **__: Any) -> None:
        raise KeyError("mine")

    if whose == "the user's":
        model[1].register_forward_hook(raising)
    else:
        monkeypatch.setattr("lazyrich._reader.as_rows", raising)
    before = hooks(model)
    with pytest.raises(KeyError, match="mine") as caught:
        read(model, x)
    assert "batch 0" in caught.value.__notes__[0]
    assert hooks(model) == before
    assert all(m.training for m in model.modules())
    monkeypatch.undo()
    model[1]._forward_hooks.clear()
    assert list(read(model, x)) == ["0", "1", "penultimate", "2", "outputs"]


def test_f54_data_that_raises_leaves_nothing_behind() -> None:
    def broken() -> Iterator[Tensor]:
        yield torch.randn(6, 4)
        raise OSError("disk")

    model = net().train()
    with pytest.raises(OSError, match="disk"):
        dimension(model, broken())
    assert sum(hooks(model)) == 0
    assert all(m.training for m in model.modules())


def test_f55_no_reference_to_activations_or_model_is_left() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.seen = nn.Linear(4, 2), []

        def forward(self, x: Tensor) -> Tensor:
            y = self.fc(x)
            self.seen += [weakref.ref(x), weakref.ref(y)]
            return y

    model = Watched()
    kept = naive(model, torch.randn(6, 4))
    assert model.seen[1]() is kept["fc"], "a kept reference keeps the memory"
    model.seen.clear()
    batches = list(Capture(model).batches(torch.randn(6, 4) for _ in range(3)))
    dimension(model, (torch.randn(6, 4) for _ in range(3)))
    gc.collect()
    assert len(model.seen) == 12
    assert all(reference() is None for reference in model.seen)
    assert len(batches) == 3
    gone = weakref.ref(model)
    del model, kept
    gc.collect()
    assert gone() is None


def tensors_alive() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.slow
def test_f56_measuring_two_hundred_times_leaves_no_hook_and_no_tensor() -> None:
    model, data = net(), [(torch.randn(6, 4), torch.arange(6) % 2)]
    model[1].register_forward_hook(lambda *_: None)
    capture = Capture(model)
    first, before = dimension(capture, data), hooks(model)
    alive = tensors_alive()
    for _ in range(200):
        again = dimension(capture, data)
    assert again == first
    assert hooks(model) == before
    assert tensors_alive() == alive


def test_f57_the_step_recorded_under_accumulation_is_the_update(tmp_path: Path) -> None:
    model, probe = net(), [torch.randn(12, 4)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(4, 4) for _ in range(9)]
    norms = {}
    path = tmp_path / "r.jsonl"
    with lz.Recorder(model, probe, path, "parameter_norm", when=lz.every(1)) as recorder:
        for number, x in enumerate(batches):
            update, last = divmod(number, 3)
            recorder.step(update)  # three times, of which the first counts
            squares = [p.detach().double().square().sum() for p in model.parameters()]
            norms[update] = math.sqrt(sum(squares))
            model(x).square().mean().backward()
            if last == 2:
                optimizer.step()
                optimizer.zero_grad()
    found = recorder.records.where(layer="model")
    assert {r.step: r.value for r in found} == pytest.approx(norms)
    assert len(set(norms.values())) == 3


# F58 to F60: what modules take and return


def test_f58_a_module_under_two_names_is_asked_for_by_the_first() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(4, 4)
            self.decoder = self.encoder

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(self.encoder(x))

    model, x = Tied(), torch.randn(6, 4)
    seen = naive(model, x)
    torch.testing.assert_close(seen["encoder"], model(x)), "only the second call was kept"
    found = read(model, x, "encoder")
    assert list(found) == ["encoder", "encoder#2"]
    torch.testing.assert_close(found["encoder"].x, model.encoder(x).detach())
    torch.testing.assert_close(found["encoder#2"].x, model(x).detach())
    with pytest.raises(LazyrichError, match=r"'decoder' is the same module as 'encoder': ask"):
        read(model, x, "decoder")


def test_f58_lists_of_modules_are_no_layers_and_their_items_are() -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.heads = nn.ModuleDict({"a": nn.Linear(4, 2)})
            self.empty, self.scales = nn.ModuleList(), nn.ParameterList([torch.ones(4)])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x) * self.scales[0]
            return self.heads["a"](x)

    model, x = Listed(), torch.randn(6, 4)
    for patterns in ((), ("**",)):
        problems, _ = observed(Capture(model, patterns or None), x)
        assert problems == {}
    assert [layer.name for layer in layers(model, [x]) if not layer.calls] == []
    with pytest.raises(UnknownName, match=r"'blocks'. Nearest: blocks\.\d"):
        read(model, x, "blocks")


def test_f58_modules_that_make_a_weight_are_not_taken_for_layers() -> None:
    """Six outputs and six samples: a weight has the shape of a batch of activations."""
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 6)), nn.Linear(6, 2))
    x = torch.randn(6, 4)
    assert len(naive(model, x)["0.parametrizations.weight.0"]) == 6
    found = read(model, x)
    assert list(found) == ["0", "penultimate", "1", "outputs"]
    torch.testing.assert_close(found["0"].x, model[0](x).detach())
    assert observed(Capture(model, "**"), x)[0] == {}


@dataclass
class Answer:
    features: Tensor
    loss: Tensor | None = None


def test_f59_parts_of_dataclasses_have_addresses_and_none_is_passed_over() -> None:
    model, x = Calling(lambda x: Answer(3 * x)), torch.randn(6, 4)
    assert not isinstance(naive(model, x)["inner"], Tensor)
    found = read(model, x, "inner", "outputs")
    assert list(found) == ["inner.features", "outputs"]
    torch.testing.assert_close(found["inner.features"].x, 3 * x)


@pytest.mark.parametrize("nothing", [None, "text", (None, {"a": None})])
def test_f59_a_module_that_returns_no_tensor_is_named(nothing: object) -> None:
    model, x = Calling(lambda x: nothing), torch.randn(6, 4)
    assert list(read(model, x)) == ["penultimate", "fc", "outputs"]
    with pytest.raises(ShapeError, match="layer 'inner' ran, and put out no tensor"):
        read(model, x, "inner")


# torch's own words on these kinds of tensors
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: x.argmax(1), "strided of int64"),
        (lambda x: x > 0, "strided of bool"),
        (torch.fft.fft, "strided of complex64"),
        (Tensor.to_sparse, "sparse_coo of float32"),
        (Tensor.to_sparse_csr, "sparse_csr of float32"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "strided of qint8"),
    ],
)
def test_f59_what_makes_no_rows_is_a_problem_of_that_layer_alone(
    function: Callable, kind: str
) -> None:
    model, x = Calling(function), torch.randn(6, 4)
    problems, _ = observed(Capture(model), x)
    assert problems == {"inner": f"it holds no dense floating-point numbers ({kind})"}
    with pytest.raises(ShapeError, match="layer 'inner' cannot be read"):
        read(model, x, "inner")
    assert list(read(model, x)) == ["penultimate", "fc", "outputs"]


class Packing(nn.Module):
    def __init__(self, cell: type[nn.RNNBase], batch_first: bool, both: bool) -> None:
        super().__init__()
        self.cell = cell(4, 5, batch_first=batch_first, bidirectional=both)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.cell(packed)


@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("view", ["mean", "tokens", "last"])
def test_f59_packed_sequences_are_unpacked_without_their_padding(
    cell: type, batch_first: bool, view: str
) -> None:
    """Three samples of at most three tokens: nothing but the module says which axis is which."""
    model, x, lengths = Packing(cell, batch_first, False), torch.randn(3, 3, 4), [2, 3, 1]
    found = read(model, {"x": x, "lengths": torch.tensor(lengths)}, "cell", view=view)
    assert list(found) == ["cell[0]", "cell[1]" if cell is nn.GRU else "cell[1][0]"] + (
        [] if cell is nn.GRU else ["cell[1][1]"]
    )
    model.cell.batch_first = True
    alone = [model.cell(s[None, :n])[0][0].detach() for s, n in zip(x, lengths, strict=True)]
    everything = [torch.ones(n, dtype=torch.bool) for n in lengths]
    torch.testing.assert_close(found["cell[0]"].x, by_one(view, alone, everything))


@pytest.mark.parametrize("batch_first", [True, False])
def test_f59_states_of_as_many_layers_as_samples_are_told_apart(batch_first: bool) -> None:
    """A last batch of two, and two directions."""
    model = nn.GRU(4, 5, batch_first=batch_first, bidirectional=True)
    x = torch.randn(2, 3, 4)
    given = x if batch_first else x.transpose(0, 1)
    axis = 0 if batch_first else 1
    found = whole(nn.Sequential(model), [given], "0", samples_axis=axis)
    with torch.no_grad():
        states = model(given)[1]
    torch.testing.assert_close(found["0[1]"].x, states.transpose(0, 1).mean(1))


class Options(nn.Module):
    """Inputs that can only be given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, *, pixel_values: Tensor, scale: Tensor | None = None) -> Tensor:
        return self.fc(pixel_values) * (1 if scale is None else scale)


def encoding(content: dict[str, Any]) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.BatchEncoding(content)


@pytest.mark.parametrize("mapping", [dict, UserDict, encoding])
def test_f60_mappings_of_any_kind_go_in_by_name_without_their_labels(mapping: Callable) -> None:
    model, x, y = Options(), torch.randn(6, 4), torch.arange(6) % 3
    item = mapping({"pixel_values": x, "labels": y, "sample_id": 10 + torch.arange(6)})
    found = read(model, item)
    torch.testing.assert_close(found["outputs"].x, model(pixel_values=x).detach())
    assert found["fc"].labels.tolist() == y.tolist()
    assert found["fc"].samples.tolist() == list(range(10, 16))
    assert "labels" in item, "the loader's own item is left as it is"


def test_f60_labels_are_not_taken_for_a_second_input() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
            return x + shift

    x = torch.randn(6, 4)
    found = read(Two(), (x, torch.arange(6)))
    assert torch.equal(found["outputs"].x, x)
    assert found["outputs"].labels.tolist() == list(range(6))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool, torch.int64])
def test_f60_labels_of_any_whole_type_are_classes(dtype: torch.dtype) -> None:
    x, labels = torch.randn(6, 4), (torch.arange(6) % 2).to(dtype)
    found = read(net(), (x, labels))["0"].labels
    assert (found.dtype, found.tolist()) == (torch.int64, [0, 1, 0, 1, 0, 1])


def test_f60_data_of_another_precision_is_the_model_s_error_with_the_batch() -> None:
    model = net()
    with pytest.raises(RuntimeError, match="same dtype") as caught:
        dimension(model, [torch.randn(6, 4), torch.randn(6, 4).double()])
    assert caught.value.__notes__ == ["raised by the model's forward pass on batch 1 of the data"]


def test_f60_generators_are_read_once_and_whole() -> None:
    model, parts = net(), [torch.randn(n, 4) for n in (5, 5, 1)]
    found = dimension(model, (part for part in parts))
    assert [r.n for r in found] == [11] * len(found)
    assert found == dimension(model, parts)


# F61: transformers


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, use_cache=False
    )
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).eval()


def test_f61_a_block_is_what_the_block_put_out_without_the_final_norm() -> None:
    model, ids = gpt2(), torch.randint(0, 40, (5, 7))
    with torch.no_grad():
        hidden = model(ids, output_hidden_states=True).hidden_states
    found = read(model, {"input_ids": ids}, "transformer.h.*", "transformer.ln_f", view="tokens")
    blocks = [found[name].x for name in found if name.startswith("transformer.h")]
    assert len(blocks) == 2 and len(hidden) == 3, "the library counts the embedding, too"
    torch.testing.assert_close(blocks[0], hidden[1].flatten(0, 1))
    assert not torch.allclose(blocks[1], hidden[2].flatten(0, 1), atol=0.1)
    torch.testing.assert_close(found["transformer.ln_f"].x, hidden[2].flatten(0, 1))
    normed = model.transformer.ln_f(blocks[1]).detach()
    torch.testing.assert_close(normed, hidden[2].flatten(0, 1))


def test_f61_the_outputs_of_a_library_s_object_are_its_logits() -> None:
    model, ids = gpt2(), torch.randint(0, 40, (5, 7))
    item = {"input_ids": ids, "labels": ids, "output_hidden_states": True}
    found = read(model, item, "outputs", "penultimate")
    with torch.no_grad():
        returned = model(ids, output_hidden_states=True)
    torch.testing.assert_close(found["outputs"].x, returned.logits.mean(1))
    torch.testing.assert_close(found["penultimate"].x, returned.hidden_states[-1].mean(1))


def test_f61_a_table_of_positions_is_no_activation() -> None:
    problems, _ = observed(Capture(gpt2()), {"input_ids": torch.randint(0, 40, (5, 7))})
    assert "the batch has 5 samples" in problems["transformer.wpe"]


# F62 to F65: memory formats, modes, draws


@pytest.mark.parametrize("view", ["mean", "flatten", "tokens"])
def test_f62_channels_last_gives_the_same_numbers(view: str) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), torch.randn(4, 3, 6, 6)
    plain = read(model, x, view=view)
    model = model.to(memory_format=torch.channels_last)
    turned = x.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view"):
        naive(model, turned)["0"].view(4, -1)
    found = read(model, turned, view=view)
    for name, batch in plain.items():
        torch.testing.assert_close(found[name].x, batch.x)


class Normed(nn.Module):
    """A network in training, of which one BatchNorm is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.frozen = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.drop = nn.Dropout()
        self.train()
        self.frozen.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.frozen(self.norm(self.fc(x))))


def test_f63_a_frozen_batch_norm_stays_frozen_and_the_rest_in_training() -> None:
    model, x = Normed(), torch.randn(6, 4)
    dimension(model, [x])
    assert {n: m.training for n, m in model.named_children()} == {
        "fc": True, "norm": True, "frozen": False, "drop": True,
    }  # fmt: skip
    model.eval()
    dimension(model, [x])
    assert not any(m.training for m in model.modules())
    model.eval().train()
    assert model.frozen.training, "a blanket call thaws it"


def test_f63_a_module_that_acts_on_a_change_of_mode_is_not_told_of_one() -> None:
    class Merging(nn.Linear):
        """Adds its adapter to the weight in evaluation, as some low-rank adapters do."""

        def train(self, mode: bool = True) -> "Merging":
            self.weight.data += -1.0 if mode else 1.0
            return super().train(mode)

    model = nn.Sequential(Merging(4, 2))
    before = model[0].weight.detach().clone()
    dimension(model, [torch.randn(6, 4)])
    assert torch.equal(model[0].weight, before)


def test_f64_a_model_in_training_is_read_in_evaluation_and_its_statistics_stay() -> None:
    model, data = Normed(), [torch.randn(6, 4) + 3, torch.randn(1, 4)]
    start = {name: buffer.clone() for name, buffer in model.named_buffers()}
    found = whole(model, data, "**")
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, start[name])
    assert torch.equal(found["drop"].x, found["frozen"].x), "nothing is dropped"
    again = whole(model.eval(), data, "**")
    for name, batch in again.items():
        assert torch.equal(found[name].x, batch.x)
    naive(model.train(), torch.randn(6, 4) + 3)
    assert not torch.equal(model.norm.running_mean, start["norm.running_mean"]), "they move"


def test_f64_buffers_that_a_pass_replaces_come_back() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 2)
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("last", None)

        def forward(self, x: Tensor) -> Tensor:
            self.calls, self.last = self.calls + 1, x.mean()
            self.register_buffer("late", x.sum())
            return self.fc(x)

    model, x = Counting(), torch.randn(6, 4)
    calls = model.calls
    dimension(model, [x, x])
    assert model.calls is calls and calls == 0
    assert list(model._buffers) == ["calls", "last"] and model.last is None


def test_f65_dropout_by_a_function_is_found_and_named_in_the_records() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.dropout(self.first(x), training=True))

    model, x = Dropping().eval(), torch.randn(12, 4)
    assert not torch.equal(naive(model, x)["last"], naive(model, x)["last"])
    notes = {r.layer: r.note for r in dimension(model, [x])}
    assert "dropout" not in notes["first"]
    assert all("as by dropout" in notes[n] for n in ("penultimate", "last", "outputs"))
    assert dimension(model, [x]) == dimension(model, [x]), "the seed decides"


# F66, F67: padding, special tokens, precision


class Tokens(nn.Module):
    """Each token by itself, so that what padding does to a number is the reader's doing."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv, self.head = nn.Embedding(9, 4), nn.Conv1d(4, 3, 1), nn.Linear(4, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        tokens = self.embed(input_ids)
        self.conv(tokens.transpose(1, 2))
        return self.head(tokens)


@pytest.mark.parametrize("view", ["mean", "tokens", "last"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("special", [False, True])
def test_f66_padding_and_special_tokens_are_left_out(side: str, view: str, special: bool) -> None:
    model, counts = Tokens(), padding(side)
    ids = torch.randint(3, 9, (3, 5))
    ids[:, 2] = 1  # a special token in the middle, within all three
    item = {"attention_mask": counts.long(), "input_ids": torch.where(counts, ids, 0)}
    kept = counts & (ids != 1) if special else counts
    skip = [1, 2] if special else []
    found = read(model, item, "embed", "outputs", view=view, skip_tokens=skip)
    with torch.no_grad():
        tokens = model.embed(item["input_ids"])
        expected = by_one(view, tokens, kept)
        torch.testing.assert_close(found["embed"].x, expected)
        torch.testing.assert_close(found["outputs"].x, model.head(expected))
    assert torch.equal(found["embed"].samples, found["outputs"].samples)
    if view == "mean":
        assert not torch.allclose(expected, tokens.mean(1)), "padding counted"
        maps = read(model, item, "conv", skip_tokens=skip)["conv"].x
        with torch.no_grad():
            torch.testing.assert_close(maps, model.conv(expected[:, :, None])[..., 0])
    if view == "tokens":
        capture = Capture(model, "embed", view=view, skip_tokens=skip)
        assert dimension(capture, [item])[0].n == int(kept.sum())


def test_f66_special_tokens_are_found_by_id_whatever_stands_before_them() -> None:
    model = Tokens()
    ids = torch.tensor([[1, 5, 2], [1, 6, 2]])
    found = read(model, ids, "embed", skip_tokens=[1, 2])["embed"].x
    torch.testing.assert_close(found, model.embed.weight[[5, 6]].detach())
    item = {"attention_mask": torch.ones(2, 3, dtype=torch.bool), "input_ids": ids}
    assert torch.equal(read(model, item, "embed", skip_tokens=[1, 2])["embed"].x, found)
    with pytest.raises(ShapeError, match="skip_tokens needs token ids"):
        read(net(), torch.randn(6, 4), skip_tokens=[1])


def test_f66_a_view_without_a_place_for_padding_says_so() -> None:
    model, counts = Tokens(), padding("right")
    item = {"input_ids": torch.randint(3, 9, (3, 5)), "attention_mask": counts}
    with pytest.raises(ShapeError, match="'flatten' has no place for tokens that do not count"):
        read(model, item, "embed", view="flatten")
    item["attention_mask"] = torch.ones(3, 5)
    assert read(model, item, "embed", view="flatten")["embed"].x.shape == (3, 20)


@pytest.mark.parametrize("view", ["mean", "last"])
def test_f66_a_sample_without_a_token_that_counts_is_refused(view: str) -> None:
    item = {"input_ids": torch.randint(3, 9, (3, 5)), "attention_mask": padding("left", (5, 0, 1))}
    with pytest.raises(ShapeError, match="no token of sample 1 of the batch counts"):
        read(Tokens(), item, "embed", view=view)
    assert len(read(Tokens(), item, "embed", view="tokens")["embed"].x) == 6


def test_f66_where_the_mask_does_not_fit_padding_counts_with_a_caution() -> None:
    class Halving(Tokens):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            return self.head(self.embed(input_ids)[:, ::2])

    padded = {"input_ids": torch.randint(3, 9, (3, 5)), "attention_mask": padding("right")}
    full = padded | {"attention_mask": torch.ones(3, 5)}
    capture = Capture(Halving(), ["embed", "head"])
    assert observed(capture, full)[1] == {}
    assert list(observed(capture, padded)[1]) == ["head"]
    notes = {r.layer: r.note for r in dimension(capture, [full, padded])}
    assert "padding and skipped tokens count here" in notes["head"]
    assert "padding" not in notes["embed"]


def bert(dtype: torch.dtype) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.BertModel(config).eval().to(dtype)


TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_f67_padded_in_a_batch_or_alone_differs_by_rounding_only(dtype: torch.dtype) -> None:
    model, counts = bert(dtype), padding("right")
    ids = torch.where(counts, torch.randint(3, 40, (3, 5)), 0)
    item = {"input_ids": ids, "attention_mask": counts.long()}
    pattern = "encoder.layer.*"
    together = read(model, item, pattern)
    alone = whole(
        model, [{"input_ids": i[c][None]} for i, c in zip(ids, counts, strict=True)], pattern
    )
    assert len(together) == 2
    for name, batch in together.items():
        error = (batch.x - alone[name].x).abs().max()
        assert error < TOLERANCE[dtype], name
    unmasked = read(model, {"input_ids": ids}, pattern)
    name = next(iter(together))
    assert (unmasked[name].x - alone[name].x).abs().max() > max(TOLERANCE.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_f67_half_precision_is_summed_in_more_and_says_in_what(dtype: torch.dtype) -> None:
    """Maps whose sum overflows half precision, and a mean that swamps the spread."""
    x = 30 + torch.randn(64, 4, 50, 50)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Flatten()).to(dtype)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4)[:, :, None, None])
        model[0].bias.zero_()
    maps = naive(model, x.to(dtype))["0"]
    expected = maps.double().mean((2, 3))
    found = read(model, x.to(dtype), "0")["0"].x
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    if dtype == torch.float16:
        assert maps.sum((2, 3), dtype=dtype).isinf().all(), "beyond 65504"
    exact = lz.measure_arrays(expected, "effective_dimension")[0]
    (record,) = dimension(model, [part.to(dtype) for part in x.split(20)], layers="0")
    assert record.dtype == "float32"
    assert record.value == pytest.approx(exact.value, rel=1e-3)
    rounded = lz.measure_arrays(expected.to(dtype), "effective_dimension")[0].value
    assert rounded != pytest.approx(exact.value, rel=1e-3), "means in half lose their digits"
