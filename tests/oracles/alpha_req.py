"""By numpy's weighted fit of a polynomial of degree one to the logs."""

import numpy as np


def alpha_req(x, labels, outputs, first=1, last=100, weights="rank"):
    values = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    values = values[: min(x.shape[1], len(x) - 1, last)]
    ranks = np.arange(first, len(values) + 1)
    root = ranks**-0.5 if weights == "rank" else None  # polyfit squares its weights
    return -np.polyfit(np.log(ranks), np.log(values[first - 1 :]), 1, w=root)[0]
