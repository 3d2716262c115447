"""The graph itself: what it holds, that it cannot change, and what it refuses."""

import subprocess
import sys
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from lumos.errors import InputError
from lumos.graph import Graph
from lumos.graph.facts import facts_of, fingerprint

# 0–1, 1–2, 0–2 is a triangle, 3 hangs on 2, 4 knows nobody.
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3)]


def test_a_small_graph_holds_exactly_this() -> None:
    graph = Graph.from_edges([*EDGES, (1, 0), (2, 3), (3, 3)], devices=5)
    assert graph.offsets.tolist() == [0, 2, 4, 7, 8, 8]
    assert graph.neighbours.tolist() == [1, 2, 0, 2, 0, 1, 3, 2]
    assert (graph.devices, graph.edges) == (5, 4)
    assert graph.degrees.tolist() == [2, 2, 3, 1, 0]
    assert graph.edge_list().tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]
    assert (graph.dropped_self_loops, graph.dropped_duplicates) == (1, 2)


def test_isolated_devices_are_kept() -> None:
    graph = Graph.from_edges(np.empty((0, 2), dtype=np.int64), devices=3)
    assert (graph.devices, graph.edges) == (3, 0)


def test_without_a_number_of_devices_ids_are_remapped_and_remembered() -> None:
    graph = Graph.from_edges([(70, 9), (9, 1000)])
    assert graph.ids.tolist() == [9, 70, 1000]  # type: ignore[union-attr]
    assert graph.edge_list().tolist() == [[0, 1], [0, 2]]


def test_ids_in_any_order_name_the_rows_of_features_and_labels() -> None:
    graph = Graph.from_edges([(5, 3), (3, 8)], ids=[8, 5, 3], features=np.eye(3), labels=[0, 1, -1])
    assert graph.edge_list().tolist() == [[0, 2], [1, 2]]
    assert graph.ids.tolist() == [8, 5, 3]  # type: ignore[union-attr]


def test_ids_may_be_text() -> None:
    graph = Graph.from_edges([("bob", "ann"), ("bob", "cy")])
    assert graph.ids == ("ann", "bob", "cy")
    assert graph.edge_list().tolist() == [[0, 1], [1, 2]]


def test_both_directions_count_as_duplicates_only_when_they_are() -> None:
    both = [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert Graph.from_edges(both).dropped_duplicates == 2
    assert Graph.from_edges(both, both_directions=True).dropped_duplicates == 0
    assert Graph.from_edges(both[:3], both_directions=True).dropped_duplicates == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80))
def test_edge_list_and_degrees_are_those_of_networkx(rows: list[tuple[int, int]]) -> None:
    graph = Graph.from_edges(rows, devices=31)
    oracle = networkx.Graph(pair for pair in rows if pair[0] != pair[1])
    oracle.add_nodes_from(range(31))
    assert graph.degrees.tolist() == [oracle.degree[device] for device in range(31)]
    assert graph.edge_list().tolist() == sorted(sorted(edge) for edge in oracle.edges)
    again = Graph.from_edges(graph.edge_list(), devices=31)
    assert np.array_equal(again.neighbours, graph.neighbours)


@pytest.mark.parametrize("sparse", [False, True])
def test_nothing_in_a_graph_can_be_written(sparse: bool) -> None:
    features: Any = csr_array(np.eye(5)) if sparse else np.eye(5)
    graph = Graph.from_edges(EDGES, features=features, labels=[0, 1, 0, 1, -1])
    parts = [graph.offsets, graph.neighbours, graph.ids, graph.labels, graph.degrees]
    kept: Any = graph.features
    parts += [kept.data, kept.indices, kept.indptr] if sparse else [kept]
    for part in parts:
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 7  # type: ignore[index]
    with pytest.raises(AttributeError):
        graph.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("sparse", [False, True])
def test_the_arrays_of_the_caller_stay_writable_and_apart(sparse: bool) -> None:
    dense = np.eye(5, dtype=np.float32)
    features: Any = csr_array(dense) if sparse else dense
    labels = np.zeros(5, dtype=np.int64)
    graph = Graph.from_edges(EDGES, features=features, labels=labels)
    labels[0] = 1
    (features.data if sparse else features)[0] = 9
    assert graph.labels is not None
    assert graph.labels[0] == 0
    kept: Any = graph.features
    assert (kept.toarray() if sparse else kept).max() == 1
    # A read-only view of something writable is no protection either.
    base = np.zeros(5, dtype=np.int64)
    view = base[:]
    view.flags.writeable = False
    graph = Graph.from_edges(EDGES, labels=view)
    base[:] = 1
    assert graph.labels is not None
    assert graph.labels.max() == 0


def test_sparse_features_become_canonical_float32() -> None:
    repeated = csr_array(
        (np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3, 3])), shape=(2, 3)
    )
    kept: Any = Graph.from_edges([(0, 1)], features=repeated).features
    assert kept.dtype == np.float32
    assert kept.toarray().tolist() == [[2, 0, 4], [0, 0, 0]]
    assert kept.has_canonical_format


def test_the_repr_shows_counts_only() -> None:
    graph = Graph.from_edges(EDGES, features=np.eye(5), labels=[0, 1, 0, 1, -1], name="five")
    assert repr(graph) == "Graph(five: 5 devices, 4 edges, 5 features, 2 classes)"
    assert repr(Graph.from_edges([(0, 1)])) == "Graph(2 devices, 1 edges, no features, no labels)"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": []}, "the graph is empty"),
        ({"edges": [(0, 1)], "devices": -1}, "devices must be >= 0; got -1"),
        ({"edges": [(0, 1), (2, -4)]}, "row 1 holds -4"),
        ({"edges": [(0, 1), (5, 1)], "devices": 3}, r"row 1 holds 5, .* 0 … 2"),
        ({"edges": [(0, 1, 2)]}, r"\[rows, 2\]; got the shape \[1, 3\]"),
        ({"edges": [0, 1]}, r"got the shape \[2\]"),
        ({"edges": [(0.5, 1.0)]}, "integers or text"),
        ({"edges": [("a", "b")], "devices": 2}, "indices 0 … 1"),
        ({"edges": [(0, 9)], "ids": [0, 1]}, "'9' is not the id"),
        ({"edges": [("a", "z")], "ids": ["a", "b"]}, "'z' is not the id"),
        ({"edges": [(0, 1)], "ids": [1, 0, 1]}, "1 occurs twice"),
        ({"edges": [("a", "b")], "ids": ["a", "b", "a"]}, "'a' occurs twice"),
        ({"edges": [(0, 1)], "ids": [0, -1]}, "-1 is negative"),
        ({"edges": [(0, 1)], "ids": [0.5, 1]}, "a list of integers or text"),
        ({"edges": [(0, 1)], "features": np.zeros((2, 3)), "labels": [0]}, "features 2, labels 1"),
        ({"edges": [(0, 1)], "features": [[0], [np.nan]]}, "row 1, column 0 is nan"),
        ({"edges": [(0, 1)], "features": [[0, np.inf], [0, 0]]}, "row 0, column 1 is inf"),
        ({"edges": [(0, 1)], "features": [[0, 1e39], [0, 0]]}, r"row 0, column 1 is 1e\+39"),
        (
            {"edges": [(0, 1)], "features": csr_array(np.array([[0, 0], [0, np.nan]]))},
            "row 1, column 1",
        ),
        ({"edges": [(0, 1)], "features": np.zeros(2)}, r"\[2, width\]; got \[2\]"),
        ({"edges": [(0, 1)], "features": np.array(3.0)}, "got a single value"),
        ({"edges": [(0, 1)], "features": [["a"], ["b"]]}, "real numbers"),
        ({"edges": [(0, 1)], "labels": [0, -2]}, "row 1 is -2"),
        ({"edges": [(0, 1)], "labels": [0.5, 1.0]}, "row 0 is 0.5, no class"),
        ({"edges": [(0, 1)], "labels": [[0], [1]]}, r"got \[2, 1\]"),
        ({"edges": [(0, 1)], "labels": [0, 2], "classes": ["a", "b"]}, "class 2 has no name"),
    ],
)
def test_what_from_edges_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Graph.from_edges(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "neighbours", "message"),
    [
        ([0, 1, 1], [1], "if u lists v"),
        ([0, 1, 2], [0, 1], "each other device once"),
        ([0, 2, 4], [1, 1, 0, 0], "each other device once"),
        ([0, 2, 3, 4], [2, 1, 0, 0], "ascending"),
        ([0, 1, 3], [1, 0], "end at the number"),
        ([0, 3, 2], [1, 0], "not decrease"),
        ([0, 1, 2], [2, 0], "lie in 0 … 1"),
        ([[0]], [0], "a list of integers"),
        ([0.0, 0.0], [], "a list of integers"),
    ],
)
def test_neighbour_lists_that_are_none_are_refused(
    offsets: Any, neighbours: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Graph(
            offsets=np.array(offsets),
            neighbours=np.array(neighbours, dtype=np.int64),
            ids=np.arange(len(offsets) - 1),
        )


def test_ids_must_be_as_many_as_devices() -> None:
    with pytest.raises(InputError, match="2 ids for 1 devices"):
        Graph(offsets=np.zeros(2, int), neighbours=np.zeros(0, int), ids=np.arange(2))


def test_importing_graphs_is_light() -> None:
    heavy = "('torch', 'networkx', 'pandas', 'matplotlib', 'scipy')"
    check = f"import sys, lumos.graph; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_large_dense_features_of_mostly_zeros_are_stored_sparse() -> None:
    """Training is many times as fast (`python -m benchmarks.bench features --full`)."""
    draw = np.random.default_rng(0)
    few = (draw.random((1100, 1000)) < 0.02).astype(np.float64)
    wanted = Graph.from_edges([(0, 1)], features=csr_array(few))
    graph = Graph.from_edges([(0, 1)], features=few)
    assert fingerprint(graph) == fingerprint(wanted)  # so every run on them is the same
    assert facts_of(graph).sparse
    assert not facts_of(Graph.from_edges([(0, 1)], features=few[:1000])).sparse  # small
    many = draw.random((1100, 1000)) < 0.3
    assert not facts_of(Graph.from_edges([(0, 1)], features=many)).sparse
