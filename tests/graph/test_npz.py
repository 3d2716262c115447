"""One npz with the whole graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumos.errors import InputError
from lumos.graph import load

EDGES = np.array([[0, 1], [1, 2], [2, 0], [2, 2]])


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path / "mine.npz", **arrays)
    return path / "mine.npz"


@pytest.mark.parametrize("key", ["edges", "transposed", "edge_index"])
def test_edges_either_way_round(tmp_path: Path, key: str) -> None:
    stored = {"edges": EDGES, "transposed": EDGES.T, "edge_index": EDGES.T}[key]
    name = "edges" if key == "transposed" else key
    features = np.arange(8.0).reshape(4, 2)
    path = write(tmp_path, **{name: stored}, features=features, target=[3, 1, -1, 3])
    graph = load(path)
    assert graph.name == "mine"
    assert graph.edge_list().tolist() == [[0, 1], [0, 2], [1, 2]]
    assert (graph.devices, graph.dropped_self_loops) == (4, 1)
    assert np.array_equal(graph.features, features)  # type: ignore[arg-type]
    # A gap among the numbers of the classes closes; the names remember them.
    assert graph.classes == ("1", "3")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1, 1]


def test_both_directions_are_no_duplicates(tmp_path: Path) -> None:
    both = np.concatenate([EDGES[:3], EDGES[:3, ::-1], EDGES[:1]])
    assert load(write(tmp_path, edges=both)).dropped_duplicates == 1


def test_structure_alone_remaps_ids_and_says_that_features_are_absent(tmp_path: Path) -> None:
    graph = load(write(tmp_path, edges=[[5, 9]]))
    assert graph.ids.tolist() == [5, 9]  # type: ignore[union-attr]
    assert graph.notes == ("features absent: the npz has no array 'features'",)


def test_features_can_be_left_out_but_still_count_the_devices(tmp_path: Path) -> None:
    graph = load(write(tmp_path, edges=[[0, 1]], features=np.zeros((9, 2))), features=False)
    assert (graph.devices, graph.features) == (9, None)


def test_ids_and_text_labels(tmp_path: Path) -> None:
    path = write(tmp_path, edges=[[7, 3]], ids=[7, 3], y=["b", ""], x=[[1], [0]])
    graph = load(path)
    assert graph.ids.tolist() == [7, 3]  # type: ignore[union-attr]
    assert graph.classes == ("b",)
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, -1]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no edges": ({"features": np.eye(2)}, "there is no array 'edges' .*has: features"),
    "empty": ({"edges": np.empty((0, 2), int)}, "the graph is empty"),
    "only loops": ({"edges": [[1, 1]]}, "edges: there is no edge"),
    "shape": ({"edges": [[0, 1, 2]]}, r"edges: shape \[1, 3\]; \[E, 2\] is needed"),
    "flat": ({"edges": [0, 1]}, r"edges: shape \[2\]"),
    "floats": ({"edges": [[0.5, 1]]}, "edges: 0.5 is not an integer"),
    "negative": ({"edges": [[0, -1]]}, "row 0 holds -1"),
    "unknown": ({"edges": [[0, 5]], "target": [0, 1]}, "row 0 holds 5, but there are 2 devices"),
    "unknown id": ({"edges": [[0, 5]], "ids": [0, 1]}, "'5' is not the id"),
    "nan": ({"edges": [[0, 1]], "features": [[1], [np.nan]]}, "row 1, column 0 is nan"),
    "inf": ({"edges": [[0, 1]], "features": [[1], [np.inf]]}, "row 1, column 0 is inf"),
    "scalar": ({"edges": [[0, 1]], "features": 3.0}, "features: .*a single value"),
    "cube": ({"edges": [[0, 1]], "features": np.zeros((2, 2, 2))}, r"got \[2, 2, 2\]"),
    "complex": ({"edges": [[0, 1]], "features": np.eye(2) * 1j}, "real numbers"),
    "gap": ({"edges": [[0, 1]], "features": np.eye(2), "target": [0]}, "features 2, labels 1"),
    "inf label": ({"edges": [[0, 1]], "target": [0, np.inf]}, "target: row 1 is inf"),
    "float label": ({"edges": [[0, 1]], "target": [0.5, 1]}, "target: row 0 is 0.5"),
    "objects": ({"edges": np.array([[0, None]])}, "mine.npz: .*'edges' holds some; save numbers"),
    "weights": ({"edges": [[0, 1]], "edge_weight": [2]}, r"edge_weight: .*`weights='drop'`"),
    "directed": ({"edges": [[0, 1]], "directed": True}, r"directed is true.*`directed='symm"),
    "multi": ({"edges": [[0, 1]], "target": [[1, 1], [0, 1]]}, r"2 columns .*`multilabel='first'`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, case: str) -> None:
    arrays, message = WRONG[case]
    path = write(tmp_path, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_each_conversion_can_be_asked_for(tmp_path: Path) -> None:
    assert load(write(tmp_path, edges=[[0, 1]], weights=[2]), weights="drop").edges == 1
    path = write(tmp_path, edges=[[0, 1]], directed=True)
    assert load(path, directed="symmetrise").edges == 1
    path = write(tmp_path, edges=[[0, 1]], target=[[0, 1], [0, 0]])
    graph = load(path, multilabel="first")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, -1]


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk"])
def test_an_unreadable_npz_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mine.npz: it cannot be read"):
        load(tmp_path / "mine.npz")


def test_a_single_array_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", EDGES)
    (tmp_path / "a.npy").rename(tmp_path / "mine.npz")
    with pytest.raises(InputError, match="a single array"):
        load(tmp_path / "mine.npz")


def test_arrays_of_objects_are_named(tmp_path: Path) -> None:
    """The finding: an npz with an adjacency matrix of objects "has no array 'edges'"."""
    things = np.array([None, 1], dtype=object)
    graph = load(write(tmp_path, edges=[[0, 1]], about=things, class_names=things))
    skipped = "skipped, as Python objects are never unpickled: "
    assert graph.notes[-1] == f"{skipped}'about', 'class_names'"
    with pytest.raises(InputError, match=rf"no array 'edges' \(it has: x; {skipped}'adj', 'y1'\)"):
        load(write(tmp_path, x=np.eye(2), adj=things, y1=things))
    with pytest.raises(InputError, match=rf"'features' holds some \({skipped}'about'\); save num"):
        load(write(tmp_path, edges=[[0, 1]], features=things, about=things))
    with pytest.raises(InputError, match="'kind' holds some; save numbers or text"):
        load(write(tmp_path, edges=[[0, 1]], kind=things), label_column="kind")
