"""A graph in parts on disk: written once, then read by whoever hosts some of its devices."""

from lumos.graph.parts.parts_folder import HeldOutPairs, PartsFolder, is_parts_folder

__all__ = ["HeldOutPairs", "PartsFolder", "is_parts_folder"]
