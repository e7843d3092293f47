"""What is read out of a model is what was there, and the model comes back as it was."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazyrich import Capture, LazyrichError, layers
from lazyrich._views import as_rows
from lazyrich.errors import NotExecuted, ShapeError, TooFewSamples, UnknownName
from lazyrich.statistics import Batch


def whole(capture: Capture, data: list) -> dict[str, Batch]:
    """All batches of each layer as one."""
    parts = list(capture.batches(data))
    return {name: Batch.cat([p[name] for p in parts]) for name in parts[0]}


def problems(capture: Capture, item: object) -> dict[str, str]:
    """What cannot be read, with the reason."""
    with capture.session() as session:
        session.read(capture.inputs(item))
        return session.problems


def convnet(inplace: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(inplace),
        nn.Flatten(),
        nn.Linear(144, 5),
        nn.Tanh(),
        nn.Linear(5, 2),
    )


IMAGES = [
    (torch.randn(6, 3, 8, 8), torch.arange(6) % 2),
    (torch.randn(1, 3, 8, 8), torch.tensor([1])),
]


def test_activations_equal_a_forward_by_hand() -> None:
    model = convnet()
    x = torch.cat([x for x, _ in IMAGES])
    found = whole(Capture(model, view="flatten"), IMAGES)
    for i in range(len(model)):
        expected = model[: i + 1](x).flatten(1)
        torch.testing.assert_close(found[str(i)].x, expected.detach())
    torch.testing.assert_close(found["penultimate"].x, model[:5](x).detach())
    torch.testing.assert_close(found["outputs"].x, model(x).detach())
    torch.testing.assert_close(found["0"].outputs, model(x).detach())
    assert found["0"].labels.tolist() == [0, 1, 0, 1, 0, 1, 1]
    assert found["0"].samples.tolist() == list(range(7))


def test_layers_come_in_execution_order_with_the_penultimate_in_its_place() -> None:
    (batch, *_) = Capture(convnet()).batches(IMAGES)
    assert list(batch) == ["0", "1", "2", "3", "4", "penultimate", "5", "outputs"]


class Swapped(nn.Module):
    """Registers its layers in another order than it runs them, and one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first, self.act = nn.Linear(4, 2), nn.Linear(3, 4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.last(self.act(self.first(x))))


def test_order_of_execution_not_of_registration_and_every_call_has_its_name() -> None:
    model = Swapped()
    found = whole(Capture(model), [torch.randn(5, 3)])
    assert list(found) == ["first", "act", "penultimate", "last", "act#2", "outputs"]
    assert found["act"].x.shape == (5, 4)
    assert found["act#2"].x.shape == (5, 2)
    only = whole(Capture(model, "act#2"), [torch.randn(5, 3)])
    assert list(only) == ["act#2"]


def test_an_in_place_operation_does_not_rewrite_what_was_seen_before_it() -> None:
    plain, inplace = (whole(Capture(convnet(i)), IMAGES) for i in (False, True))
    for name in plain:
        assert torch.equal(plain[name].x, inplace[name].x), name
    swapped = Swapped()
    x = torch.randn(5, 3)
    with torch.no_grad():
        before = swapped.first(x)
    assert torch.equal(whole(Capture(swapped), [x])["first"].x, before)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y += x
        return y


def test_a_residual_added_in_place_is_not_seen_in_the_layer() -> None:
    model, x = Residual(), torch.randn(6, 4)
    with torch.no_grad():
        expected = model.fc(x)
    assert torch.equal(whole(Capture(model), [x])["fc"].x, expected)


def state_of(model: nn.Module) -> dict:
    return {
        "parameters": {k: v.clone() for k, v in model.state_dict().items()},
        "modes": [m.training for m in model.modules()],
        "hooks": [
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
            for m in model.modules()
        ],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
    }


def assert_unchanged(model: nn.Module, before: dict) -> None:
    after = state_of(model)
    assert all(torch.equal(v, after["parameters"][k]) for k, v in before["parameters"].items())
    for a, b in zip(before["grads"], after["grads"], strict=True):
        assert (a is None) == (b is None) and (a is None or torch.equal(a, b))
    assert {k: before[k] for k in ("modes", "hooks", "requires_grad")} == {
        k: after[k] for k in ("modes", "hooks", "requires_grad")
    }


class Counting(nn.Module):
    """Changes a buffer in every pass and draws even in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.norm, self.frozen = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = F.dropout(self.frozen(self.norm(x)), 0.5, training=True)
        return self.head(x + np.random.rand() + random.random())  # noqa: NPY002


def test_the_model_and_all_generators_come_back_as_they_were() -> None:
    model = Counting()
    model.frozen.eval()
    model.head.weight.grad = torch.ones(2, 4)
    model.head.bias.requires_grad_(False)
    seen = []
    model.head.register_forward_hook(lambda *_: seen.append(1))
    before = state_of(model)
    data = [torch.randn(3, 4), torch.randn(2, 4)]
    draws = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    list(Capture(model).batches(data))
    assert_unchanged(model, before)
    assert torch.equal(torch.get_rng_state(), draws[0])
    assert (np.random.get_state()[1] == draws[1]).all()  # noqa: NPY002
    assert len(seen) == 2 + 2, "the user's own hook counts every call, also of the probe"


def test_the_generator_of_the_standard_library_comes_back_too() -> None:
    """In a process of its own: the type checks of these tests draw from it themselves."""
    code = """
import random, torch, lazyrich
class Drawing(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) * random.random()
before = random.getstate()
lazyrich.measure(Drawing(2, 2), (torch.randn(3, 2) * random.random() for _ in range(3)))
assert random.getstate() == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_models_see_the_same_batches_whatever_they_draw_themselves() -> None:
    class Recording(nn.Module):
        def __init__(self, draws: int) -> None:
            super().__init__()
            self.fc, self.draws, self.seen = nn.Linear(3, 2), draws, []

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(x.clone())
            torch.randn(self.draws), np.random.rand(self.draws)  # noqa: NPY002
            return self.fc(x)

    class Augmented(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> Tensor:
            return torch.full((3,), float(i)) + torch.randn(3) + np.random.rand()  # noqa: NPY002

    loader = torch.utils.data.DataLoader(Augmented(), batch_size=6, shuffle=True)
    models = Recording(0), Recording(7)
    for model in models:
        list(Capture(model).batches(loader))
    for a, b in zip(*(m.seen[:1] + m.seen[-3:] for m in models), strict=True):
        assert torch.equal(a, b)


def test_draws_in_evaluation_are_a_caution_at_the_layers_they_reach() -> None:
    capture = Capture(Counting())
    with capture.session() as session:
        session.read(capture.inputs(torch.randn(5, 4)))
    assert list(session.cautions) == ["penultimate", "head", "outputs"]
    assert "dropout" in session.cautions["head"]
    capture = Capture(nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
    with capture.session() as session:
        session.read(capture.inputs(torch.randn(5, 4)))
    assert session.cautions == {}


def test_the_model_comes_back_after_an_error_half_way() -> None:
    model = convnet().train()
    before = state_of(model)
    with pytest.raises(RuntimeError) as caught:
        list(Capture(model).batches([torch.randn(2, 3, 8, 8), torch.randn(2, 5, 8, 8)]))
    assert caught.value.__notes__ == ["raised by the model's forward pass on batch 1 of the data"]
    assert_unchanged(model, before)


def test_the_model_comes_back_when_the_reader_stops_early() -> None:
    model = convnet().train()
    before = state_of(model)
    batches = Capture(model).batches(IMAGES)
    next(batches)
    batches.close()
    assert_unchanged(model, before)


def test_draws_are_the_seed_s() -> None:
    model, x = Counting(), torch.randn(8, 4)
    a, b, c = (next(Capture(model).batches([x], seed=s))["outputs"].x for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["first", "act", "penultimate", "last", "act#2", "outputs"]),
        ("f*", ["first"]),
        ("las?", ["last"]),
        ("last:input", ["last:input"]),
        ("penultimate", ["penultimate"]),
        (["outputs", "first"], ["first", "outputs"]),
    ],
)
def test_patterns(pattern: str | list[str], expected: list[str]) -> None:
    assert list(whole(Capture(Swapped(), pattern), [torch.randn(4, 3)])) == expected


def test_one_star_is_one_part_of_a_name_and_two_are_any() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU())), nn.Linear(2, 2))
    x = [torch.randn(3, 2)]
    assert list(whole(Capture(model, "0.*"), x)) == ["0.0", "0.1"]
    assert list(whole(Capture(model, "0.**"), x)) == ["0.0", "0.1.0", "0.1"]
    assert list(whole(Capture(model, "?"), x)) == ["0", "1"]


class Structured(nn.Module):
    """Returns a mapping, from modules that return tuples, mappings and None."""

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> tuple:
            return x * 2, None, {"deep": [x * 3]}

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.rnn, self.head = (
            self.Inner(),
            nn.GRU(4, 5, batch_first=True),
            nn.Linear(5, 2),
        )

    def forward(self, x: Tensor) -> dict:
        first, *_ = self.inner(x)
        states, _ = self.rnn(first)
        return {"loss": states.sum(), "logits": self.head(states[:, -1])}


def test_parts_of_what_a_module_returns_have_addresses() -> None:
    x = torch.randn(6, 3, 4)
    model = Structured()
    capture = Capture(model)
    found = whole(capture, [x])
    assert list(found) == [
        "inner[0]",
        "inner[2].deep[0]",
        "rnn[0]",
        "rnn[1]",
        "penultimate",
        "head",
        "outputs",
    ]
    torch.testing.assert_close(found["inner[2].deep[0]"].x, 3 * x.mean(1))
    torch.testing.assert_close(found["outputs"].x, model(x)["logits"].detach())
    states = model.rnn(2 * x)[1]
    torch.testing.assert_close(found["rnn[1]"].x, states.mean(0).detach())


def test_models_that_take_time_first() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.head = nn.Linear(4, 4), nn.GRU(4, 5, 2), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(self.embed(x))[0][-1])

    model, x = Recurrent(), torch.randn(7, 6, 4)
    found = whole(Capture(model, samples_axis=1), [(x, torch.arange(6))])
    with torch.no_grad():
        states, last = model.rnn(model.embed(x))
    torch.testing.assert_close(found["embed"].x, model.embed(x).mean(0).detach())
    torch.testing.assert_close(found["rnn[0]"].x, states.mean(0))
    torch.testing.assert_close(found["rnn[1]"].x, last.mean(0))
    torch.testing.assert_close(found["outputs"].x, model(x).detach())
    assert found["outputs"].labels.tolist() == list(range(6))


def test_batches_of_many_shapes_are_understood() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, a: Tensor, b: Tensor | None = None, *, scale: float = 1.0) -> Tensor:
            return self.fc(a + (0 if b is None else b)) * scale

    model, a, y = Two(), torch.randn(4, 3), torch.arange(4) % 2
    expected = model(a, a).detach()
    for item in ([(a, a), y], {"a": a, "b": a, "labels": y}, ({"a": a, "b": a}, y)):
        batch = next(Capture(model).batches([item]))["outputs"]
        torch.testing.assert_close(batch.x, expected)
        assert batch.labels.tolist() == y.tolist()
    three = (a, a, y)
    with pytest.raises(ShapeError, match=r"yields 3 things.*unpack=lambda"):
        next(Capture(model).batches([three]))
    capture = Capture(model, unpack=lambda item: ((item[0], item[1]), item[2]))
    torch.testing.assert_close(next(capture.batches([three]))["outputs"].x, expected)
    assert next(Capture(model).batches([[a]]))["outputs"].labels is None
    assert next(Capture(model).batches([(a, torch.rand(4))]))["outputs"].labels is None
    with pytest.raises(ShapeError, match="4 samples came with 3 labels"):
        next(Capture(model).batches([(a, y[:3])]))
    with pytest.raises(ShapeError, match="holds no tensor"):
        next(Capture(model).batches(["text"]))


def test_a_module_that_never_runs_is_named() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    x = [torch.randn(4, 3)]
    assert "spare" not in whole(Capture(Idle()), x)
    assert "never ran" in problems(Capture(Idle()), x[0])["spare"]
    with pytest.raises(NotExecuted, match="layer 'spare' never ran in the forward pass"):
        whole(Capture(Idle(), "spare"), x)
    with pytest.raises(NotExecuted, match="penultimate='spare:input'"):
        whole(Capture(Idle(), penultimate="spare:input"), x)
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    assert "self_attn.out_proj" in problems(Capture(attention), torch.randn(3, 5, 4))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"layers": "frst"}, "no layer matches 'frst'. Nearest: first"),
        ({"layers": ["first", "x*"]}, r"no layer matches 'x\*'"),
        ({"penultimate": "nowhere"}, "no layer matches 'nowhere'"),
        ({"view": "avg"}, "no view matches 'avg'. Nearest: .*mean"),
    ],
)
def test_unknown_names_are_refused(kwargs: dict, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        whole(Capture(Swapped(), **kwargs), [torch.randn(4, 3)])


def test_what_is_no_model_and_no_data_is_refused() -> None:
    with pytest.raises(
        LazyrichError, match=r"needs a torch.nn.Module, got ndarray.*measure_arrays"
    ):
        Capture(np.ones((3, 2)))
    with pytest.raises(TooFewSamples, match="the loader is empty or used up"):
        next(Capture(Swapped()).batches([]))
    with pytest.raises(TooFewSamples, match="the loader is empty or used up"):
        layers(Swapped(), [])


def test_other_addresses_for_penultimate_and_outputs() -> None:
    model = convnet()
    capture = Capture(model, ["penultimate", "outputs"], penultimate="3", outputs="4")
    found = whole(capture, IMAGES)
    x = torch.cat([x for x, _ in IMAGES])
    torch.testing.assert_close(found["penultimate"].x, model[:4](x).detach())
    torch.testing.assert_close(found["outputs"].x, model[:5](x).detach())
    torch.testing.assert_close(found["penultimate"].outputs, model[:5](x).detach())


def test_wrappers_are_looked_through() -> None:
    model = convnet()
    assert Capture(nn.DataParallel(model)).model is model
    assert Capture(torch.compile(model, backend="eager")).model is model


def test_the_dry_run_lists_addresses_shapes_and_calls() -> None:
    found = {layer.name: layer for layer in layers(Swapped(), [torch.randn(4, 3)])}
    assert list(found) == ["first", "act", "last:input", "last", "act#2", "outputs"]
    assert found["act"].calls == 2
    assert found["first"].shape == (4, 4)
    assert found["last:input"].note == "= penultimate"
    assert found["first"].kind == "Linear"


# Views, each axis by a shape of its own


def rows(shape: tuple[int, ...], view: str, **options: object) -> tuple[Tensor, Tensor, Tensor]:
    activation = torch.arange(float(torch.tensor(shape).prod())).reshape(shape)
    found = as_rows(activation, view, shape[0], **options)
    return activation, found.x, found.samples


def test_mean_averages_places_and_keeps_units() -> None:
    maps, x, _ = rows((2, 3, 4, 5), "mean")
    torch.testing.assert_close(x, maps.mean((2, 3)))
    tokens, x, _ = rows((2, 4, 3), "mean")
    torch.testing.assert_close(x, tokens.mean(1))
    series, x, _ = rows((2, 3, 4), "mean", channels=True)
    torch.testing.assert_close(x, series.mean(2))
    last, x, _ = rows((2, 4, 5, 3), "mean", channels=False)
    torch.testing.assert_close(x, last.mean((1, 2)))


def test_flatten_keeps_everything() -> None:
    maps, x, samples = rows((2, 3, 4, 5), "flatten")
    assert torch.equal(x, maps.reshape(2, 60))
    assert samples.tolist() == [0, 1]


def test_tokens_makes_every_place_a_row_of_its_sample() -> None:
    maps, x, samples = rows((2, 3, 4, 5), "tokens")
    assert torch.equal(x[7], maps[0, :, 1, 2])
    assert torch.equal(x[20], maps[1, :, 0, 0])
    assert samples.tolist() == [0] * 20 + [1] * 20


def test_last_takes_the_last_token() -> None:
    tokens, x, _ = rows((2, 4, 3), "last")
    assert torch.equal(x, tokens[:, -1])
    with pytest.raises(ShapeError, match="'last' needs tokens"):
        rows((2, 3, 4, 5), "last")


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_left_out_on_either_side(side: str) -> None:
    counts = [True, True, False, False] if side == "right" else [False, False, True, True]
    mask = torch.tensor([counts, [True] * 4])
    tokens, x, _ = rows((2, 4, 3), "mean", mask=mask)
    torch.testing.assert_close(x[0], tokens[0, mask[0]].mean(0))
    poisoned = tokens.masked_fill(~mask[..., None], torch.nan)
    torch.testing.assert_close(as_rows(poisoned, "mean", 2, mask=mask).x, x)
    _, x, _ = rows((2, 4, 3), "last", mask=mask)
    assert torch.equal(x[0], tokens[0, 1 if side == "right" else 3])
    _, x, samples = rows((2, 4, 3), "tokens", mask=mask)
    assert torch.equal(x[:2], tokens[0, mask[0]])
    assert samples.tolist() == [0, 0, 1, 1, 1, 1]


def test_channels_last_memory_gives_the_same_values() -> None:
    model, x = convnet(), torch.randn(4, 3, 8, 8)
    plain = whole(Capture(model), [x])
    other = whole(
        Capture(model.to(memory_format=torch.channels_last)),
        [x.to(memory_format=torch.channels_last)],
    )
    for name in plain:
        torch.testing.assert_close(plain[name].x, other[name].x)


def test_series_after_a_convolution_keep_their_units() -> None:
    model = nn.Sequential(nn.Conv1d(3, 5, 2), nn.ReLU())
    found = whole(Capture(model), [torch.randn(4, 3, 9)])
    assert found["0"].x.shape == found["1"].x.shape == (4, 5)


def test_the_attention_mask_of_a_mapping_is_used() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 3)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.embed(input_ids)

    model = Encoder()
    ids, mask = torch.tensor([[1, 2, 0], [3, 4, 5]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
    found = whole(Capture(model, "embed"), [{"input_ids": ids, "attention_mask": mask}])
    torch.testing.assert_close(found["embed"].x[0], model.embed.weight[[1, 2]].mean(0).detach())


def test_layouts_are_remembered_when_fewer_modules_are_watched() -> None:
    model = nn.Sequential(nn.Conv1d(3, 5, 2), nn.ReLU())
    first, second = Capture(model, "1").batches([torch.randn(4, 3, 9), torch.randn(2, 3, 9)])
    assert first["1"].x.shape[1] == second["1"].x.shape[1] == 5


def test_an_activation_without_samples_in_front_is_a_problem_with_its_reason() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x + self.table(torch.arange(3)))

    found = problems(Capture(Positions()), torch.randn(5, 3, 4))
    assert "shape is [3, 4], and the batch has 5 samples" in found["table"]
    with pytest.raises(ShapeError, match=r"layer 'table' cannot be read: its shape is \[3, 4\]"):
        whole(Capture(Positions(), "table"), [torch.randn(5, 3, 4)])
