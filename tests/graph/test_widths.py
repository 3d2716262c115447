"""One index far beyond all others is refused before memory is asked for, by every loader."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array, save_npz
from tests.graph.writing import EDGES, WORDS

from lumos.errors import InputError
from lumos.graph import load
from lumos.graph.arrays import EXTRA_WIDTH, MAX_WIDTH_PER_INDEX, refuse_width
from lumos.graph.features import Columns, prepared
from lumos.graph.graph import Graph
from lumos.graph.io import ReadOptions

FAR = 2147483646


def refused(read: object, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        read()  # type: ignore[operator]
    message = str(caught.value)
    assert "\n" not in message
    assert "far beyond the others" in message
    for word in words:
        assert word in message


def unknown(folder: Path) -> Path:
    """A graph in SNAP's form whose number of words nobody has declared."""
    (folder / "my_edges.csv").write_text(EDGES)
    (folder / "my_target.csv").write_text("id,target\n0,a\n1,b\n2,a\n3,b\n")
    (folder / "my_features.json").write_text(json.dumps(WORDS))
    return folder


def test_the_rule() -> None:
    most = MAX_WIDTH_PER_INDEX * 10 + EXTRA_WIDTH
    refuse_width(most, 10, "features")
    with pytest.raises(InputError, match=f"index {most} is far beyond .*; number them from 0"):
        refuse_width(most + 1, 10, "features")


def test_a_word_of_one_device(tmp_path: Path) -> None:
    folder = unknown(tmp_path)
    file = folder / "my_features.json"
    words = json.loads(file.read_text())
    device = next(iter(words))
    file.write_text(json.dumps({**words, device: [*words[device], FAR]}))
    refused(lambda: load(folder), f"'{device}'", str(FAR), "features.json, line 1")


def test_a_sparse_matrix_beside_an_edge_list(tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text("0,1\n1,2\n")
    whole = csr_array((np.ones(1, np.float32), ([2], [FAR])), shape=(3, FAR + 1))
    save_npz(tmp_path / "graph.features.npz", whole)
    refused(lambda: load(tmp_path / "graph.csv"), str(FAR))


def test_rows_that_no_column_names(tmp_path: Path) -> None:
    (tmp_path / "graph.csv").write_text("0,1\n1,2\n")
    np.savez(
        tmp_path / "graph.features.npz",
        indptr=np.array([0, 1, 2]), indices=np.array([0, 1]), data=np.ones(2),
        shape=np.array([10**12, 2]), format=np.array(b"csc"),
    )  # fmt: skip
    refused(lambda: load(tmp_path / "graph.csv"), "rows of features")


@pytest.mark.parametrize("prefix", ["attr_", "adj_", "labels_"])
@pytest.mark.parametrize("shape", [(3, FAR + 1), (FAR + 1, 3), (FAR + 1, FAR + 1)])
def test_matrices_in_parts(tmp_path: Path, prefix: str, shape: tuple[int, int]) -> None:
    ring: dict[str, Any] = {
        "data": [1, 1],
        "indices": [1, 0],
        "indptr": [0, 1, 2, 2],
        "shape": [3, 3],
    }
    arrays: dict[str, Any] = {f"adj_{name}": part for name, part in ring.items()}
    arrays |= {f"{prefix}{name}": part for name, part in ring.items()}
    np.savez(tmp_path / "g.npz", **{**arrays, f"{prefix}shape": np.array(shape)})
    refused(lambda: load(tmp_path / "g.npz"), str(FAR), "g.npz")


def test_categories_and_bounds_see_no_far_index() -> None:
    """They come after the width was checked."""
    wide = csr_array((np.ones(1, np.float32), ([2], [FAR])), shape=(3, FAR + 1))
    for options in ({"categorical": "0"}, {"feature_bounds": "0,1"}):
        with pytest.raises(InputError, match="far beyond the others"):
            prepared(Columns(wide), ReadOptions.of(options), "x")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_objects_of_other_libraries() -> None:
    edges = [[0, 1], [1, 2]]
    wide = coo_array((np.ones(2), ([0, 1], [0, FAR])), shape=(3, FAR + 1))
    refused(lambda: Graph.from_edges(edges, features=wide), str(FAR))
    refused(lambda: Graph.from_edges(edges, devices=10**12), "devices")
    from torch_geometric.data import Data

    index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    far = torch.sparse_coo_tensor(
        torch.tensor([[0], [FAR]]), torch.ones(1), (3, FAR + 1), check_invariants=True
    )
    refused(lambda: Graph.from_pyg(Data(edge_index=index, x=far, num_nodes=3)), str(FAR))
    refused(lambda: Graph.from_pyg(Data(edge_index=index, num_nodes=10**12)), "devices")
    long = torch.sparse_coo_tensor(
        torch.tensor([[0], [0]]), torch.ones(1), (10**12, 2), check_invariants=True
    )
    refused(lambda: Graph.from_pyg(Data(edge_index=index, x=long, num_nodes=10**12)), "rows")


def test_networkx_has_no_way_to_name_a_far_index() -> None:
    """Features of a node are a list: as wide as what is already in memory."""
    graph = networkx.path_graph(3)
    for node in graph:
        graph.nodes[node]["x"] = [0.0, 1.0]
    assert Graph.from_networkx(graph).feature_count == 2


def test_a_wide_graph_in_use_is_read() -> None:
    """A million columns are fine, and more where they are used."""
    wide = csr_array((np.ones(3), ([0, 1, 2], [0, 5, 999_999])), shape=(3, 1_000_000))
    assert Graph.from_edges([[0, 1], [1, 2]], features=wide).feature_count == 1_000_000


def test_training_with_a_far_word_asks_for_little(tmp_path: Path) -> None:
    """As people type it, with a gigabyte and a half of address space beyond the libraries'."""
    folder = unknown(tmp_path)
    file = folder / "my_features.json"
    words = json.loads(file.read_text())
    file.write_text(json.dumps({**words, next(iter(words)): [FAR]}))
    program = (
        "import sys, lumos.runs.train; from lumos.cli.main import run; "
        "print(run(['train', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (3 << 29, 3 << 29)),
    )
    assert done.stdout.strip() == "2"
    assert done.stderr.count("\n") == 1
    assert "far beyond the others" in done.stderr
