"""Networks written out in abc form, with one learning rate for all: f = sum of n^-a w ..., by hand.

Multilayer perceptrons without biases, `weights` as [out, in] from input to output. Width ratio r is
that to the base; every multiplier stands in the forward pass, and SGD is written out.
"""

import torch


def multipliers(kind, depth, ratio, inputs=1):
    """Powers of the ratio for input, hidden and output weights; `inputs` of them in all."""
    powers = {
        "standard": (0, 0, 0),
        "ntk": (0, -0.5, -0.5),
        "mup": (0.5, 0, -0.5),
        "mean-field": (0.5, 0, -0.5),
    }[kind]
    factors = [ratio ** powers[i] for i in [0, *[1] * (depth - 1), 2]]
    return [inputs**-0.5, *factors[1:]] if kind == "ntk" else factors


def forward(weights, factors, x, activation):
    for place, (w, factor) in enumerate(zip(weights, factors, strict=True)):
        x = factor * (x @ w.T)
        if place < len(weights) - 1:
            x = activation(x)
    return x


def train(weights, factors, x, y, *, lr, steps, activation, loss, alpha=1.0):
    """Losses of gradient descent on loss(alpha f) / alpha^2."""
    weights = [w.clone().requires_grad_() for w in weights]
    losses = []
    for _ in range(steps):
        value = loss(alpha * forward(weights, factors, x, activation), y)
        losses.append(value.item())
        gradients = torch.autograd.grad(value / alpha**2, weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= lr * g
    return losses, [w.detach() for w in weights]


def mup_package_rules(shape, base_shape, *, readout, adam):
    """Rules of the package `mup` 1.0.0 for one tensor, from its infinite dimensions.

    Factor on the default standard deviation of PyTorch at this width, multiplier in the forward
    pass, factor on the learning rate (`optim.py`, `layer.py`, `init.py` of the package).
    """
    ratios = [s / b for s, b in zip(shape, base_shape, strict=True) if s != b]
    if len(ratios) == 2:  # a matrix [out, in]
        out, into = ratios
        return 1.0, 1.0, 1 / into if adam else out / into
    if not ratios:
        return 1.0, 1.0, 1.0
    (ratio,) = ratios
    if readout:
        return ratio**0.5, 1 / ratio, 1.0 if adam else ratio
    return 1.0, 1.0, 1.0 if adam else ratio
