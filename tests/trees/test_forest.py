"""Trees as arrays: against trees built one by one with NetworkX, and figure 2 of the paper."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumos.errors import UsageError
from lumos.trees.forest import VIRTUAL, Forest


def forest_of(kept: list[list[int]], *, virtual_nodes: bool = True) -> Forest:
    """Device i keeps kept[i]."""
    owner = np.repeat(np.arange(len(kept)), [len(neighbours) for neighbours in kept])
    neighbour = np.array([v for neighbours in kept for v in neighbours], np.int64)
    return Forest(
        devices=np.arange(len(kept)),
        owner=owner.astype(np.int64),
        neighbour=neighbour,
        virtual_nodes=virtual_nodes,
    )


def as_networkx(forest: Forest) -> nx.Graph:
    graph = nx.Graph()
    vertex, tree = forest.vertex(), forest.tree()
    for node in range(forest.nodes):
        graph.add_node(node, vertex=int(vertex[node]), tree=int(tree[node]))
    graph.add_edges_from(forest.edge_index().T.tolist())
    return graph


def one_by_one(kept: list[list[int]]) -> nx.Graph:
    """The paper's construction, a device at a time."""
    graph = nx.Graph()
    for device, neighbours in enumerate(kept):
        if not neighbours:
            graph.add_node((device, "lone"), vertex=device, tree=device)
            continue
        graph.add_node((device, "root"), vertex=VIRTUAL, tree=device)
        for place, neighbour in enumerate(neighbours):
            parent = (device, "parent", place)
            graph.add_node(parent, vertex=VIRTUAL, tree=device)
            graph.add_edge(parent, (device, "root"))
            for name, vertex in (("own", device), ("other", neighbour)):
                graph.add_node((device, name, place), vertex=vertex, tree=device)
                graph.add_edge((device, name, place), parent)
    return graph


@given(st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), min_size=1, max_size=6))
def test_equals_the_construction_one_by_one(kept: list[list[int]]) -> None:
    ours, theirs = as_networkx(forest_of(kept)), one_by_one(kept)
    assert nx.is_isomorphic(
        ours, theirs, node_match=lambda a, b: (a["vertex"], a["tree"]) == (b["vertex"], b["tree"])
    )
    index = forest_of(kept).edge_index()
    assert index.shape[1] == 2 * theirs.number_of_edges()  # each edge once in each direction


def test_figure_two() -> None:
    forest = forest_of([[], [2, 3, 4, 5], [], [], [], []]).of(1)
    graph = as_networkx(forest)
    assert nx.is_tree(graph)
    assert forest.nodes == 4 * 3 + 1
    root = next(node for node, degree in graph.degree() if degree == 4)
    assert graph.nodes[root]["vertex"] == VIRTUAL
    for parent in graph[root]:
        leaves = [graph.nodes[node]["vertex"] for node in graph[parent] if node != root]
        assert leaves[0] == 1 or leaves[1] == 1
        assert len(leaves) == 2


@given(st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), min_size=1, max_size=6))
def test_the_star_joins_a_device_to_whom_it_keeps(kept: list[list[int]]) -> None:
    forest = forest_of(kept, virtual_nodes=False)
    vertex = forest.vertex()
    start, end = vertex[forest.edge_index()[:, : forest.branches]]
    pairs = list(zip(end.tolist(), start.tolist(), strict=True))
    assert pairs == [(u, v) for u, neighbours in enumerate(kept) for v in neighbours]
    assert forest.nodes == len(kept) + len(pairs)


def test_one_device_and_an_unknown_one() -> None:
    forest = forest_of([[1], [0, 2], []])
    assert forest.of(2).nodes == 1
    assert forest.of(2).edge_index().shape == (2, 0)
    assert forest.of(1).neighbour.tolist() == [0, 2]
    with pytest.raises(UsageError, match="device 7 has no tree here"):
        forest.of(7)


def test_as_pyg_data() -> None:
    pytest.importorskip("torch_geometric")
    data = forest_of([[1], [0, 2], []]).to_pyg()
    data.validate()
    assert data.num_nodes == 3 * 3 + 3
    assert not data.has_isolated_nodes() or data.num_nodes > 1
    assert data.is_undirected()
