"""What is found in the cache is what the model would give, and only that."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError


class Counted(nn.Sequential):
    """Knows how often it ran."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Counted.calls += 1
        return super().forward(x)


def net(seed: int = 0) -> Counted:
    torch.manual_seed(seed)
    return Counted(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def data(shift: float = 0.0) -> list[tuple[Tensor, Tensor]]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=g) + shift
    return list(zip(x.split(20), (torch.arange(60) % 3).split(20), strict=True))


def measured(folder: Path, model: nn.Module | None = None, **options: object) -> tuple:
    """Records, and how many passes they took."""
    Counted.calls = 0
    batches = options.pop("data", data())
    seed = options.pop("seed", 0)
    capture = lz.Capture(model or net(), cache=folder, **options)
    return lz.measure(capture, batches, interval=4, seed=seed), Counted.calls


def test_the_second_time_nothing_but_one_batch_is_run(tmp_path: Path) -> None:
    plain = lz.measure(net(), data(), interval=4)
    first, passes = measured(tmp_path)
    assert first.values() == pytest.approx(plain.values(), rel=1e-6, nan_ok=True)
    assert passes == 1 + 3
    second, passes = measured(tmp_path)
    assert passes == 1
    assert second == first


CHANGES = {
    "weights": {"model": net(1)},
    "data": {"data": data(0.1)},
    "view": {"view": "flatten"},
    "seed": {"seed": 5},
    "penultimate": {"penultimate": "0"},
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_the_activations_depend_on_is_in_the_key(tmp_path: Path, what: str) -> None:
    measured(tmp_path)
    assert measured(tmp_path, **CHANGES[what])[1] == 1 + 3


def test_a_buffer_is_in_the_key(tmp_path: Path) -> None:
    measured(tmp_path)
    model = net()
    model[1].running_mean += 0.1
    assert measured(tmp_path, model)[1] == 1 + 3


def test_labels_are_in_the_key(tmp_path: Path) -> None:
    measured(tmp_path)
    other = [(x, (y + 1) % 3) for x, y in data()]
    assert measured(tmp_path, data=other)[1] == 1 + 3


def test_more_layers_extend_what_is_there(tmp_path: Path) -> None:
    measured(tmp_path, layers=["0", "penultimate"])
    (folder,) = tmp_path.iterdir()
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*.safetensors")}
    wide, passes = measured(tmp_path, layers=["0", "2", "penultimate"])
    assert passes == 1 + 3
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert len(list(folder.glob("*.safetensors"))) == len(before) + 1
    again, passes = measured(tmp_path, layers=["2"])
    assert passes == 1
    assert again.where(measure="nc1").values() == wide.where(layer="2", measure="nc1").values()


def test_a_torn_write_is_never_read(tmp_path: Path) -> None:
    first, _ = measured(tmp_path)
    (folder,) = tmp_path.iterdir()
    file = sorted(folder.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-40])
    second, passes = measured(tmp_path)
    assert passes == 1 + 3 and second == first
    (folder / "0099.safetensors.123").write_bytes(b"half a file of a killed process")
    (folder / "index.json.123").write_text("{")
    assert measured(tmp_path)[1] == 1


def test_data_that_cannot_be_known_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LazyrichError, match="more than once.*not a generator"):
        measured(tmp_path, data=iter(data()))

    class Unsteady:
        reads = 0

        def __iter__(self) -> object:
            self.reads += 1
            return iter(data(float(self.reads)))

    with pytest.raises(LazyrichError, match="batch 0 of the data differs"):
        measured(tmp_path, data=Unsteady())
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_shuffled_loader_is_the_same_under_the_same_seed(tmp_path: Path) -> None:
    whole = torch.utils.data.TensorDataset(*(torch.cat(c) for c in zip(*data(), strict=True)))
    loader = torch.utils.data.DataLoader(whole, batch_size=20, shuffle=True)
    first, _ = measured(tmp_path, data=loader)
    second, passes = measured(tmp_path, data=loader)
    assert passes == 1 and first == second
