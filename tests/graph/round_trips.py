"""Graphs that a conversion to another library and back must keep, and how they are compared."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from lumos.graph import Graph

EDGES = [[0, 1], [1, 2], [0, 3]]  # devices 4 and 5 have no neighbour
DENSE = np.array([[0, 1.5], [2, 0], [0, 0], [-1, 3], [0, 0], [4, 0]], np.float32)
LABELS = [2, -1, 0, 2, -1, 0]  # class 1 occurs nowhere, two labels are unknown

GRAPHS: dict[str, dict[str, Any]] = {
    "structure": {},
    "dense": {"features": DENSE},
    "sparse": {"features": csr_array(DENSE)},
    "unused last feature": {"features": csr_array((6, 9), dtype=np.float32)},
    "labels": {"labels": LABELS, "classes": ("z", "a", "m")},
    "numbered classes": {"labels": LABELS},
    "classes that look unknown": {"labels": LABELS, "classes": ("-1", "", "0")},
    "integer ids": {"ids": [70, 3, 9, 2**62, 0, 5], "edges": [[70, 3], [3, 9], [70, 2**62]]},
    "text ids": {"ids": list("zyxwvu"), "edges": [["z", "y"], ["y", "x"], ["z", "w"]]},
    "digits as text": {"ids": list("543210"), "edges": [["5", "4"], ["4", "3"], ["5", "2"]]},
    "everything": {
        "features": DENSE,
        "labels": LABELS,
        "classes": ("z", "a", "m"),
        "ids": list("zyxwvu"),
        "edges": [["z", "y"], ["y", "x"], ["z", "w"]],
        "name": "all of it",
    },
}


def made(case: str) -> Graph:
    """The graph of a case."""
    return Graph.from_edges(**{"edges": EDGES, "devices": 6, **GRAPHS[case]})


def dense(graph: Graph) -> Any:
    """Features as an ordinary array, or None."""
    features: Any = graph.features
    return features.toarray() if isinstance(features, csr_array) else features


def assert_same(one: Graph, other: Graph) -> None:
    """Every part of two graphs is equal; features by their values."""
    assert one.edge_list().tolist() == other.edge_list().tolist()
    assert one.devices == other.devices
    assert type(one.ids) is type(other.ids)
    assert list(one.ids) == list(other.ids)
    assert one.feature_count == other.feature_count
    assert np.array_equal(dense(one), dense(other))
    assert (one.labels is None) == (other.labels is None)
    assert np.array_equal(np.asarray(one.labels), np.asarray(other.labels))
    assert one.classes == other.classes
    assert one.name == other.name
    assert (other.dropped_self_loops, other.dropped_duplicates) == (0, 0)
