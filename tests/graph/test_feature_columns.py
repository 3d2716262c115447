"""Columns of categories become one-hot, from whatever source they come."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.graph.round_trips import dense
from tests.graph.writing import write_list

from lumos.errors import InputError, UsageError
from lumos.graph import Graph, load

EDGES = "0,1\n1,2\n2,3\n"
CSV = "id,age,color,size\n0,30,red,1.5\n1,40,blue,2\n2,50,red,2.5\n3,60,,3\n"
# Categories are sorted; the device without one has none of them.
WANTED = [[30, 0, 1, 1.5], [40, 1, 0, 2], [50, 0, 1, 2.5], [60, 0, 0, 3]]


@pytest.mark.parametrize("column", ["color", "Color", 3, ["color"], [3]])
def test_a_column_of_text_becomes_one_hot(tmp_path: Path, column: Any) -> None:
    path = write_list(tmp_path, EDGES, features_csv=CSV)
    graph = load(path, categorical=column)
    assert dense(graph).tolist() == WANTED
    assert graph.notes == (
        "features: column 'color' is one-hot, its 2 categories are public: blue, red",
    )


def test_text_names_the_remedy(tmp_path: Path) -> None:
    path = write_list(tmp_path, EDGES, features_csv=CSV)
    with pytest.raises(InputError, match=r"'red' in column 3 is not .*`categorical='color'`"):
        load(path)
    path = write_list(tmp_path / "bare", EDGES, features_csv="0,1,a\n1,2,b\n2,3,a\n3,4,a\n")
    with pytest.raises(InputError, match=r"'a' in column 3 .*`categorical=3`"):
        load(path)
    assert load(path, categorical=3).feature_count == 3


@pytest.mark.parametrize("column", ["colour", 1, 5, 0])
def test_a_column_that_is_not_there_lists_the_others(tmp_path: Path, column: Any) -> None:
    path = write_list(tmp_path, EDGES, features_csv=CSV)
    with pytest.raises(UsageError, match=rf"no column '{column}' for `categorical` .*age, color"):
        load(path, categorical=column)


def test_values_that_hardly_repeat_are_no_categories(tmp_path: Path) -> None:
    ring = [(device, (device + 1) % 40) for device in range(40)]
    np.savez(tmp_path / "g.npz", edges=ring, features=np.arange(80).reshape(40, 2))
    with pytest.raises(InputError, match=r"column 1: 40 different values on 40 devices are no cat"):
        load(tmp_path / "g.npz", categorical=1)


@pytest.mark.parametrize("sparse", [False, True])
def test_arrays_count_from_zero(tmp_path: Path, sparse: bool) -> None:
    torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
    x = np.array([[1, 7, 2], [2, 0, 0], [3, 9, 0], [4, 7, 4]], np.float32)
    wanted = [[1, 0, 1, 0, 2], [2, 1, 0, 0, 0], [3, 0, 0, 1, 0], [4, 0, 1, 0, 4]]
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    tensor = torch.from_numpy(x)
    data = geometric.data.Data(edge_index=index, x=tensor.to_sparse() if sparse else tensor)
    for graph in (Graph.from_pyg(data, categorical=[1]), Graph.from_pyg(data, categorical="1")):
        assert dense(graph).tolist() == wanted
        assert isinstance(graph.features, csr_array) == sparse
        assert graph.notes[0].endswith("column 1 is one-hot, its 3 categories are public: 0, 7, 9")
    np.savez(tmp_path / "g.npz", edges=[[0, 1], [1, 2]], x=x)
    assert dense(load(tmp_path / "g.npz", categorical="1")).tolist() == wanted
    every = load(tmp_path / "g.npz", categorical=[0, 1, 2])
    assert dense(every).sum(axis=1).tolist() == [3] * 4
    with pytest.raises(UsageError, match=r"no column '3' .*numbers 0 … 2"):
        Graph.from_pyg(data, categorical=[3])


def test_attributes_of_networkx() -> None:
    graph = networkx.path_graph(3)
    for node, (age, city, place) in enumerate([(30, "Oslo", [1, 2]), (40, "Rome", [3, 4]),
                                               (50, "Oslo", [5, 6])]):  # fmt: skip
        graph.nodes[node].update(age=age, city=city, place=place)
    made = Graph.from_networkx(graph, features=["age", "city", "place"], categorical=["city"])
    assert dense(made).tolist() == [[30, 1, 0, 1, 2], [40, 0, 1, 3, 4], [50, 1, 0, 5, 6]]
    one = Graph.from_networkx(graph, features="city", categorical="city")
    assert dense(one).tolist() == [[1, 0], [0, 1], [1, 0]]
    with pytest.raises(InputError, match=r"'city' is 'Oslo', no number; .*`categorical='city'`"):
        Graph.from_networkx(graph, features=["age", "city"])


def test_words_have_no_columns_by_name(tmp_path: Path) -> None:
    path = write_list(tmp_path, EDGES, features_json='{"0": [1], "1": [], "2": [0], "3": []}')
    with pytest.raises(UsageError, match="no column 'color'"):
        load(path, categorical="color")
    with pytest.raises(UsageError, match="words as features"):
        load("demo:60", categorical="color")


def test_many_categories_are_not_all_named(tmp_path: Path) -> None:
    rows = "\n".join(f"{device},c{device % 20}" for device in range(200))
    ring = "\n".join(f"{device},{(device + 1) % 200}" for device in range(200))
    graph = load(write_list(tmp_path, ring, features_csv=rows), categorical=2)
    assert graph.feature_count == 20
    assert graph.notes[0].endswith("c18, c19, and 8 more")
