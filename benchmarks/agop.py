"""AGOP of every layer against Jacobians taken layer by layer, as published codes do.

    OMP_NUM_THREADS=1 python benchmarks/agop.py

The floor is one forward pass, one backward pass to the activations for each output, and for each
layer the product of its gradients with themselves. Of an MLP of L equal layers the published way
multiplies L(L + 1) / 2 + L matrices of n c rows where this one multiplies L + L / 2, so that the
ratio is near 2.5 for the five of the first row and grows with depth; where layers are convolutions
or parts of attention, Jacobians cost more than that.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from itertools import pairwise
from time import process_time

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional

import lazyrich as lz

Rest = Callable[[Tensor, Tensor], Tensor]
# what follows a layer, from one sample's inputs to it, [p, d], beside the sample itself


def main() -> None:
    """Three networks, one row each; then memory against the number of inputs."""
    print(f"{'network':28} {'jacrev':>9} {'lazyrich':>9} {'ratio':>6} {'floor':>8} {'error':>8}")
    for case in (mlp, convolutions, attention):
        compare(*case())
    print("\nfirst layer of 1,024 units, 2 outputs, 64 samples")
    for d in (1_000, 10_000, 100_000):
        growth(d)


def compare(name: str, model: nn.Module, x: Tensor, layers: dict[str, tuple[Rest, Tensor]]) -> None:
    """All layers by both ways, equal values, and the floor."""
    capture = lz.Capture(model, list(dict.fromkeys(layer.partition(":")[0] for layer in layers)))
    lz.nfa(capture, [x[:2]], lz.CATALOGUE["agop_diagonal"])  # what is loaded once
    for rest, h in layers.values():
        by_jacobian(rest, h[:2], x[:2])
    start = process_time()
    wanted = {layer: by_jacobian(rest, h, x) for layer, (rest, h) in layers.items()}
    peer = process_time() - start
    start = process_time()
    lz.nfa(capture, [x], lz.CATALOGUE["agop_diagonal"])
    ours = process_time() - start
    errors = []
    for layer, matrix in wanted.items():
        found = lz.agop(model, [x], layer).matrix
        errors.append(float((found - matrix).norm() / matrix.norm()))
    least = floor(model, x)
    print(
        f"{name:28} {peer:8.3f}s {ours:8.3f}s {peer / ours:6.1f} {least:7.3f}s {max(errors):8.1e}"
    )


def by_jacobian(rest: Rest, h: Tensor, x: Tensor) -> Tensor:
    """One vectorized Jacobian of what follows, over positions that stand free: [n, p, d]."""
    matrix = torch.zeros(h.shape[-1], h.shape[-1], dtype=torch.float64)
    for part in zip(h.split(64), x.split(64), strict=True):
        j = vmap(jacrev(rest))(*part).flatten(0, -2).detach()
        matrix += (j.T @ j).double()
    return matrix.detach() / len(h)


def floor(model: nn.Module, x: Tensor) -> float:
    """Bare passes, and bare products of what comes back."""
    kept: list[Tensor] = []
    kinds = (nn.Linear, nn.Conv2d)
    hooks = [
        m.register_forward_hook(lambda *a: kept.append(a[2]))
        for m in model.modules()
        if isinstance(m, kinds)
    ]
    start = process_time()
    outputs = model(x)
    for c in range(outputs.shape[1]):
        for g in torch.autograd.grad(outputs[:, c].sum(), kept, retain_graph=True):
            rows = g.movedim(1, -1) if g.ndim == 4 else g
            rows = rows.reshape(-1, rows.shape[-1])
            rows.T @ rows
    spent = process_time() - start
    for hook in hooks:
        hook.remove()
    return spent


def mlp() -> tuple[str, nn.Module, Tensor, dict[str, tuple[Rest, Tensor]]]:
    """784-1024 x 5-10, 512 samples."""
    torch.manual_seed(0)
    sizes = [784, *[1024] * 5, 10]
    parts: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        parts += [nn.Linear(wide, narrow), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    x = torch.randn(512, 784)
    layers: dict[str, tuple[Rest, Tensor]] = {}
    with torch.no_grad():
        for place in range(0, 10, 2):
            rest = model[place:]
            layers[str(place)] = (lambda h, _, rest=rest: rest(h[0]), model[:place](x)[:, None])
    return "MLP 784-1024x5-10, n 512", model, x, layers


def convolutions() -> tuple[str, nn.Module, Tensor, dict[str, tuple[Rest, Tensor]]]:
    """3-32-64-64 on 32 x 32 pixels, 10 outputs, 16 samples."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for wide, narrow in pairwise([3, 32, 64, 64]):
        parts += [nn.Conv2d(wide, narrow, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(1024, 10))
    x = torch.randn(16, 3, 32, 32)
    layers: dict[str, tuple[Rest, Tensor]] = {}
    with torch.no_grad():
        for place in (0, 3, 6):
            before, conv, rest = model[:place](x), model[place], model[place + 1 :]
            patches = functional.unfold(before, 3, padding=1).transpose(1, 2)
            size = before.shape[2:]

            def after(u: Tensor, _: Tensor, conv=conv, rest=rest, size=size) -> Tensor:
                z = u @ conv.weight.flatten(1).T + conv.bias
                return rest(z.T.reshape(1, -1, *size))[0]

            layers[str(place)] = (after, patches)
    return "conv 3-32-64-64, n 16", model, x, layers


class Block(nn.Module):
    """Attention of 4 heads in 64 units, and a readout of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4
        self.q, self.k, self.v, self.o = (nn.Linear(64, 64) for _ in range(4))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.q(x), self.k(x), self.v(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(-2, -3) for t in (q, k, v))
        z = (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v
        return self.head(self.o(z.transpose(-2, -3).flatten(-2)).mean(-2))


def attention() -> tuple[str, nn.Module, Tensor, dict[str, tuple[Rest, Tensor]]]:
    """Every query, key and value of 4 heads, 32 tokens, 64 samples."""
    torch.manual_seed(0)
    model, x = Block(), torch.randn(64, 32, 64)
    layers: dict[str, tuple[Rest, Tensor]] = {}
    for letter in "qkv":
        for head in range(4):
            rows = slice(16 * head, 16 * head + 16)

            def after(h: Tensor, x: Tensor, letter: str = letter, rows: slice = rows) -> Tensor:
                own = {name: getattr(model, name)(x) for name in "qkv"}
                layer = getattr(model, letter)
                here = h @ layer.weight[rows].T + layer.bias[rows]
                parts = [own[letter][:, : rows.start], here, own[letter][:, rows.stop :]]
                return model.attend(*(own | {letter: torch.cat(parts, 1)}).values())

            layers[f"{letter}:head{head}"] = (after, x)
    return "attention 64, 4 heads, n 64", model, x, layers


def growth(d: int) -> None:
    """Time and the largest matrix that is held, against a matrix over the inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(d, 1024), nn.ReLU(), nn.Linear(1024, 2))
    x = torch.randn(64, d)
    start = process_time()
    found = lz.agop(model, [x], "0")
    held = found.factor.numel() * 8 / 2**20
    print(
        f"  {d:7,} inputs: {process_time() - start:6.2f}s, {held:8.1f} MiB held; "
        f"a matrix over the inputs {d * d * 8 / 2**20:12,.1f} MiB"
    )


if __name__ == "__main__":
    main()
