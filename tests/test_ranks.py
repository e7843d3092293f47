"""Two processes that see parts of the data report what one process reports."""

from pathlib import Path

import lazyrich as lz
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def work(rank: int, folder: str, parts: list[list[tuple[Tensor, Tensor]]]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    lz.measure(net(), parts[rank], progress=False).save(f"{folder}/{rank}.jsonl")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, about process groups
def test_two_ranks_with_uneven_parts_agree_with_one_process(tmp_path: Path) -> None:
    g = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(n, 6, generator=g, dtype=torch.float64), torch.arange(n) % 3)
        for n in (16, 16, 5, 30)
    ]
    mp.spawn(work, (str(tmp_path), [data[:1], data[1:]]), nprocs=2)
    alone = lz.measure(net(), data, progress=False)
    for rank in range(2):
        found = lz.Records.load(tmp_path / f"{rank}.jsonl")
        assert [r.layer for r in found] == [r.layer for r in alone]
        assert found.values() == pytest.approx(alone.values(), rel=1e-10, abs=1e-12)
        assert {r.n for r in found} == {67}
