"""The main job on data that ships with scikit-learn: a rich and a lazy network, measured."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp
from tqdm import tqdm

from ._capture import Capture
from ._engine import measure
from ._record import Record, overlap, richest
from ._records import Records, check_file
from ._report import report
from ._schedules import log_spaced
from ._table import Cells, text
from .errors import LazyrichError

MEASURES = [
    "accuracy",
    "low_rank_richness",
    "richness_*",
    "output_rank",
    "nc1",
    "effective_dimension",
    "spectrum",
]
SCALES = {"rich": 0.01, "lazy": 10.0}
STEPS, LOSS, TRAIN = 2000, 0.02, 500


class Scaled(nn.Module):
    """A network that starts at zero output and whose scale sets how far its weights must move.

    f(x) = scale (net(x) - net at its start (x)). A large scale fits the data by a small, linear
    change of the weights (lazy); a small one has to change the features (rich).

    Reference: Chizat, Oyallon & Bach 2019, arXiv:1812.07956.
    """

    def __init__(self, net: nn.Module, scale: float) -> None:
        super().__init__()
        self.start = deepcopy(net).requires_grad_(False)
        self.net, self.scale = net, scale

    def forward(self, x: Tensor) -> Tensor:
        start = self.start(x)
        change: Tensor = self.net(x) - start
        return self.scale * change


def demo(folder: Path, *, seed: int = 0, progress: bool = True) -> str:
    """Train both networks on digits, measure them on the way, and write records and a report.

    Args:
        folder: made if it is not there; `records.jsonl` and `report.html` in it are replaced.
        seed: of the weights and of the split into training and test digits.
        progress: a bar on stderr, where that is a terminal.

    Returns:
        What to print: the comparison, and where the files are.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LazyrichError(f"cannot make the folder {folder}: {error.strerror}.") from error
    path = folder / "records.jsonl"
    check_file(path)
    if path.exists() and set(Records.load(path).unique("run")) - set(SCALES):
        raise LazyrichError(f"{path} holds other runs than the demo's: choose another folder.")
    x, y = _digits(seed)
    records = Records()
    wanted = log_spaced(STEPS, 16)
    for run, scale in SCALES.items():
        steps = _training(x[:TRAIN], y[:TRAIN], scale, seed)
        title = f"training the {run} network"
        for step, done, model in tqdm(steps, desc=title, disable=None if progress else True):
            if done or wanted(step):
                found = _measured(model, x[TRAIN:], y[TRAIN:], run, seed)
                records += found.tag(step=step)
    path.unlink(missing_ok=True)
    records.save(path)
    page = report(records, folder / "report.html", title="Rich and lazy learning of digits")
    return f"{_comparison(records)}\n\nrecords: {path}\nreport:  {page}"


def _digits(seed: int) -> tuple[Tensor, Tensor]:
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
    pixels = torch.as_tensor(data.data, dtype=torch.float32)[order]
    return (pixels - pixels[:TRAIN].mean(0)) / 16, torch.as_tensor(data.target)[order]


def _network(seed: int) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
        )


def _training(
    x: Tensor, y: Tensor, scale: float, seed: int
) -> Iterator[tuple[int, bool, nn.Module]]:
    """Full-batch gradient descent to a given loss; yields step, whether it is the last, and model.

    The step size follows the largest eigenvalue of the tangent kernel over n, which grows by
    orders of magnitude in the rich run: one round of power iteration a step keeps up with it.
    """
    model = Scaled(_network(seed), scale)
    target = nn.functional.one_hot(y, 10).float() - 0.1
    optimizer = torch.optim.SGD(model.net.parameters(), momentum=0.9)
    direction = torch.randn(target.shape, generator=torch.Generator().manual_seed(seed))
    for _ in range(20):
        direction = _kernel_times(model.net, x, direction)
    for step in range(STEPS + 1):
        direction = _kernel_times(model.net, x, direction)
        error = (model(x) - target).square().sum(1).mean()
        done = step == STEPS or error.item() <= LOSS
        yield step, done, model
        if done:
            return
        optimizer.param_groups[0]["lr"] = len(x) / float(direction.norm())
        optimizer.zero_grad()
        # dividing by the square of the scale gives every scale the same speed in function space
        (error / (2 * scale**2)).backward()
        optimizer.step()


def _kernel_times(net: nn.Module, x: Tensor, v: Tensor) -> Tensor:
    """The tangent kernel applied to the unit vector along v: one round of power iteration."""
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def outputs(weights: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(net, weights, (x,))
        return found

    (gradient,) = vjp(outputs, parameters)[1](v / v.norm())
    product: Tensor = jvp(outputs, (parameters,), (gradient,))[1]
    return product


def _measured(model: nn.Module, x: Tensor, y: Tensor, run: str, seed: int) -> Records:
    capture = Capture(model, ["net.1", "penultimate", "outputs"])
    return measure(capture, [(x, y)], MEASURES, interval=10, seed=seed, run=run, progress=False)


def _comparison(records: Records) -> str:
    """Both runs side by side at the same training loss, by the measures that have a direction."""
    ends = {run: max(records.where(run=run).unique("step")) for run in SCALES}
    last = {run: records.where(run=run, step=step) for run, step in ends.items()}
    accuracy = (_shown(rows.where(measure="accuracy")[0]) for rows in last.values())
    table = [["accuracy on test digits", *accuracy, ""]]
    for measure_name, definition in records.definitions.items():
        if definition.richer != "neither":
            rich, lazy = (
                rows.where(layer="penultimate", measure=measure_name)[0] for rows in last.values()
            )
            verdict = _verdict([rich, lazy], definition.richer)
            table.append([measure_name, _shown(rich), _shown(lazy), verdict])
    scales = " and ".join(f"{ends[run]} steps at output scale {SCALES[run]:g}" for run in SCALES)
    told = f"Both trained to a loss of {LOSS:g} ({scales}), measured on {_samples(records)} digits:"
    return f"{told}\n\n{text(Cells(['measure', *SCALES, 'richer run'], table))}"


def _samples(records: Records) -> int:
    return max(r.n for r in records)


def _verdict(rows: Sequence[Record], direction: str) -> str:
    best = richest(rows, direction)
    if best is None:
        return "undecided"
    return "intervals overlap" if overlap(*rows) else best.run


def _shown(record: Record) -> str:
    if record.low is None or record.high is None:
        return f"{record.value:.3f}"
    return f"{record.value:.3f} [{record.low:.3f}, {record.high:.3f}]"
