"""Sparsity by its definitions: all pairs of movements, and parameters taken one by one."""

import numpy as np


def update_gini(x, labels, outputs, initial):
    moved = np.abs(x - initial).ravel()
    pairs = np.abs(moved[:, None] - moved[None, :]).sum()
    return pairs / (2 * len(moved) * moved.sum())


def update_share(x, labels, outputs, initial, mass=0.9):
    squares = sorted(((x - initial) ** 2).ravel(), reverse=True)
    carried, count = 0.0, 0
    while carried < mass * sum(squares):
        carried += squares[count]
        count += 1
    return count / len(squares)
