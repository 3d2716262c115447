"""Whatever a file holds: a graph, or one line; never a traceback."""

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.graph.writing import EDGES, TARGET, WORDS, write_snap, zip_folder

from lumos.errors import LumosError
from lumos.graph import load
from lumos.graph.graph import Graph

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

cell = st.sampled_from(
    [
        *("0", "1", "2", "3", "-1", "1.5", "nan", "inf", "", " ", "x", '"', "#", "1e9", "9" * 25),
        *("٣", "\U00020000", "\U0010ffff"),
    ]
)
table = st.lists(st.lists(cell, max_size=4).map(",".join), max_size=6).map("\n".join)
text = st.one_of(table, st.text(max_size=60), st.text('0123456789,.-\n\t; #"ab', max_size=60))
anything = st.one_of(text.map(str.encode), st.binary(max_size=60))
options = st.fixed_dictionaries(
    {},
    optional={
        "directed": st.just("symmetrise"),
        "weights": st.just("drop"),
        "multilabel": st.just("first"),
        "missing_labels": st.just("unknown"),
        "label_column": st.sampled_from(["1", "2", "0", "x", "target", "id", "facebook_id", "y"]),
        "label_bins": st.integers(2, 4),
        "masks": st.just("ignore"),
        "categorical": st.sampled_from(["1", "2", "x", "0,1", ","]),
        "feature_bounds": st.sampled_from(["0,1", "-1,1", "2,1", "nan,1", "nowhere"]),
        "header": st.sampled_from(["yes", "no"]),
    },
)


def survives(read: Callable[[], Graph]) -> None:
    """A graph that is one, or a LumosError of one line."""
    refused = None
    try:
        graph = read()
    except LumosError as error:
        refused = str(error)
    if refused is not None:
        assert refused
        assert "\n" not in refused
        return
    assert graph.edges >= 1
    assert graph.labels is None or len(graph.labels) == graph.devices


@quick
@given(
    anything,
    st.none() | anything,
    st.none() | anything,
    st.sampled_from(["csv", "json", "npz"]),
    options,
)
def test_edge_lists(
    edges: bytes, labels: bytes | None, features: bytes | None, kind: str, chosen: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.csv"
        path.write_bytes(edges)
        if labels is not None:
            (path.parent / "graph.labels.csv").write_bytes(labels)
        if features is not None:
            (path.parent / f"graph.features.{kind}").write_bytes(features)
        survives(lambda: load(path, **chosen))


json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
words = st.one_of(
    json_value.map(json.dumps),
    st.dictionaries(st.sampled_from(["0", "1", "2", "7", "x", "-1"]), json_value).map(json.dumps),
    st.text(max_size=30),
)


@quick
@given(text | st.just(EDGES), text | st.just(TARGET), words | st.just(json.dumps(WORDS)), options)
def test_snap_folders(edges: str, target: str, features: str, chosen: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {
            "edges": edges,
            "target": target,
            "words": features or " ",
        }
        path = write_snap(Path(folder) / "x")
        for name, suffix in (
            ("edges", "edges.csv"),
            ("target", "target.csv"),
            ("words", "features.json"),
        ):
            content = files[name].encode("utf-8", "surrogatepass")
            (path / f"musae_facebook_{suffix}").write_bytes(content)
        survives(lambda: load("facebook", data_dir=Path(folder) / "x", **chosen))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("archive")
    return zip_folder(write_snap(folder), folder / "a.zip", "f").read_bytes()


damage = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)


def damaged(content: bytes, changes: list[tuple[float, int]], kept: float) -> bytes:
    changed = bytearray(content)
    for place, value in changes:
        changed[int(place * len(changed))] = value
    return bytes(changed[: int(kept * len(changed)) + 1])


@quick
@given(damage, st.just(1.0) | st.floats(0, 1))
def test_damaged_zips(archive: bytes, changes: list[tuple[float, int]], kept: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facebook_large.zip"
        path.write_bytes(damaged(archive, changes, kept))
        survives(lambda: load("facebook", data_dir=folder))
        survives(lambda: load(path))


@quick
@given(damage, st.just(1.0) | st.floats(0, 1))
def test_damaged_npz(changes: list[tuple[float, int]], kept: float) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, edges=[[0, 1], [1, 2]], features=np.eye(3), target=[0, 1, 0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        path.write_bytes(damaged(buffer.getvalue(), changes, kept))
        survives(lambda: load(path))


array = st.sampled_from(
    [
        np.array([[0, 1], [1, 2]]),
        np.array([[0, 1, 2], [1, 2, 0]]),
        np.array([[0, 1], [1, 2]], dtype=np.uint64) + np.uint64(2**63),
        np.eye(3),
        np.full((3, 2), np.nan),
        np.array([0, 1, -1]),
        np.array([0, 1, 2]),
        np.array([0, 1, 2, 3]),
        np.array([3, 3]),
        np.array([1.0, np.nan, 0.5]),
        np.array([True, False, False]),
        np.array([None, "a", 3], dtype=object),
        np.array(["a", "b", ""]),
        np.array([b"a", b"b"]),
        np.array(5),
        np.array(True),
        np.empty((0, 2), dtype=np.int64),
        np.empty((3, 0)),
        np.array([["0", "1"]]),
        np.zeros(2, dtype=[("a", int)]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.zeros((2, 2, 2)),
        np.zeros((3, 1), dtype=bool),
        np.zeros((3, 2), dtype=complex),
    ]
)
names = (
    *("edges", "edge_index", "features", "x", "target", "y", "ids", "weights", "directed"),
    *("train_mask", "val_mask", "test_mask", "train_idx", "test_idx", "class_names"),
    *("adj_data", "adj_indices", "adj_indptr", "adj_shape", "attr_matrix"),
)


@quick
@given(st.dictionaries(st.sampled_from(names), array, max_size=8), options)
def test_npz_with_any_arrays(arrays: dict[str, Any], chosen: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        np.savez(path, **arrays)
        survives(lambda: load(path, **chosen))


@quick
@given(st.dictionaries(st.sampled_from(["features", "ids", "indptr", "data"]), array), options)
def test_feature_archives_with_any_arrays(arrays: dict[str, Any], chosen: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.csv"
        path.write_text("0,1\n1,2\n")
        (path.parent / "graph.labels.csv").write_text("0,a\n1,b\n2,\n")
        np.savez(path.parent / "graph.features.npz", **arrays)
        survives(lambda: load(path, **chosen))


@given(st.text(max_size=20))
@settings(deadline=None)
def test_names(spec: str) -> None:
    with pytest.raises(LumosError):
        load(f"no/{spec}")


objects = st.lists(
    st.sampled_from(
        ["a", "b", "", "1", "nan", 0, 1, 2, -1, -2, 1.0, 0.5, None, True, (1,), 10**30]
    ),
    min_size=3,
    max_size=3,
)


@quick
@given(objects, st.sampled_from([(), ("a", "b"), ("0", "1", "2")]), st.none() | st.integers(2, 3))
def test_labels_of_any_kind(labels: Any, classes: Any, bins: Any) -> None:
    edges = [[0, 1], [1, 2]]
    survives(lambda: Graph.from_edges(edges, labels=labels, classes=classes, label_bins=bins))
