"""Few dense features instead of thousands of words: a favourable case for the feature encoder.

A device divides its d features between ρ receivers, so ε' = ε/⌈d/ρ⌉ for one element. With 4,714
words ε' is near 0. Here the words of a graph become the coordinates of a truncated singular value
decomposition, each mapped to [0, 1] by its least and largest value. The decomposition is computed
in the clear: this is no protocol, only a graph on which the encoder has its best chance.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from lumos.errors import InputError
from lumos.graph import Graph
from lumos.typing import Floats

DIMENSIONS = (16, 128)
DENSE_EPSILONS = (2.0, 8.0, 32.0, 128.0)


def dense_features(graph: Graph, dimension: int) -> Graph:
    """Return the graph with `dimension` coordinates of its features, each within [0, 1].

    Raises:
        InputError: the graph has no more features than that.
    """
    if graph.features is None or dimension >= min(graph.feature_count, graph.devices):
        raise InputError(f"{graph.name}: {dimension} dense features need more features than that")
    return replace(graph, features=_unit_columns(_coordinates(graph, dimension)))


def _coordinates(graph: Graph, dimension: int) -> Floats:
    """Return U·S of the features, largest singular value first, with signs that do not vary."""
    features: Any = graph.features
    rows = csr_array(features).astype(np.float64)
    start = np.ones(min(rows.shape))
    left, sizes, right = svds(rows, k=dimension, v0=start)
    order = np.argsort(-sizes)
    largest = np.abs(right[order]).argmax(1)
    signs = np.sign(right[order, largest])
    found: Floats = left[:, order] * (sizes[order] * signs)
    return found


def _unit_columns(columns: Floats) -> Floats:
    least, most = columns.min(0), columns.max(0)
    unit = (columns - least) / np.where(most > least, most - least, 1.0)
    found: Floats = unit.astype(np.float32)
    return found
