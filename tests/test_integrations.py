"""Lightning, Transformers and torchmetrics: the same numbers at the step that the user means."""

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import lazyrich as lz
from lazyrich.errors import LazyrichError

pytestmark = [
    pytest.mark.slow,
    # the frameworks' own, about workers, deprecations and missing loggers
    pytest.mark.filterwarnings("ignore"),
]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def data(n: int = 48) -> torch.utils.data.TensorDataset:
    g = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(n, 6, generator=g), torch.arange(n) % 3)


def probe() -> list[tuple[Tensor, Tensor]]:
    return [data()[:]]


class Logger:
    """Remembers what a trainer logs."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, int], float] = {}

    def log(self, numbers: dict[str, float], step: int) -> None:
        self.seen |= {(tag, step): value for tag, value in numbers.items()}


@pytest.mark.parametrize("accumulate", [1, 3])
def test_lightning_records_updates_not_batches(tmp_path: Path, accumulate: int) -> None:
    pytorch_lightning = pytest.importorskip("pytorch_lightning")
    from lazyrich.integrations.lightning import RecorderCallback

    class Module(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    recorder = lz.Recorder(module.net, probe(), tmp_path / "r.jsonl", when=lz.every(1))
    logger = pytorch_lightning.loggers.CSVLogger(tmp_path)
    trainer = pytorch_lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        callbacks=[RecorderCallback(recorder)],
        logger=logger,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data(), batch_size=8))
    found = lz.Records.load(tmp_path / "r.jsonl")
    assert found.unique("step") == list(range(6 // accumulate + 1))
    assert found.where(step=0, layer="model", measure="weight_change").values() == [0.0]
    last = lz.measure(module.net, probe(), "effective_dimension", layers="penultimate")
    recorded = found.where(layer="penultimate", measure="effective_dimension")
    assert recorded[-1].value == pytest.approx(last[0].value, rel=1e-6)
    logged = (Path(logger.log_dir) / "metrics.csv").read_text()
    assert "effective_dimension/penultimate" in logged


@pytest.mark.parametrize("accumulate", [1, 2])
def test_transformers_records_updates_not_batches(tmp_path: Path, accumulate: int) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from lazyrich.integrations.transformers import RecorderCallback

    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config)
    ids = torch.randint(5, 30, (24, 7), generator=torch.Generator().manual_seed(0))
    rows = [
        {"input_ids": i, "attention_mask": torch.ones(7, dtype=torch.long), "labels": n % 3}
        for n, i in enumerate(ids)
    ]
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones(24, 7, dtype=torch.long),
        "labels": torch.arange(24) % 3,
    }
    writer = Logger()
    recorder = lz.Recorder(
        model, [batch], tmp_path / "r.jsonl", when=lz.every(1), writer=writer,
        layers=["penultimate", "outputs", "bert.encoder.layer.*"],
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), num_train_epochs=1, per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulate, report_to=[], use_cpu=True, save_strategy="no",
        disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[RecorderCallback(recorder)]
    )
    trainer.train()
    found = lz.Records.load(tmp_path / "r.jsonl")
    updates = 6 // accumulate
    assert found.unique("step") == list(range(updates + 1))
    assert found.where(step=0, layer="model", measure="weight_change").values() == [0.0]
    capture = lz.Capture(model, "penultimate")
    last = lz.measure(capture, [batch], "effective_dimension")[0].value
    recorded = found.where(layer="penultimate", measure="effective_dimension")
    assert recorded[-1].value == pytest.approx(last, rel=1e-5)
    assert writer.seen["effective_dimension/penultimate", updates] == recorded[-1].value
    assert found.where(measure="accuracy")[0].n == 24


def test_a_metric_gives_the_measure_of_all_batches_in_float64() -> None:
    pytest.importorskip("torchmetrics")
    from lazyrich.integrations.torchmetrics import MeasureMetric

    x, y = data()[:]
    metric = MeasureMetric("nc1").half()
    for part, labels in zip(x.split(10), y.split(10), strict=True):
        metric.update(part, labels)
    value = metric.compute()
    assert value.dtype == torch.float64
    assert float(value) == pytest.approx(lz.measure_arrays(x, "nc1", labels=y)[0].value, rel=1e-6)
    metric.reset()
    metric.update(x[:20], y[:20])
    again = lz.measure_arrays(x[:20], "nc1", labels=y[:20])[0].value
    assert float(metric.compute()) == pytest.approx(again, rel=1e-6)
    with pytest.raises(LazyrichError, match="no function of one statistic"):
        MeasureMetric("total_compression")


def synced(rank: int, folder: str) -> None:
    from lazyrich.integrations.torchmetrics import MeasureMetric

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x, y = data()[:]
    metric = MeasureMetric("nc1")
    at = slice(0, 7) if rank == 0 else slice(7, 48)
    metric.update(x[at], y[at])
    Path(folder, f"{rank}.txt").write_text(repr(float(metric.compute())))
    dist.destroy_process_group()


def test_a_metric_is_synced_over_ranks_of_uneven_size(tmp_path: Path) -> None:
    pytest.importorskip("torchmetrics")
    mp.spawn(synced, (str(tmp_path),), nprocs=2)
    x, y = data()[:]
    whole = lz.measure_arrays(x, "nc1", labels=y)[0].value
    for rank in range(2):
        assert float((tmp_path / f"{rank}.txt").read_text()) == pytest.approx(whole, rel=1e-6)
