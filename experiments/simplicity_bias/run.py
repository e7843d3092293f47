"""A digit beside a photograph, both of which tell the class: the network reads the digit."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

import lazyrich as lz
from experiments.data import cifar, mnist
from experiments.harness import Cell, Size, told
from experiments.pictures import over_channels
from experiments.training import accuracy, mlp, trained
from lazyrich import Records

STARTS = {"default": 1.0, "small": 0.01}
_TEST = 2000


def cells(size: Size) -> Mapping[str, Cell]:
    seeds, epochs, rows = {
        "quick": (1, 2, 1000),
        "laptop": (3, 15, 10000),
        "full": (10, 60, 10000),
    }[size]
    return {
        f"{start} start, seed {seed}": partial(_cell, start, seed, epochs, rows)
        for seed in range(seeds)
        for start in STARTS
    }


def _beside(photos: Tensor, classes: Tensor, test: bool, seed: int) -> Tensor:
    """Photographs on the left, digits of the given classes on the right, 3 x 32 x 64."""
    digits, labels = (part[60000:] if test else part[:60000] for part in mnist())
    generator = torch.Generator().manual_seed(seed)
    both = torch.zeros(len(photos), 3, 32, 64)
    both[..., :32] = photos
    for c in range(10):
        at, pool = (classes == c).nonzero()[:, 0], (labels == c).nonzero()[:, 0]
        drawn = pool[torch.randint(len(pool), (len(at),), generator=generator)]
        both[at, :, 2:30, 34:62] = digits[drawn][:, None]
    return both


def _cell(start: str, seed: int, epochs: int, rows: int) -> Records:
    run = f"{start} start, seed {seed}"
    (photos, y), (others, z) = cifar()
    photos, y, others, z = photos[:rows], y[:rows], others[:_TEST], z[:_TEST]
    x = _beside(photos, y, False, seed)
    layers = mlp(x[0].numel(), 256, 256, 10, seed=seed, first=STARTS[start])
    model = nn.Sequential(nn.Flatten(), *layers)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    trained(model, x, y, epochs=epochs, optimizer=adam, batch=128, seed=seed)
    wrong = (z + 1) % 10
    test, crossed = _beside(others, z, True, seed), _beside(others, wrong, True, seed)
    no_photo, no_digit = test.clone(), test.clone()
    no_photo[..., :32], no_digit[..., 32:] = x[..., :32].mean(0), x[..., 32:].mean(0)
    scores = {
        "both": accuracy(model, test, z),
        "digit alone": accuracy(model, no_photo, z),
        "photo alone": accuracy(model, no_digit, z),
        "digit against photo: the digit": accuracy(model, crossed, wrong),
        "digit against photo: the photo": accuracy(model, crossed, z),
    }
    rows_ = [told(run, "accuracy", v, layer=name, n=_TEST, seed=seed) for name, v in scores.items()]
    measures = ["nfm_diagonal", "agop_diagonal"]
    data = [(x[:2000], y[:2000])]
    options = {"layers": "1", "run": run, "seed": seed, "progress": False}
    found = lz.nfa(model, data, measures, **options)
    for measure in measures:
        on = _on_the_digit(found, measure)
        rows_.append(told(run, f"{measure} on the digit", on, layer="1", seed=seed))
    return Records(rows_) + (over_channels(found, 32, 64) if seed == 0 else Records())


def outcomes(records: Records) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {}
    for run in records.unique("run"):
        here = records.where(run=run)
        score = {r.layer: r.value for r in here if r.measure == "accuracy"}
        start = run.split()[0]
        values = {
            f"agop_on_the_digit_{start}": here.where(measure="agop_diagonal on the digit")[0].value,
            f"nfm_on_the_digit_{start}": here.where(measure="nfm_diagonal on the digit")[0].value,
            f"follows_the_digit_{start}": score["digit against photo: the digit"],
            f"photo_alone_{start}": score["photo alone"],
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def _on_the_digit(records: Records, measure: str) -> float:
    return sum(r.value for r in records if r.measure == measure and ((r.index or 1) - 1) % 64 >= 32)
