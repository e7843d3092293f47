"""Interventions: change what a network sees, and measure what that does to its answers."""

from ._masks import InputMask, mask_inputs

__all__ = ["InputMask", "mask_inputs"]
