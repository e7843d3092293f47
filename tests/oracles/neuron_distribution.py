"""Wasserstein distances by scipy, input by input."""

import numpy as np
from scipy.stats import wasserstein_distance


def neuron_distribution_change(x, labels, outputs, initial):
    distances = [wasserstein_distance(x[:, j], initial[:, j]) for j in range(x.shape[1])]
    return np.mean(distances) / np.sqrt(np.mean(initial**2))
