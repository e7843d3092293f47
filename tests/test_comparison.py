"""Models or arrays in, similarities of every layer with every layer out."""

import copy
import math

import numpy as np
import pytest
import torch
from test_engine import in_batches, samples
from torch import Tensor, nn

import lazyrich as lz
from lazyrich import LazyrichError, Records
from lazyrich.errors import MemoryRefused, MissingInput, NonFinite, ShapeError, UnknownName
from oracles.cka import cka


def net(width: int = 8, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), inner, nn.Linear(width, 3)).double()


def doubled(size: int, order: Tensor | None = None) -> list[Tensor]:
    return [x.double() for x, _ in in_batches(size, order)]


def table(records: Records) -> dict[tuple[str, str], float]:
    return {(r.layer, r.measure): r.value for r in records}


def activations(model: nn.Module) -> dict[str, np.ndarray]:
    x, kept = samples(dtype=torch.float64)[0], {}
    named = {n: m for n, m in model.named_modules() if not list(m.children())}
    hooks = [
        m.register_forward_hook(lambda _, __, y, n=n: kept.update({n: y.detach().numpy()}))
        for n, m in named.items()
    ]
    model(x)
    for hook in hooks:
        hook.remove()
    return kept


def test_every_pair_bears_its_own_name() -> None:
    a, b = net(8), net(5, seed=1)
    first, second = activations(a), activations(b)
    found = table(lz.compare(a, b, doubled(50), layers="**"))
    for i, x in first.items():
        for j, y in second.items():
            assert found[f"{i} ~ {j}", "cka"] == pytest.approx(cka(x, 0, 0, y), rel=1e-9)
    assert [k[0] for k in found][:2] == ["0 ~ 0", "0 ~ 1"]


@pytest.mark.parametrize("size", [1, 7, 117, 118, 119])
def test_batches_and_their_order_do_not_matter(size: int) -> None:
    a, b = net(8), net(5, seed=1)
    chosen = ["0", "3"]
    whole = table(lz.compare(a, b, doubled(120), None, layers=chosen))
    order = torch.randperm(120, generator=torch.Generator().manual_seed(size))
    found = lz.compare(a, b, doubled(size, order), None, layers=chosen)
    assert table(found) == pytest.approx(whole, rel=1e-9)


def test_a_model_with_itself_is_two_copies_and_stays_untouched() -> None:
    a = net()
    same, copies = lz.compare(a, a, doubled(50)), lz.compare(a, copy.deepcopy(a), doubled(50))
    assert same == copies
    diagonal = [r for r in same if len(set(r.layer.split(" ~ "))) == 1]
    assert [r.value for r in diagonal] == pytest.approx([1] * len(diagonal), abs=1e-9)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in a.modules())


def test_within_a_model_each_pair_comes_once_and_directed_ones_both_ways() -> None:
    found = lz.compare(net(), None, doubled(50), None, layers=["0", "3"])
    assert found.where(measure="cka").unique("layer") == ["0 ~ 0", "0 ~ 3", "3 ~ 3"]
    assert found.where(measure="linear_regression").unique("layer")[-1] == "3 ~ 0"
    both = table(lz.compare(net(), net(), doubled(50), None, layers=["0", "3"]))
    assert table(found) == pytest.approx({k: both[k] for k in table(found)}, rel=1e-12)


def test_the_first_and_the_second_may_change_places() -> None:
    a, b = net(8), net(5, seed=1)
    forth, back = (table(lz.compare(*m, doubled(50), "cka")) for m in ((a, b), (b, a)))
    turned = {(" ~ ".join(reversed(k[0].split(" ~ "))), k[1]): v for k, v in back.items()}
    assert forth == pytest.approx(turned, rel=1e-9)


def test_records_say_what_was_compared() -> None:
    capture = lz.Capture(net(5), "0", view="flatten")
    (row,) = lz.compare(lz.Capture(net(8), "3"), capture, doubled(50), interval=5, run="mine")
    assert (row.layer, row.run, row.n, row.d, row.dtype) == ("3 ~ 0", "mine", 120, 3, "float64")
    assert row.note.endswith("Sequential ~ Sequential, 3 ~ 5 units")
    assert (row.view, row.null, row.estimator) == (
        "mean ~ flatten",
        0.0,
        "linear kernel, kind=debiased",
    )
    assert row.low < row.value < row.high


def test_the_interval_leaves_blocks_of_samples_out() -> None:
    x, y = torch.randn(40, 4), torch.randn(40, 3)
    y = y + x[:, :3]
    found = lz.compare({"x": x}, {"y": y}, dtype=torch.float64, interval=4)[0]
    block = lz._sums.dealt(torch.arange(40), 4)
    arrays = [(x[block != i].double().numpy(), y[block != i].double().numpy()) for i in range(4)]
    left = [cka(a, 0, 0, b) for a, b in arrays]
    error = math.sqrt(3 / 4 * sum((v - np.mean(left)) ** 2 for v in left))
    assert found.standard_error == pytest.approx(error, rel=1e-9)


def test_an_option_changes_the_value_and_is_stated() -> None:
    x = torch.randn(20, 30)
    m = lz.CATALOGUE["cka"].using(kind="plain")
    plain, debiased = (
        lz.compare({"x": x}, {"y": torch.randn(20, 9)}, measures=k)[0] for k in (m, "cka")
    )
    assert plain.value > 0.3 > abs(debiased.value)
    assert plain.null > 0.3 and plain.estimator == "linear kernel, kind=plain"
    assert plain.d == 30, "wide arrays are measured in their span"


def test_arrays_are_matched_by_the_ids_of_their_samples() -> None:
    x = torch.randn(30, 4, dtype=torch.float64)
    ids = [f"stimulus {i}" for i in range(30)]
    order = np.random.default_rng(0).permutation(30)
    turned, known = x[order].numpy(), [ids[i] for i in order]
    arrays = {"V1": x, "IT": turned}
    assert abs(lz.compare(arrays).where(layer="V1 ~ IT")[0].value) < 0.4
    matched = lz.compare(arrays, samples={"V1": ids, "IT": known})
    assert matched.where(layer="V1 ~ IT")[0].value == pytest.approx(1)
    with pytest.raises(ShapeError, match="IT: 2 samples are missing.*'stimulus 3', 'x'"):
        lz.compare(arrays, samples={"V1": ids, "IT": ["x" if i == ids[3] else i for i in known]})
    with pytest.raises(ShapeError, match="IT: 30 rows came with 30 ids, 29 of them different"):
        lz.compare(arrays, samples={"V1": ids, "IT": [ids[0], *ids[:29]]})
    with pytest.raises(MissingInput, match="no ids for 'IT'"):
        lz.compare(arrays, samples={"V1": ids})


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"30 \(V1\), 20 \(IT\) rows"):
        lz.compare({"V1": np.ones((30, 2)), "IT": np.ones((20, 2))})


@pytest.mark.parametrize(
    "given", [(net(), {"V1": np.ones((3, 2))}), (net(),), ({"V1": [[1.0]]}, None, [1])]
)
def test_mixed_sides_are_refused(given: tuple) -> None:
    with pytest.raises(LazyrichError, match="models with data, or arrays by name"):
        lz.compare(*given)


def test_measures_of_one_representation_are_refused() -> None:
    with pytest.raises(LazyrichError, match=r"rankme is of one.*cka, linear_regression, procr"):
        lz.compare(net(), None, doubled(50), "rankme")
    with pytest.raises(UnknownName, match="no measure matches 'ckaa'"):
        lz.compare(net(), None, doubled(50), "ckaa")


def test_plain_measuring_leaves_similarities_out_unless_asked_for() -> None:
    assert "cka" not in lz.measure(net(), doubled(50)).unique("measure")
    with pytest.raises(MissingInput, match=r"cka: .*lz\.compare"):
        lz.measure(net(), doubled(50), "cka")


def test_layers_with_other_rows_or_none_are_rows_with_the_reason() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    tokens = [x.float().reshape(-1, 2, 6) for x in doubled(40)]
    a, b = (lz.Capture(Idle(), ["used*", "spare*"], view=v) for v in ("tokens", "mean"))
    found = {r.layer: r for r in lz.compare(a, b, tokens)}
    assert found.keys() == {"used ~ used", "spare ~", "~ spare"}
    assert {r.status for r in found.values()} == {"failed"}
    assert "40 rows beside 20" in found["used ~ used"].note
    assert "never ran" in found["spare ~"].note


def test_nan_names_layer_and_batch_and_leaves_the_model_clean() -> None:
    a, data = net(), doubled(40)
    data[1][3, 2] = math.nan
    with pytest.raises(NonFinite, match=r"layer '0', batch 1: .*NaN or infinity"):
        lz.compare(a, a, data)
    assert not any(m._forward_hooks for m in a.modules())


def test_memory_is_refused_before_the_work() -> None:
    with pytest.raises(MemoryRefused, match=r"widest is '\w+ ~ \w+' with 8 units"):
        lz.compare(net(), None, doubled(50), memory_limit=1e-9)
