"""Correlations by other ways than the package's: inverse covariances, dummies, counting."""

import numpy as np


def partial(x, y, *controls):
    """Off the diagonal of the inverse covariance of all columns."""
    inverse = np.linalg.inv(np.cov(np.stack([x, y, *controls])))
    return -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1])


def within(x, y, family, *controls):
    """With a dummy for each family but one among the controls."""
    names = sorted(set(family))[1:]
    dummies = [np.array([float(f == name) for f in family]) for name in names]
    return partial(x, y, *controls, *dummies)


def fit(y, *columns):
    """Coefficients, the constant first, and R², by the normal equations."""
    design = np.stack([np.ones(len(y)), *columns], 1)
    coefficients = np.linalg.solve(design.T @ design, design.T @ y)
    left = y - design @ coefficients
    return coefficients, 1 - (left @ left) / ((y - y.mean()) ** 2).sum()


def ranks(x):
    """The mean place of each number among all, ties sharing theirs."""
    return np.array([(x < each).sum() + ((x == each).sum() + 1) / 2 for each in x])


def holm(p):
    """The least level at which the step-down procedure rejects each."""
    order = sorted(range(len(p)), key=lambda at: p[at])
    found = [0.0] * len(p)
    for place, at in enumerate(order):
        found[at] = min(1.0, max((len(p) - i) * p[order[i]] for i in range(place + 1)))
    return found


def benjamini_hochberg(p):
    """The least level at which the step-up procedure rejects each."""
    order = sorted(range(len(p)), key=lambda at: p[at])
    found = [0.0] * len(p)
    for place, at in enumerate(order):
        later = range(place, len(p))
        found[at] = min(1.0, *(len(p) / (i + 1) * p[order[i]] for i in later))
    return found
