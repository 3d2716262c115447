"""Graphs from PyTorch Geometric, compared with its own functions."""

from typing import Any

import numpy as np
import pytest

from lumos.errors import InputError
from lumos.graph import Graph

torch = pytest.importorskip("torch")
geometric = pytest.importorskip("torch_geometric")


def data(arcs: Any, **more: Any) -> Any:
    return geometric.data.Data(edge_index=torch.tensor(arcs), **more)


BOTH = [[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]


def test_edges_features_and_labels_arrive() -> None:
    x = torch.arange(10.0).reshape(5, 2)
    source = data(BOTH, x=x, y=torch.tensor([0, 2, -1, 0, 2]))
    graph = Graph.from_pyg(source, name="small")
    assert graph.edge_list().tolist() == [[0, 1], [1, 2]]
    assert (graph.devices, graph.dropped_self_loops, graph.dropped_duplicates) == (5, 1, 0)
    assert np.array_equal(graph.features, x.numpy())  # type: ignore[arg-type]
    assert graph.classes == ("0", "2")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, -1, 0, 1]
    x[0, 0] = 99
    assert graph.features[0, 0] == 0  # type: ignore[index]


def test_the_neighbour_lists_are_those_of_to_undirected() -> None:
    coins = torch.Generator().manual_seed(1)
    arcs = torch.randint(0, 40, (2, 150), generator=coins)
    both = geometric.utils.to_undirected(arcs)
    oracle = geometric.utils.remove_self_loops(both)[0]
    graph = Graph.from_pyg(geometric.data.Data(edge_index=both, num_nodes=40))
    owner = np.repeat(np.arange(40), graph.degrees)
    assert np.array_equal(np.stack([owner, graph.neighbours]), oracle.numpy())


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_features_stay_sparse(layout: str) -> None:
    dense = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    x = dense.to_sparse_coo() if layout == "coo" else dense.to_sparse_csr()
    graph = Graph.from_pyg(data(BOTH, x=x))
    assert graph.features.toarray().tolist() == dense.tolist()  # type: ignore[union-attr]


def test_what_is_refused_can_be_converted() -> None:
    one_way = data([[0, 1, 2], [1, 0, 1]])
    with pytest.raises(InputError, match=r'2 → 1 has no counterpart .*directed="symmetrise"'):
        Graph.from_pyg(one_way)
    assert Graph.from_pyg(one_way, directed="symmetrise").edges == 2
    for name in ("edge_weight", "edge_attr"):
        weighted = data(BOTH, **{name: torch.ones(5)})
        with pytest.raises(InputError, match=rf'{name}: .*weights="drop"'):
            Graph.from_pyg(weighted)
        assert Graph.from_pyg(weighted, weights="drop").edges == 2
    several = data(BOTH, y=torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]]))
    with pytest.raises(InputError, match=r'several labels .*multilabel="first"'):
        Graph.from_pyg(several)
    labels = Graph.from_pyg(several, multilabel="first").labels
    assert labels is not None
    assert labels.tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (object(), "a PyG Data with edge_index is needed; got object"),
        (geometric.data.Data(), "a PyG Data with edge_index"),
        (data([[0.5], [1.0]]), r"\[2, E\] integers"),
        (data([0, 1]), r"\[2, E\] integers"),
        (data([[0, -1], [-1, 0]], num_nodes=3), "holds -1"),
        (data(BOTH, x=torch.zeros(2, 2)), "there are 2 devices|differs"),
        (data(BOTH, x=torch.full((4, 2), torch.nan)), "row 0, column 0 is nan"),
        (data(BOTH, y=torch.rand(4)), "labels are integers"),
        (data(BOTH, y=torch.zeros(3, dtype=torch.long), num_nodes=4), "labels 3"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(source)
