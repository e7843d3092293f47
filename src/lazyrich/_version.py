"""The version, for whoever must not load the rest to know it."""

__version__ = "0.1.0"
