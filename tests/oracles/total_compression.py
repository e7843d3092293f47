"""From the arrays of all layers."""

import numpy as np

from .effective_dimension import effective_dimension


def total_compression(layers, labels, outputs):
    first, last = (effective_dimension(x, labels, outputs) for x in (layers[0], layers[-1]))
    return np.log(first) - np.log(last)
