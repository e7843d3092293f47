"""Interventions: change what a network sees, and measure what that does to its answers."""

from ._masks import InputMask, mask_inputs
from ._noises import Dropout, Gaussian, Noise, SaltAndPepper, Uniform
from ._perturbation import perturb
from ._projection import project

__all__ = [
    "Dropout",
    "Gaussian",
    "InputMask",
    "Noise",
    "SaltAndPepper",
    "Uniform",
    "mask_inputs",
    "perturb",
    "project",
]
