"""Edge lists with features and labels beside them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz
from tests.graph.writing import write_list

from lumos.errors import InputError
from lumos.graph import load
from lumos.training.problem import features_of

EDGES = "source,target\n10,20\n20,30\n30,10\n"
LABELS = "id,label\n10,b\n20,\n30,a\n40,-1\n"


def packed(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def dense(graph: Any) -> list[list[float]]:
    features = graph.features
    return (features if isinstance(features, np.ndarray) else features.toarray()).tolist()


def test_a_bare_list_holds_the_devices_that_it_names(tmp_path: Path) -> None:
    graph = load(write_list(tmp_path, EDGES))
    assert graph.name == "graph"
    assert graph.ids.tolist() == [10, 20, 30]  # type: ignore[union-attr]
    assert graph.edge_list().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.notes == ("features absent: there is no graph.features.csv, .json or .npz",)


@pytest.mark.parametrize(
    "edges",
    [
        "10,20\n20,30\n30,10\n",
        "10\t20\n20\t30\n30\t10",
        "10;20\n20;30\n30;10",
        "10 20\n20  30\n30 10 \n",
        "# a comment\n\nfrom,to\n 10 , 20\n20,30\n# another\n30,10\n",
        '"a","b"\n"10","20"\n"20","30"\n"30","10"\n',
        "10,20,\n20,30,\n30,10,\n",
        "# Undirected graph\n10,20\n20,30\n30,10\n",
        "source,target,type\n10,20,Undirected\n20,30,Undirected\n30,10,Undirected\n",
        "10,20\r20,30\r30,10\r",
    ],
)
def test_forms_of_the_same_list(tmp_path: Path, edges: str) -> None:
    graph = load(write_list(tmp_path, edges))
    assert graph.ids.tolist() == [10, 20, 30]  # type: ignore[union-attr]
    assert graph.edges == 3


def test_rows_repeated_in_either_direction_are_duplicates(tmp_path: Path) -> None:
    graph = load(write_list(tmp_path, EDGES + "20,10\n10,20\n30,30\n"))
    assert (graph.edges, graph.dropped_duplicates, graph.dropped_self_loops) == (3, 2, 1)


def test_labels_bring_isolated_devices_and_unknown_classes(tmp_path: Path) -> None:
    graph = load(write_list(tmp_path, EDGES, labels_csv=LABELS))
    assert graph.ids.tolist() == [10, 20, 30, 40]  # type: ignore[union-attr]
    assert graph.degrees.tolist() == [2, 2, 2, 0]
    assert graph.classes == ("a", "b")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, 0, -1]


def test_ids_that_are_names(tmp_path: Path) -> None:
    graph = load(
        write_list(
            tmp_path,
            "source,target\nbob,ann\nann,Øyvind\n",
            labels_csv="id,label\nann,x\nbob,y\nØyvind,x\n",
            features_json='{"ann": [0], "bob": [1], "Øyvind": []}',
        )
    )
    assert graph.ids == ("ann", "bob", "Øyvind")
    assert dense(graph) == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    "beside",
    [
        {"features_csv": "id,a,b\n30,5,6\n10,1,2\n20,3,4\n"},
        {"features_npz": packed(features=[[5, 6], [1, 2], [3, 4]], ids=[30, 10, 20])},
    ],
)
def test_features_are_joined_on_the_id(tmp_path: Path, beside: dict[str, Any]) -> None:
    path = write_list(tmp_path, EDGES, **beside)
    assert dense(load(path)) == [[1, 2], [3, 4], [5, 6]]
    bare = load(path, features=False)
    assert (bare.features, bare.notes) == (None, ("features absent: not asked for",))


def test_features_written_by_scipy(tmp_path: Path) -> None:
    path = write_list(tmp_path, "0,1\n1,2\n")
    matrix = csr_array(np.array([[0, 2.5], [0, 0], [1, 0]]))
    save_npz(tmp_path / "graph.features.npz", matrix)
    assert dense(load(path)) == matrix.toarray().tolist()


def test_without_labels_the_features_say_which_devices_there_are(tmp_path: Path) -> None:
    path = write_list(tmp_path, EDGES, features_json='{"10": [], "20": [2], "30": [], "99": []}')
    assert load(path).devices == 4
    assert load(path, features=False).devices == 4


def test_missing_labels_become_unknown_when_asked(tmp_path: Path) -> None:
    path = write_list(tmp_path, EDGES, labels_csv="id,label\n10,b\n50,a\n")
    with pytest.raises(InputError, match=r"graph.csv, line 2: the id '20' .*`missing_labels="):
        load(path)
    graph = load(path, missing_labels="unknown")
    assert graph.ids.tolist() == [10, 20, 30, 50]  # type: ignore[union-attr]
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, -1, 0]


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "mixed ids": ("1,2\n2,x\n", {}, "graph.csv, line 2: 'x' is not an integer"),
    "float id": ("1.5,2\n", {}, "graph.csv, line 1: '1.5' is not an integer"),
    "later float id": ("1,2\n2,3.0\n", {}, "graph.csv, line 2: '3.0' is not an integer"),
    "nan id": ("nan,2\n", {}, "graph.csv, line 1: 'nan' is not an integer"),
    "negative id": ("1,2\n# x\n3,-2\n", {}, "graph.csv, line 3: the id -2 is negative"),
    "weight": ("1,2,3\n", {}, "graph.csv, line 1: '3' in column 3 is a weight"),
    "directed": (
        "# SNAP\n# Directed graph\n1,2\n",
        {},
        "line 2: 'Directed graph': the graph is directed",
    ),
    "gephi": ("a,b,type\n1,2,Directed\n", {}, "line 2: 'Directed': the graph is directed"),
    "one column": ("1\n2\n", {}, "graph.csv, line 1: '1' is one id"),
    "header only": ("source,target\n", {}, "graph.csv, line 2: the file holds no rows"),
    "comments only": ("# nothing\n", {}, "graph.csv, line 1: the file holds no rows"),
    "multi": ("1,2\n", {"labels_csv": "1,a\n2,a\n1,b\n"}, "line 3: device 1: more than one label"),
    "label file": ("1,2\n", {"labels_csv": ""}, r"labels.csv, line 1: the file holds no rows"),
    "no label": ("1,2\n", {"labels_csv": "1,a\n2\n"}, r"labels.csv, line 2: 1 columns"),
    "nan": ("1,2\n", {"features_csv": "1,0\n2,nan\n"}, "features.csv, line 2: 'nan' in column 2"),
    "inf": ("1,2\n", {"features_csv": "1,0\n2,-inf\n"}, "line 2: '-inf' in column 2"),
    "large": ("1,2\n", {"features_csv": "1,0\n2,1e39\n"}, "line 2: '1e39' in column 2"),
    "text": ("1,2\n", {"features_csv": "1,0\n2,x\n"}, "line 2: 'x' in column 2 is not a number"),
    "empty": (
        "1,2\n",
        {"features_csv": "1,0\n2,\n"},
        "line 2: the cell in column 2 is empty; write",
    ),
    "ragged": ("1,2\n", {"features_csv": "1,0,1\n2,0\n"}, "line 2: 1 features, but the first row"),
    "none": ("1,2\n", {"features_csv": "1\n2\n"}, "line 1: 0 features"),
    "twice": ("1,2\n", {"features_csv": "1,0\n1,0\n"}, "line 2: device '1' occurs twice"),
    "no row": (
        "1,2\n",
        {"features_csv": "1,0\n", "labels_csv": "1,a\n2,b\n"},
        "features.csv: device '2' has no row",
    ),
    "unknown row": (
        "1,2\n",
        {"features_csv": "1,0\n2,0\n3,0\n", "labels_csv": "1,a\n2,b\n"},
        "features.csv, line 3: device '3' is not a device",
    ),
    "unknown edge": (
        "1,2\n1,3\n",
        {"features_csv": "1,0\n2,0\n"},
        r"graph.csv, line 2: the id '3'",
    ),
    "two files": ("1,2\n", {"features_csv": "1,0", "features_json": "{}"}, "keep one of them"),
    "npz rows": ("0,1\n", {"features_npz": packed(features=np.eye(2), ids=[1])}, "one id per row"),
    "npz ids": (
        "0,1\n",
        {"features_npz": packed(features=np.eye(2), ids=["a", "b"])},
        "integers are needed",
    ),
    "npz twice": (
        "0,1\n",
        {"features_npz": packed(features=np.eye(2), ids=[1, 1])},
        "1 occurs twice",
    ),
    "npz nan": (
        "0,1\n",
        {"features_npz": packed(features=[[0], [np.nan]])},
        "row 1, column 0 is nan",
    ),
    "npz name": ("0,1\n", {"features_npz": packed(x=[[0], [1]])}, "there is no array 'features'"),
    "npz junk": ("0,1\n", {"features_npz": b"junk"}, "features.npz: it cannot be read"),
    "npz gap": (
        "0,1\n",
        {"features_npz": packed(features=[[0]]), "labels_csv": "0,a\n1,b\n"},
        "features.npz: device '1' has no row",
    ),
    "npz unknown": (
        "0,1\n",
        {"features_npz": packed(features=np.eye(3)), "labels_csv": "0,a\n1,b\n"},
        "features.npz: ids: device '2' is not a device",
    ),
    "word range": ("0,1\n", {"features_json": f'{{"0": [{2**40}]}}'}, "is not in 0 … 2147483646"),
    "long cell": (f"0,1\n1,{'2' * 200_000}\n", {}, "graph.csv, line 2: it is not a table row"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, case: str) -> None:
    edges, beside, message = WRONG[case]
    path = write_list(tmp_path, edges, **beside)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_each_conversion_can_be_asked_for(tmp_path: Path) -> None:
    assert load(write_list(tmp_path / "w", "1,2,0.5\n2,3,9\n"), weights="drop").edges == 2
    path = write_list(tmp_path / "d", "a,b,type\n1,2,Directed\n2,1,directed\n")
    assert load(path, directed="symmetrise").edges == 1
    path = write_list(tmp_path / "m", "1,2\n", labels_csv="1,b\n2,a\n1,c\n")
    graph = load(path, multilabel="first")
    assert graph.classes == ("a", "b")


def test_the_fast_and_the_precise_reader_agree(tmp_path: Path) -> None:
    randomness = np.random.default_rng(3)
    pairs = randomness.integers(0, 200, size=(1000, 2))
    plain = "\n".join(f"{u},{v}" for u, v in pairs)
    fast = load(write_list(tmp_path / "fast", plain))
    # Quotes make the fast reader give up.
    slow = load(write_list(tmp_path / "slow", plain.replace("\n", "\n#\n") + '\n"0","0"'))
    assert np.array_equal(fast.neighbours, slow.neighbours)
    assert slow.dropped_self_loops == fast.dropped_self_loops + 1


@pytest.mark.parametrize(
    ("edges", "labels", "features"),
    [
        ("edges.csv", "labels.csv", "features.csv"),
        ("shop_edges.csv", "shop_labels.csv", "shop_features.csv"),
        ("shop.csv", "shop_labels.csv", "shop-features.csv"),
        ("shop.edge_list.tsv", "shop.labels.csv", "shop.features.csv"),
    ],
)
def test_files_beside_are_found_as_people_name_them(
    tmp_path: Path, edges: str, labels: str, features: str
) -> None:
    """The finding: `edges.csv`, `labels.csv`, `features.csv` were "no features"."""
    mark = "\t" if edges.endswith("tsv") else ","
    (tmp_path / edges).write_text(f"source{mark}target\n0{mark}1\n1{mark}2\n")
    (tmp_path / labels).write_text("id,label\n0,a\n1,b\n2,a\n")
    (tmp_path / features).write_text("id,x\n0,0.5\n1,1.5\n2,3\n")
    graph = load(tmp_path / edges)
    assert graph.classes == ("a", "b")
    assert graph.feature_count == 1
    if edges != "shop.csv":  # a folder is asked for its edge list by name
        whole = load(tmp_path)
        assert (whole.devices, whole.edges, whole.name) == (3, 2, tmp_path.name)


def test_a_graph_without_features_says_which_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "shop.csv").write_text("source,target\n0,1\n1,2\n")
    with pytest.raises(InputError, match=r"there is no shop\.features\.csv, \.json or \.npz"):
        features_of(load(tmp_path / "shop.csv"))


NODES = "id,age,label,city\n0,30,a,Oslo\n1,40,b,Rome\n2,50,,Oslo\n3,60,a,Rome\n"


@pytest.mark.parametrize(
    ("edges", "nodes"), [("edges.csv", "nodes.csv"), ("shop.csv", "shop_nodes.csv")]
)
@pytest.mark.parametrize("city", ["city", "4"])
def test_labels_and_features_in_one_table(
    tmp_path: Path, edges: str, nodes: str, city: str
) -> None:
    """The finding: a folder with `nodes.csv` was read without labels and features, silently."""
    (tmp_path / edges).write_text("source,target\n0,1\n1,2\n")
    (tmp_path / nodes).write_text(NODES)
    with pytest.raises(InputError, match=r"nodes.csv, line 2: 'Oslo' in column 4 .*`categorical="):
        load(tmp_path / edges)
    graph = load(tmp_path / edges, categorical=city)
    assert graph.devices == 4
    assert graph.labels is not None
    assert graph.classes == ("a", "b")
    assert graph.labels.tolist() == [0, 1, -1, 0]
    features: Any = graph.features
    assert features.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0], [60, 0, 1]]
    links = load(tmp_path / edges, categorical="city,label", label_column="none")
    assert (links.labels, links.feature_count) == (None, 5)
    if edges == "edges.csv":
        assert load(tmp_path, categorical=city).feature_count == 3
    (tmp_path / nodes).write_text("id,label\n0,a\n1,b\n2,a\n")
    only = load(tmp_path / edges)
    assert only.features is None
    assert only.notes == (f"features absent: {nodes} has no column beside id and label",)
    (tmp_path / nodes.replace("nodes", "labels")).write_text("id,label\n0,a\n1,b\n2,a\n")
    with pytest.raises(InputError, match=rf"{nodes} holds labels .*labels.csv; keep one of them"):
        load(tmp_path / edges)
    (tmp_path / nodes.replace("nodes", "labels")).unlink()
    (tmp_path / nodes).write_text("id,age,team\n0,1,a\n1,2,b\n2,3,a\n")
    with pytest.raises(InputError, match=r"nodes.csv, line 1: which column is the label\?"):
        load(tmp_path / edges)
