"""Pair by pair, from the rows."""

from itertools import permutations

import numpy as np


def cdnv(x, labels, outputs):
    clouds = [x[labels == c] for c in np.unique(labels)]

    def variance(cloud):
        return ((cloud - cloud.mean(0)) ** 2).sum(1).mean()

    return np.mean(
        [
            (variance(a) + variance(b)) / (2 * ((a.mean(0) - b.mean(0)) ** 2).sum())
            for a, b in permutations(clouds, 2)
        ]
    )
