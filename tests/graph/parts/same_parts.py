"""Parts that are compared array by array, and ways to write them."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from lumos.graph import Graph
from lumos.graph.facts import GraphPart
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import Partition, small_numbers
from lumos.graph.parts.part_source import GraphInMemory
from lumos.training.write_parts import write_parts

ARRAYS = ("devices", "offsets", "neighbours", "labels", "roles", "held_back")


def assert_same(one: GraphPart, other: GraphPart) -> None:
    assert one.total == other.total
    for name in ARRAYS:
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype == np.int64, name
        np.testing.assert_array_equal(left, right, err_msg=name)
    features: Any = one.features
    others: Any = other.features
    assert type(features) is type(others)
    if isinstance(features, scipy.sparse.csr_array):
        assert features.shape == others.shape
        for name in ("indptr", "indices", "data"):
            left, right = getattr(features, name), getattr(others, name)
            np.testing.assert_array_equal(left, right, err_msg=name)
    elif features is not None:
        assert features.dtype == others.dtype == np.float32
        np.testing.assert_array_equal(features, others)


def assigned(graph: Graph, parts: int) -> Partition:
    """An assignment without any order, in which every part has a device."""
    numbers = np.random.default_rng(5).integers(0, parts, graph.devices)
    numbers[:parts] = np.arange(parts)[::-1]
    return Partition(parts, None, small_numbers(numbers, parts))


def partitions(graph: Graph) -> dict[str, Partition]:
    return {
        "one": Partition.equal(graph.devices, 1),
        "ranges": Partition.equal(graph.devices, 7),
        "assigned": assigned(graph, 7),
        "many": assigned(graph, 300) if graph.devices > 300 else assigned(graph, 50),
        "devices": Partition.equal(graph.devices, graph.devices),
    }


def written(
    graph: Graph, path: Path, partition: Partition | None = None, **how: Any
) -> PartsFolder:
    partition = partition or Partition.equal(graph.devices, 4)
    return write_parts(GraphInMemory(graph), path, partition, **how)
