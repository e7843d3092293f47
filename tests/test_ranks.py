"""Two processes that see parts of the data report what one process reports, and never hang."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch's own, about groups
Part = list[tuple[Tensor, ...]]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def samples(n: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return torch.randn(n, 6, generator=g, dtype=torch.float64), torch.arange(n) % 3, torch.arange(n)


def capture() -> lz.Capture:
    return lz.Capture(net(), unpack=lambda item: tuple(item))


def measured(part: Part, path: Path) -> None:
    lz.measure(capture(), part, interval=4, progress=False).save(path)


def recorded(part: Part, path: Path) -> None:
    model = net()
    recorder = lz.Recorder(
        lz.Capture(model, unpack=lambda item: tuple(item)), part, path, when=lz.every(2)
    )
    with recorder:
        for step in range(5):
            recorder.step(step)
            with torch.no_grad():
                model[0].weight *= 0.9


def refused(part: Part, path: Path) -> None:
    try:
        lz.measure(capture(), part, progress=False)
    except (LazyrichError, RuntimeError) as error:
        path.write_text(str(error))


def work(rank: int, folder: str, parts: list[Part], job: Callable[[Part, Path], None]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    shared = job is recorded
    job(parts[rank], Path(folder, "shared" if shared else str(rank)))
    dist.destroy_process_group()


def on_two(folder: Path, parts: list[Part], job: Callable[[Part, Path], None]) -> None:
    mp.spawn(work, (str(folder), parts, job), nprocs=2)


def cut(*sizes: int) -> Part:
    whole = samples(sum(sizes))
    return list(zip(*(column.split(sizes) for column in whole), strict=True))


def assert_same(found: lz.Records, alone: lz.Records) -> None:
    key = ("step", "layer", "measure", "index", "n")
    assert [[getattr(r, k) for k in key] for r in found] == [
        [getattr(r, k) for k in key] for r in alone
    ]
    assert found.values() == pytest.approx(alone.values(), rel=1e-11, abs=1e-12, nan_ok=True)
    for ours, theirs in zip(found, alone, strict=True):
        if theirs.standard_error is not None:
            assert ours.standard_error == pytest.approx(theirs.standard_error, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("sizes", [(3, 5), (16, 16, 5, 30)])
def test_uneven_parts(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    data = cut(*sizes)
    on_two(tmp_path, [data[:1], data[1:]], measured)
    alone = lz.measure(capture(), data, interval=4, progress=False)
    for rank in range(2):
        assert_same(lz.Records.load(tmp_path / str(rank)), alone)


def test_a_rank_without_data(tmp_path: Path) -> None:
    data = cut(16, 17)
    on_two(tmp_path, [[], data], measured)
    alone = lz.measure(capture(), data, interval=4, progress=False)
    for rank in range(2):
        assert_same(lz.Records.load(tmp_path / str(rank)), alone)


def test_samples_that_a_distributed_sampler_repeats_count_once(tmp_path: Path) -> None:
    x, y, ids = samples(31)
    orders = [
        list(torch.utils.data.DistributedSampler(range(31), 2, rank, shuffle=True, seed=3))
        for rank in range(2)
    ]
    assert len(orders[0]) + len(orders[1]) == 32
    parts = [[(x[at], y[at], ids[at]) for at in torch.tensor(order).split(5)] for order in orders]
    on_two(tmp_path, parts, measured)
    alone = lz.measure(capture(), [(x, y, ids)], interval=4, progress=False)
    for rank in range(2):
        assert_same(lz.Records.load(tmp_path / str(rank)), alone)


def test_a_recorder_writes_once_and_equals_one_process(tmp_path: Path) -> None:
    data = cut(9, 4, 20)
    on_two(tmp_path, [data[:2], data[2:]], recorded)
    recorded(data, tmp_path / "alone")
    found = lz.Records.load(tmp_path / "shared").tag(run="alone")
    assert_same(found, lz.Records.load(tmp_path / "alone"))


def test_an_error_on_one_rank_is_an_error_on_both(tmp_path: Path) -> None:
    good, bad = cut(9), [(torch.randn(4, 5, dtype=torch.float64), torch.arange(4), torch.arange(4))]
    on_two(tmp_path, [good, bad], refused)
    assert "rank 1 failed while measuring" in (tmp_path / "0").read_text()
    assert "mat1 and mat2" in (tmp_path / "1").read_text()
