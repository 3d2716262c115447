"""A large edge list in parts: byte by byte what reading it at once gives, and the same errors."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.graph.parts.same_parts import written

from lumos.errors import InputError
from lumos.graph import load
from lumos.graph.io import ReadOptions
from lumos.graph.parts import PartsFolder, part_source
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.part_source import StreamedEdgeList
from lumos.training.write_parts import write_parts


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_source, "BLOCK", 200)
    monkeypatch.setattr(part_source, "ROWS", 60)


def source_of(path: Path, **options: Any) -> StreamedEdgeList:
    features = options.pop("features", True)
    return StreamedEdgeList(
        path, "graph", features=features, options=ReadOptions(**options), scratch=BytesIO()
    )


def streamed(path: Path, parts: int = 3, **options: Any) -> PartsFolder:
    source = source_of(path, **options)
    partition = Partition.equal(source.about.devices, parts)
    return write_parts(source, path.parent / "streamed", partition)


def edges() -> np.ndarray:
    """Of a small graph with ids that have gaps, with loops, repeats and both directions."""
    rows = 7 * load("demo:120").edge_list() + 3
    more = [[3, 3], [10, 10], *rows[:3].tolist(), *rows[3:7, ::-1].tolist()]
    return np.random.default_rng(0).permutation(np.concatenate([rows, more]))


def write(folder: Path, separator: str = ",", before: str = "", beside: bool = False) -> Path:
    rows = [f"{u}{separator}{v}" for u, v in edges()]
    (folder / "graph.csv").write_text(before + "\n".join(rows) + "\n")
    if beside:
        values = np.random.default_rng(1).normal(size=(120, 3)).round(3)
        ids = [7 * row + 3 for row in range(120)]
        labels = [f"{name},{'abc'[row % 3]}" for row, name in enumerate(ids)]
        (folder / "graph.labels.csv").write_text("\n".join(["id,label", *labels]))
        rows = [",".join(map(str, [name, *values[row]])) for row, name in enumerate(ids)]
        (folder / "graph.features.csv").write_text("\n".join(rows))
    return folder / "graph.csv"


@pytest.mark.parametrize(
    ("separator", "before"),
    [
        (",", ""),
        (",", "source,target\n"),
        ("\t", "# Undirected graph: com-Small\n# Nodes: 120\n# FromNodeId\tToNodeId\n"),
        (" ", "\n"),
        (";", "u;v\r\n"),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("sparse", [4, 100])  # ids are 7 apart: searched, or in a table
def test_all_files_are_the_same(
    separator: str,
    before: str,
    beside: bool,
    sparse: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part_source, "SPARSE_IDS", sparse)
    path = write(tmp_path, separator, before, beside)
    graph = load(path)
    whole = written(graph, tmp_path / "whole", Partition.equal(graph.devices, 3))
    found = streamed(path)
    assert found.manifest == whole.manifest
    for file in whole.path.iterdir():
        assert (found.path / file.name).read_bytes() == file.read_bytes()
    assert {*found.manifest.splits} == ({"classify", "link"} if beside else {"link"})
    assert found.manifest.dropped_self_loops == 2
    assert found.manifest.dropped_duplicates == 7
    assert {child.name for child in tmp_path.iterdir()} - {path.name} == (
        {"whole", "streamed"} | ({"graph.labels.csv", "graph.features.csv"} if beside else set())
    )


def test_weights_are_dropped_where_that_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target,weight\n" + "".join(f"{u},{v},0.5\n" for u, v in edges()))
    found = streamed(path, weights="drop")
    assert found.manifest.graph.simulated.edges == load(path, weights="drop").edges


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("5", "line 302: '5' is one id; an edge needs two"),
        ("5,6,0.5", "line 302: '0.5' in column 3 is a weight"),
        ("5,x", "line 302: 'x' is not an integer, but the ids of this graph are"),
        ("5,-6", "line 302: the id -6 is negative"),
        ("5,1.5", "line 302: '1.5' is not an integer"),
    ],
)
def test_errors_name_the_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target\n" + "1,2\n" * 300 + line + "\n" + "3,4\n" * 100)
    with pytest.raises(InputError) as refused:
        source_of(path)
    assert f"{path}, {message}" in str(refused.value)


def test_what_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target\n" + "ann,bob\n" * 100)
    with pytest.raises(InputError, match="ids are names, but a file of this size is read with int"):
        source_of(path)
    path.write_text("# Directed graph\n" + "1,2\n" * 100)
    with pytest.raises(InputError, match="line 1: 'Directed graph': the graph is directed"):
        source_of(path)
    path.write_text("1,1\n" * 100)
    with pytest.raises(InputError, match="every row joins a device to itself"):
        streamed(path, parts=1)
    path.write_text("1,2\n" * 100 + "8,9\n")
    (tmp_path / "graph.labels.csv").write_text("1,a\n2,b\n8,a\n")
    with pytest.raises(
        InputError, match=r"the id '9' is not among those of .*labels\.csv; add a row"
    ):
        source_of(path)
    assert source_of(path, missing_labels="unknown").about.devices == 4
    path.write_bytes(b"1,2\n" * 100 + b"\xff,3\n")
    with pytest.raises(InputError, match="cannot be read"):
        source_of(path)
    path.write_text("")
    with pytest.raises(InputError, match="the file holds no rows"):
        source_of(path)
