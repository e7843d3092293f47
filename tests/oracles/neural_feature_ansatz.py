"""By the matrices themselves, entry by entry, and powers by their eigenvectors."""

import numpy as np


def matrices(weight):
    """NFM and AGOP, the gradients being rows of the weights and half of their neighbors."""
    gradients = weight + np.roll(weight, 1, axis=1) / 2
    w, d = weight.shape
    if w <= d:
        gradients = gradients[:, :w] @ weight
    return weight.T @ weight, sum(np.outer(g, g) for g in gradients) / len(gradients)


def power(a, exponent):
    values, vectors = np.linalg.eigh(a)
    values = np.where(values > 1e-12 * values.max(), values, 0)
    powered = np.where(values > 0, np.maximum(values, 1e-300) ** exponent, 0)
    return vectors * powered @ vectors.T


def pearson(a, b):
    return np.corrcoef(a.ravel(), b.ravel())[0, 1]


def nfa_correlation(x, labels, outputs, initial):
    nfm, agop = matrices(x)
    return pearson(nfm, power(agop, 0.5))


def nfa_power_scan(x, labels, outputs, initial):
    nfm, agop = matrices(x)
    return {k: pearson(nfm, power(agop, 1 / k)) for k in range(1, 7)}


def initial_nfm_correlation(x, labels, outputs, initial):
    return pearson(x.T @ x, initial.T @ initial)


def agop_diagonal(x, labels, outputs, initial):
    agop = matrices(x)[1]
    return dict(enumerate(np.diag(agop) / np.trace(agop), 1))


def nfm_diagonal(x, labels, outputs, initial):
    nfm = x.T @ x
    return dict(enumerate(np.diag(nfm) / np.trace(nfm), 1))


def top(matrix):
    """The eigenvector of the largest eigenvalue, its largest entry positive."""
    vector = np.linalg.eigh(matrix)[1][:, -1]
    return dict(enumerate(vector * np.sign(vector[np.abs(vector).argmax()]), 1))


def agop_direction(x, labels, outputs, initial):
    return top(matrices(x)[1])


def nfm_direction(x, labels, outputs, initial):
    return top(x.T @ x)
