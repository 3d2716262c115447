"""Public bounds: every device maps its own values, and nothing about them is computed."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.graph.round_trips import EDGES, dense
from tests.graph.writing import write_list

from lumos.errors import InputError, UsageError
from lumos.graph import Graph, load
from lumos.graph.features import BOUNDS_NOTE, bounded
from lumos.graph.io import ReadOptions

X = np.array([[0, 50], [10, 100], [20, 150], [-5, 0]], np.float32)
LOW, HIGH = [0.0, 50.0], [20.0, 150.0]
WANTED = [[0, 0], [0.5, 0.5], [1, 1], [0, 0]]


@given(
    st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(-9, 8), st.floats(0.5, 9)), min_size=3, max_size=3),
)
def test_the_formula(rows: list[list[float]], sides: list[tuple[float, float]]) -> None:
    low = np.array([a for a, _ in sides])
    high = low + np.array([width for _, width in sides])
    oracle = [
        [min(max((x - a) / (b - a), 0), 1) for x, a, b in zip(row, low, high, strict=True)]
        for row in rows
    ]
    for features in (np.array(rows, np.float32), csr_array(np.array(rows, np.float32))):
        assert np.allclose(dense_of(bounded(features, low, high)), oracle, atol=1e-6)
        zero = bounded(features, np.zeros(3), high - low)
        wanted = np.clip(np.array(rows) / (high - low), 0, 1)
        assert np.allclose(dense_of(zero), wanted, atol=1e-6)
        assert isinstance(zero, csr_array) == isinstance(features, csr_array)


def dense_of(features: Any) -> Any:
    return features.toarray() if isinstance(features, csr_array) else features


def test_a_graph_with_bounds() -> None:
    graph = Graph.from_edges(EDGES[:2], features=X, labels=[0, 1, 0, 1])
    mapped = graph.with_bounds(LOW, HIGH)
    assert dense(mapped).tolist() == WANTED
    assert mapped.notes == (BOUNDS_NOTE,)
    assert np.array_equal(dense(graph), X)
    assert mapped.labels is not None
    scalar = graph.with_bounds(0, 100)
    assert np.allclose(dense(scalar), np.clip(X / 100, 0, 1))
    for low, high in ((0, 0), (1, 0), (0, np.inf), ([0, 0, 0], 1), ("a", 1), (np.nan, 1)):
        with pytest.raises(UsageError, match="bounds: "):
            graph.with_bounds(low, high)
    with pytest.raises(UsageError, match="no features"):
        Graph.from_edges(EDGES).with_bounds(0, 1)


def readers(folder: Path) -> dict[str, Any]:
    torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
    table = "id,a,b\n" + "\n".join(f"{row},{a:g},{b:g}" for row, (a, b) in enumerate(X.tolist()))
    path = write_list(folder, "0,1\n1,2\n2,3\n", features_csv=table)
    np.savez(folder / "g.npz", edges=[[0, 1], [1, 2], [2, 3]], x=X)
    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = geometric.data.Data(edge_index=index, x=torch.from_numpy(X))
    nodes = networkx.path_graph(4)
    networkx.set_node_attributes(nodes, dict(enumerate(X.tolist())), "x")
    return {
        "csv": lambda **options: load(path, **options),
        "npz": lambda **options: load(folder / "g.npz", **options),
        "pyg": lambda **options: Graph.from_pyg(data, **options),
        "networkx": lambda **options: Graph.from_networkx(nodes, **options),
    }


def test_bounds_for_every_source(tmp_path: Path) -> None:
    file = tmp_path / "bounds.csv"
    for read in readers(tmp_path).values():
        for text in (
            "0,20\n50,150\n",
            "low,high\n0,20\n50,150\n",
            "name,low,high\na,0,20\nb,50,150",
        ):
            file.write_text(text)
            graph = read(feature_bounds=file)
            assert dense(graph).tolist() == WANTED
            assert graph.notes[-1] == BOUNDS_NOTE
        for scalars in ("0,100", (0, 100), "0, 1e2"):
            assert np.allclose(dense(read(feature_bounds=scalars)), np.clip(X / 100, 0, 1))
        file.write_text("0,20\n")
        with pytest.raises(InputError, match=r"bounds.csv: 1 rows of bounds for 2 columns"):
            read(feature_bounds=str(file))
        file.write_text("0,20\n7,x\n")
        with pytest.raises(InputError, match=r"bounds.csv, line 2: two numbers are needed"):
            read(feature_bounds=file)
        with pytest.raises(UsageError, match=r"20 to 0 .* are no bounds"):
            read(feature_bounds="20,0")
        with pytest.raises(InputError, match=r"no such file"):
            read(feature_bounds=tmp_path / "nowhere.csv")


def test_categories_need_no_bounds(tmp_path: Path) -> None:
    for name, read in readers(tmp_path).items():
        column = 2 if name == "csv" else 0
        graph = read(feature_bounds="50,150", categorical=[column])
        assert dense(graph)[:, :4].tolist() == [
            [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]
        ]  # fmt: skip
        assert dense(graph)[:, 4].tolist() == [0, 0.5, 1, 0]
        (tmp_path / "bounds.csv").write_text("0,1\n50,150\n")
        same = read(feature_bounds=tmp_path / "bounds.csv", categorical=[column])
        assert dense(same).tolist() == dense(graph).tolist()


def test_infinity_is_not_clipped(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edges=[[0, 1]], x=np.array([[np.inf], [0]]))
    with pytest.raises(InputError, match="row 0, column 0 is inf"):
        load(tmp_path / "g.npz", feature_bounds="0,1")


def test_the_demo_graph_has_bounds_already() -> None:
    graph, same = load("demo:60"), load("demo:60", feature_bounds="0,1")
    assert np.array_equal(dense(graph), dense(same))


def test_a_wide_sparse_matrix_is_not_filled() -> None:
    wide = csr_array((np.ones(1, np.float32), ([0], [999_999])), shape=(3000, 1_000_000))
    with pytest.raises(InputError, match="use 0 as the lower bound"):
        bounded(wide, np.full(1_000_000, -1.0), np.ones(1_000_000))


def test_a_file_is_found_again_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ReadOptions(feature_bounds="b.csv").feature_bounds == str(tmp_path / "b.csv")
    assert ReadOptions(feature_bounds="-1,1").feature_bounds == "-1,1"
