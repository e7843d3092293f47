"""By the rotation itself, as scipy finds it, applied to padded and normalized arrays."""

import numpy as np
from scipy.linalg import orthogonal_procrustes


def procrustes(x, labels, outputs, other, kind="similarity"):
    width = max(x.shape[1], other.shape[1])
    a, b = (np.pad(z - z.mean(0), ((0, 0), (0, width - z.shape[1]))) for z in (x, other))
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    rotation, _ = orthogonal_procrustes(b, a)
    half = ((a - b @ rotation) ** 2).sum() / 2
    return 1 - half if kind == "similarity" else np.sqrt(half)
