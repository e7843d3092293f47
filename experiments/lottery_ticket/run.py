"""Networks trained again on the few inputs that their neural feature matrix marks."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.data import cifar, mnist
from experiments.harness import Cell, Size, told
from experiments.pictures import over_channels
from experiments.star import starred
from experiments.training import accuracy, mlp, trained
from lazyrich import Records
from lazyrich.interventions import InputMask

SHARES = 0.02, 0.05, 0.1
_DIM = 0.75  # brightness of the star, near that of the photographs


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, epochs = {"quick": (1, 2), "laptop": (5, 40), "full": (10, 100)}[size]
    return {
        f"{task}, seed {seed}": partial(_cell, task, seed, epochs)
        for seed in range(seeds)
        for task in ("star", "digits")
    }


def _data(task: str, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """1,000 training samples, as few as make a mask worth while, and 2,000 test samples."""
    generator = torch.Generator().manual_seed(seed)
    if task == "digits":
        x, y = mnist()
        at = torch.randperm(60000, generator=generator)[:1000]
        return (x[at], y[at]), (x[60000:62000], y[60000:62000])
    (x, _), (z, _) = cifar()
    at = torch.randperm(len(x), generator=generator)[:1000]
    y, labels = torch.arange(1000) % 2, torch.arange(2000) % 2
    train, test = starred(x[at], y == 1, _DIM), starred(z[:2000], labels == 1, _DIM)
    return (train, y), (test, labels)


def _network(
    inputs: int, outputs: int, seed: int, epochs: int, data: tuple[Tensor, Tensor], *mask: nn.Module
) -> nn.Module:
    model = nn.Sequential(*mask, nn.Flatten(), *mlp(inputs, 256, 256, outputs, seed=seed))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained(model, *data, epochs=epochs, optimizer=adam, batch=50, seed=seed)
    return model.eval()


def _cell(task: str, seed: int, epochs: int) -> Records:
    run = f"{task}, seed {seed}"
    train, test = _data(task, seed)
    inputs, outputs = train[0][0].numel(), int(train[1].max()) + 1
    build = partial(_network, inputs, outputs, seed, epochs, train)
    whole = build()
    initial = nn.Sequential(nn.Flatten(), *mlp(inputs, 256, 256, outputs, seed=seed))
    nfm = lz.nfm(whole, "1", initial=initial)
    scores = {"all inputs": accuracy(whole, *test)}
    generator = torch.Generator().manual_seed(seed)
    for part in SHARES:
        chance = torch.rand(inputs, generator=generator)
        for name, marks in (("NFM", nfm), ("chance", chance)):
            mask = InputMask.of(marks, keep=part, fill=train[0].mean(0))
            scores[f"{part:.0%} by {name}"] = accuracy(build(mask), *test)
    told_ = [told(run, "accuracy", v, layer=k, n=2000, seed=seed) for k, v in scores.items()]
    if seed > 0:
        return Records(told_)
    found = lz.nfa(whole, [train], "nfm_diagonal", layers="1", run=run, progress=False)
    return Records(told_) + over_channels(found, *train[0].shape[-2:])


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        score = {r.layer: r.value for r in records.where(run=run, measure="accuracy")}
        task = run.split(",")[0]
        for part in SHARES:
            ours = score[f"{part:.0%} by NFM"]
            values = {
                f"{task}_{part:.0%}_against_all": ours - score["all inputs"],
                f"{task}_{part:.0%}_against_chance": ours - score[f"{part:.0%} by chance"],
            }
            for name, value in values.items():
                found.setdefault(name.replace("%", ""), []).append(value)
    return found
