"""An npz with a compressed adjacency matrix, as gnn-benchmark distributes graphs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.graph.round_trips import dense

from lumos.errors import InputError
from lumos.graph import load

SYMMETRIC = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
ATTRIBUTES = np.array([[0, 2.5, 0], [1, 0, 0], [0, 0, 0], [0, 0, 3]], np.float32)


def parts(prefix: str, matrix: Any) -> dict[str, Any]:
    rows = csr_array(matrix)
    names = ("data", "indices", "indptr", "shape")
    values = (rows.data, rows.indices, rows.indptr, np.array(rows.shape))
    return {f"{prefix}{name}": value for name, value in zip(names, values, strict=True)}


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path / "mine.npz", **arrays)
    return path / "mine.npz"


@pytest.mark.parametrize("prefix", ["adj_", "adj_matrix."])
@pytest.mark.parametrize("form", ["symmetric", "above", "below"])
def test_the_matrix_is_the_graph(tmp_path: Path, prefix: str, form: str) -> None:
    matrix = {"symmetric": SYMMETRIC, "above": np.triu(SYMMETRIC), "below": np.tril(SYMMETRIC)}
    attributes = parts(prefix.replace("adj", "attr"), ATTRIBUTES)
    arrays = parts(prefix, matrix[form].astype(np.float32))
    graph = load(write(tmp_path, **arrays, **attributes, labels=[1, 0, -1, 1]))
    assert graph.edge_list().tolist() == [[0, 1], [0, 2]]
    assert (graph.devices, graph.dropped_self_loops, graph.dropped_duplicates) == (4, 1, 0)
    assert np.array_equal(dense(graph), ATTRIBUTES)
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.classes) == ([1, 0, -1, 1], ("0", "1"))
    assert graph.notes == ()


def test_dense_attributes_and_text_classes(tmp_path: Path) -> None:
    arrays = parts("adj_", SYMMETRIC)
    names = np.array(["zoo", "bar"])
    path = write(tmp_path, **arrays, attr_matrix=ATTRIBUTES, labels=[1, 0, 1, 1], class_names=names)
    graph = load(path)
    assert np.array_equal(graph.features, ATTRIBUTES)  # type: ignore[arg-type]
    assert graph.classes == ("zoo", "bar")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, 1, 1]


def test_names_as_objects_are_skipped_and_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("it was unpickled",))

    names = np.array([Trap(), "b", "c", "d"], dtype=object)
    arrays = parts("adj_", SYMMETRIC)
    graph = load(
        write(tmp_path, **arrays, labels=[0, 1, 0, 1], node_names=names, class_names=names)
    )
    assert graph.classes == ("0", "1")
    with pytest.raises(InputError, match=r"mine.npz: .*'labels' holds some"):
        load(write(tmp_path, **arrays, labels=names))


def test_labels_in_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        **parts("adj_", SYMMETRIC),
        **parts("labels_", np.array([[0, 1], [1, 1], [0, 0], [1, 0]])),
    )
    with pytest.raises(InputError, match=r"labels: 2 columns .*`multilabel='first'`"):
        load(path)
    graph = load(path, multilabel="first")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1, 0]
    chosen = load(path, label_column=1)
    assert chosen.labels is not None
    assert chosen.labels.tolist() == [1, 1, 0, 0]


def test_a_directed_matrix_follows_the_option(tmp_path: Path) -> None:
    directed = SYMMETRIC.copy()
    directed[0, 1], directed[3, 1], directed[1, 2] = 0, 1, 1
    path = write(tmp_path, **parts("adj_", directed))
    with pytest.raises(
        InputError, match=r"adjacency: 1 → 0 has no counter.*`directed='symmetrise'`"
    ):
        load(path)
    graph = load(path, directed="symmetrise")
    assert graph.edge_list().tolist() == [[0, 1], [0, 2], [1, 2], [1, 3]]


def test_entries_other_than_one_are_weights(tmp_path: Path) -> None:
    path = write(tmp_path, **parts("adj_", SYMMETRIC * 2.5))
    with pytest.raises(InputError, match=r"adjacency: the entry 2.5 is a weight.*`weights='drop'`"):
        load(path)
    assert load(path, weights="drop").edges == 2


def test_stored_zeros_are_no_edges(tmp_path: Path) -> None:
    arrays = parts("adj_", np.array([[0, 7, 1], [7, 0, 0], [1, 0, 0]]))
    arrays["adj_data"] = np.where(arrays["adj_data"] == 7, 0, 1)
    assert load(write(tmp_path, **arrays)).edge_list().tolist() == [[0, 2]]


def changed(**arrays: Any) -> dict[str, Any]:
    return {**parts("adj_", SYMMETRIC), **arrays}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": (changed(adj_shape=[4, 5]), "adjacency: it is 4 x 5; it must be square"),
    "far": (changed(adj_shape=[4, 10**12]), "adjacency: .*far beyond the others"),
    "index": (changed(adj_indices=[9, 2, 0, 0, 2]), "it cannot be read"),
    "offsets": (changed(adj_indptr=[0, 9]), "it cannot be read"),
    "part": ({k: v for k, v in changed().items() if "shape" not in k}, "no array 'adj_shape'"),
    "text": (changed(adj_data=np.array(["a"] * 5)), "adjacency: numbers are needed|cannot be read"),
    "attributes": (
        changed(**parts("attr_", ATTRIBUTES) | {"attr_shape": [4, 2**40]}),
        "attributes: .*far beyond the others",
    ),
    "rows": (changed(**parts("attr_", ATTRIBUTES[:3])), "the number of devices differs"),
    "labels": (changed(labels=[0, 1]), "the number of devices differs"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, case: str) -> None:
    arrays, message = WRONG[case]
    path = write(tmp_path, **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_label_arrays_of_other_names_can_be_chosen(tmp_path: Path) -> None:
    arrays = {**parts("adj_", SYMMETRIC), "kind": ["a", "b", "a", "a"], "age": [1.5, 2, 3, 4]}
    path = write(tmp_path, **arrays)
    graph = load(path)
    assert graph.labels is None
    assert "labels absent: `label_column` may name one of the arrays kind, age" in graph.notes
    assert load(path, label_column="kind").classes == ("a", "b")
    assert load(path, label_column="age", label_bins=2).classes == ("< 3", "≥ 3")
    with pytest.raises(InputError, match=r"age: row 0 is 1.5, no class.*\(it has: kind\)"):
        load(path, label_column="age")
    with pytest.raises(InputError, match=r"there is no array 'size'; `label_column` .*kind, age"):
        load(path, label_column="size")
