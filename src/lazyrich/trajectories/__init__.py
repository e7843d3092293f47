"""What a path of capacity and geometry says: which part of a change, and which stages.

Works from records alone, of any number of runs, steps and layers; never loads torch.
"""

from ._attribution import attribute
from ._stages import stages

__all__ = ["attribute", "stages"]
