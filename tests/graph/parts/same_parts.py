"""Parts that are compared array by array, and ways to write them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from lumos.graph import Graph
from lumos.graph.facts import GraphPart
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.training.write_parts import write_parts
from lumos.typing import Ints

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


def uneven(graph: Graph, parts: int) -> Ints:
    """Bounds of ranges of very different sizes, one of a single device."""
    cuts = np.random.default_rng(5).choice(np.arange(2, graph.devices), parts - 2, replace=False)
    return np.array([0, 1, *np.sort(cuts), graph.devices])


def hosted(bounds: Ints) -> list[Ints]:
    return [np.arange(low, high) for low, high in pairwise(bounds.tolist())]


def partitions(graph: Graph) -> dict[str, Ints]:
    return {
        "one": equal_bounds(graph.devices, 1),
        "ranges": equal_bounds(graph.devices, 7),
        "uneven": uneven(graph, 7),
        "devices": equal_bounds(graph.devices, graph.devices),
    }


def written(graph: Graph, path: Path, bounds: Ints | None = None, **how: Any) -> PartsFolder:
    bounds = equal_bounds(graph.devices, 4) if bounds is None else bounds
    return write_parts(graph, path, bounds, **how)
