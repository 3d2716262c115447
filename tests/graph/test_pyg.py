"""Graphs from PyTorch Geometric and to it, compared with its own functions."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.graph.round_trips import GRAPHS, assert_same, dense, made

from lumos.errors import InputError, UsageError
from lumos.graph import Graph
from lumos.graph.facts import fingerprint
from lumos.graph.sources import as_graph

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
    randomness = torch.Generator().manual_seed(1)
    arcs = torch.randint(0, 40, (2, 150), generator=randomness)
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
    with pytest.raises(InputError, match=r"2 → 1 has no counterpart .*`directed='symmetrise'`"):
        Graph.from_pyg(one_way)
    assert Graph.from_pyg(one_way, directed="symmetrise").edges == 2
    for name in ("edge_weight", "edge_attr"):
        weighted = data(BOTH, **{name: torch.ones(5)})
        with pytest.raises(InputError, match=rf"{name}: .*`weights='drop'`"):
            Graph.from_pyg(weighted)
        assert Graph.from_pyg(weighted, weights="drop").edges == 2
    several = data(BOTH, y=torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]]))
    with pytest.raises(InputError, match=r"several labels .*`multilabel='first'`"):
        Graph.from_pyg(several)
    labels = Graph.from_pyg(several, multilabel="first").labels
    assert labels is not None
    assert labels.tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (object(), "a PyG Data with edge_index or adj_t is needed; got object"),
        (geometric.data.Data(), "a PyG Data with edge_index"),
        (data([[0.5], [1.0]]), r"\[2, E\] integers"),
        (data([0, 1]), r"\[2, E\] integers"),
        (data([[0, -1], [-1, 0]], num_nodes=3), "holds -1"),
        (data(BOTH, x=torch.zeros(2, 2)), "there are 2 devices|differs"),
        (data(BOTH, x=torch.full((4, 2), torch.nan)), "row 0, column 0 is nan"),
        (data(BOTH, y=torch.rand(4)), r"y: row 0 is 0.\d+, no class: .*`label_bins=4`"),
        (data(BOTH, y=torch.zeros(3, dtype=torch.long), num_nodes=4), "labels 3"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(source)


@pytest.mark.parametrize("case", GRAPHS)
def test_there_and_back(case: str) -> None:
    graph = made(case)
    back = Graph.from_pyg(graph.to_pyg())
    assert_same(graph, back)
    assert type(back.features) is type(graph.features)


def test_the_demo_graph_there_and_back(sixty: Graph) -> None:
    back = Graph.from_pyg(sixty.to_pyg())
    assert_same(sixty, back)
    assert fingerprint(back) == fingerprint(sixty)


def test_what_pyg_is_given() -> None:
    given = made("everything").to_pyg()
    assert given.validate()
    assert given.is_undirected()
    assert given.has_isolated_nodes()
    assert not given.has_self_loops()
    assert given.edge_index.tolist() == [[0, 0, 1, 1, 2, 3], [1, 3, 0, 2, 1, 0]]
    assert (given.num_nodes, given.num_features) == (6, 2)
    assert given.y.tolist() == [2, -1, 0, 2, -1, 0]
    assert given.class_names == ["z", "a", "m"]
    assert (given.device_ids, given.name) == (list("zyxwvu"), "all of it")


@pytest.mark.parametrize("case", ["dense", "sparse"])
def test_a_layer_of_pyg_takes_it(case: str) -> None:
    torch.manual_seed(0)
    layer = geometric.nn.GCNConv(2, 3)
    given = made(case).to_pyg()
    expected = layer(torch.from_numpy(dense(made(case)).copy()), given.edge_index)
    assert torch.allclose(layer(given.x, given.edge_index), expected)


def test_a_copy_can_be_changed() -> None:
    graph = made("everything")
    given = graph.to_pyg()
    given.x[0, 0], given.y[0], given.edge_index[0, 0] = 99, 0, 5
    assert_same(graph, made("everything"))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("class_names", "abc", "class_names: a list of names is needed"),
        ("class_names", ["z", "a"], "class_names: class 2 of y has no name among 2"),
        ("device_ids", ["a", "b"], "device_ids: 2 ids for 6 devices"),
        ("device_ids", torch.tensor([1, 1, 2, 3, 4, 5]), "1 occurs twice"),
    ],
)
def test_names_that_do_not_fit(attribute: str, value: Any, message: str) -> None:
    source = made("everything").to_pyg()
    source[attribute] = value
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(source)


def test_without_pyg_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(UsageError, match="needs PyTorch Geometric; type: pip install"):
        made("structure").to_pyg()


class Collection(geometric.data.InMemoryDataset):  # type: ignore[misc, name-defined]
    """A PyG data set of given graphs."""

    def __init__(self, *graphs: Any) -> None:
        super().__init__()
        self.data, self.slices = self.collate(list(graphs))
        self.name = "mine"


def path() -> Any:
    return data([[0, 1, 1, 2], [1, 0, 2, 1]], x=torch.rand(3, 2), y=torch.tensor([0, 1, 1]))


def test_a_data_set_of_one_graph_is_that_graph() -> None:
    one = path()
    graph = as_graph(Collection(one))
    assert_same(replace(graph, name=""), Graph.from_pyg(one))
    assert graph.name == "mine"
    with pytest.raises(InputError, match=r"Collection has 2 graphs; pass one, as dataset\[0\]"):
        as_graph(Collection(one, path()))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of PyG's own tensor
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_the_sparse_form_of_edges(layout: Any) -> None:
    one = path()
    wanted = Graph.from_pyg(one)
    sparse = geometric.transforms.ToSparseTensor(layout=layout)(one)
    assert "edge_index" not in sparse
    assert_same(as_graph(sparse), wanted)
    sparse.adj_t = sparse.adj_t * 0.5
    with pytest.raises(InputError, match=r"adj_t: the entry 0.5 is a weight.*`weights='drop'`"):
        as_graph(sparse)
    assert as_graph(sparse, weights="drop").edges == 2


def test_the_sparse_form_of_torch_sparse() -> None:
    class SparseTensor:
        """As `torch_sparse` has it, which is not installed here: rows are receivers."""

        def coo(self) -> tuple[Any, Any, None]:
            return torch.tensor([1, 2]), torch.tensor([0, 1]), None

    sparse = geometric.data.Data(x=torch.eye(3), adj_t=SparseTensor())
    with pytest.raises(InputError, match="0 → 1 has no counterpart 1 → 0"):
        as_graph(sparse)
    assert as_graph(sparse, directed="symmetrise").edge_list().tolist() == [[0, 1], [1, 2]]
