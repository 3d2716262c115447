"""The graph and its sources: SNAP archives, npz, CSV, NetworkX, PyG, the embedded demo graph."""

from lumos.graph.demo import demo_graph
from lumos.graph.graph import Graph
from lumos.graph.io import ReadOptions
from lumos.graph.sources import load

__all__ = ["Graph", "ReadOptions", "demo_graph", "load"]
