"""Ids, names and measurements are not taken for labels, from whatever source they come."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from tests.graph.writing import write_list

from lumos.errors import InputError
from lumos.graph import Graph, load
from lumos.graph.labels import unlikely

DEVICES = 60
RING = [(device, (device + 1) % DEVICES) for device in range(DEVICES)]


@pytest.mark.parametrize(
    ("classes", "devices", "doubtful"),
    [
        (4, 4, False),
        (20, 20, False),
        (100, 2000, False),
        (10, 21, False),
        (11, 21, True),
        (21, 21, True),
        (1000, 1000, True),
        (500, 1000, True),
        (200, 1000, False),
        (201, 1000, True),
        (2565, 7126, True),  # days of membership in Twitch
    ],
)
def test_the_rule(classes: int, devices: int, doubtful: bool) -> None:
    assert unlikely(classes, devices) == doubtful


WRONG: dict[str, tuple[Any, str]] = {
    "ids": (
        list(range(DEVICES)),
        "60 different labels on 60 devices are the ids again",
    ),
    "other ids": (
        [7919 * device for device in range(DEVICES)],
        r"are ids or .*`label_bins=4`",
    ),
    "names": (
        [f"name{device}" for device in range(DEVICES)],
        "60 devices are names, no",
    ),
    "fractions": (
        [device % 3 + 0.5 for device in range(DEVICES)],
        r"is 0.5, no class.*`label_bins=",
    ),
    "negative": ([device % 3 - 2 for device in range(DEVICES)], "is -2; only -1"),
}


def sources(folder: Path, values: list[Any]) -> dict[str, Any]:
    """The same values as labels in every way that a graph can be given."""
    edges = "\n".join(f"{u},{v}" for u, v in RING)
    rows = "id,label\n" + "\n".join(f"{device},{value}" for device, value in enumerate(values))
    path = write_list(folder, edges, labels_csv=rows)
    snap = folder / "mine"
    snap.mkdir()
    (snap / "my_edges.csv").write_text("from,to\n" + edges)
    (snap / "my_target.csv").write_text(rows)
    np.savez(folder / "g.npz", edges=RING, target=values)
    nodes = networkx.Graph(RING)
    networkx.set_node_attributes(nodes, dict(enumerate(values)), "y")
    found: dict[str, Any] = {
        "csv": lambda **options: load(path, **options),
        "snap": lambda **options: load(snap, **options),
        "npz": lambda **options: load(folder / "g.npz", **options),
        "networkx": lambda **options: Graph.from_networkx(nodes, **options),
        "edges": lambda **options: Graph.from_edges(RING, labels=values, **options),
    }
    torch = pytest.importorskip("torch")
    geometric = pytest.importorskip("torch_geometric")
    both = torch.tensor([*RING, *((v, u) for u, v in RING)]).T
    y = values if isinstance(values[0], str) else torch.tensor(values)
    data = geometric.data.Data(edge_index=both, y=y, num_nodes=DEVICES)
    found["pyg"] = lambda **options: Graph.from_pyg(data, **options)
    return found


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_class_is_refused_everywhere_alike(tmp_path: Path, case: str) -> None:
    values, message = WRONG[case]
    for name, read in sources(tmp_path, values).items():
        with pytest.raises(InputError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value), name
        if name != "edges":
            graph = read(label_column="none")
            assert (graph.labels, graph.devices, graph.edges) == (None, DEVICES, DEVICES)


ALIKE: dict[str, tuple[list[Any], tuple[str, ...], list[int]]] = {
    "whole floats": ([1.0, 2.0, float("nan")], ("1", "2"), [0, 1, -1]),
    "integers": ([5, 3, -1], ("3", "5"), [1, 0, -1]),
    "text": (["b", "a", ""], ("a", "b"), [1, 0, -1]),
    "many classes": (list(range(20)), tuple(map(str, range(20))), list(range(20))),
}


@pytest.mark.parametrize("case", ALIKE)
def test_the_same_values_are_the_same_labels_everywhere(tmp_path: Path, case: str) -> None:
    values, classes, labels = ALIKE[case]
    repeated = values * (DEVICES // len(values))
    for name, read in sources(tmp_path, repeated).items():
        graph = read()
        named = [graph.classes[index] if index >= 0 else None for index in graph.labels]
        wanted = [classes[index] if index >= 0 else None for index in labels]
        assert named == wanted * (DEVICES // len(values)), name
        if name != "edges":  # there whole numbers are indices of classes
            assert graph.classes == classes, name


@pytest.mark.parametrize("kind", ["ids", "fractions"])
def test_bins_make_classes_of_numbers_everywhere_alike(tmp_path: Path, kind: str) -> None:
    values = list(range(DEVICES)) if kind == "ids" else [d / 4 for d in range(DEVICES)]
    borders = ("15", "30", "45") if kind == "ids" else ("3.75", "7.5", "11.25")
    names = (f"< {borders[0]}", f"{borders[0]} to < {borders[1]}",
             f"{borders[1]} to < {borders[2]}", f"≥ {borders[2]}")  # fmt: skip
    for name, read in sources(tmp_path, values).items():
        graph = read(label_bins=4)
        assert graph.classes == names, name
        assert np.bincount(graph.labels).tolist() == [15] * 4
        assert "borders were computed from all labels and are public" in graph.notes[-1], name


def test_text_cannot_be_cut(tmp_path: Path) -> None:
    for read in sources(tmp_path, ["a", "b"] * (DEVICES // 2)).values():
        with pytest.raises(InputError, match=r"is text, and `label_bins` needs numbers"):
            read(label_bins=2)


def test_small_graphs_may_have_a_class_for_each_device() -> None:
    graph = Graph.from_edges([(0, 1), (1, 2), (2, 3)], labels=[0, 1, 2, 3])
    assert graph.class_count == 4


def test_declared_classes_are_not_doubted() -> None:
    names = [f"name{device}" for device in range(DEVICES)]
    graph = Graph.from_edges(RING, labels=range(DEVICES), classes=names)
    assert graph.class_count == DEVICES
    assert Graph.from_edges(RING, labels=names, classes=names).labels is not None


def test_a_class_far_beyond_the_others_asks_for_no_memory() -> None:
    with pytest.raises(InputError, match=r"labels: number of classes: .* far beyond the others"):
        Graph.from_edges([(0, 1)], labels=[0, 10**12])


def test_minus_one_and_one_is_said() -> None:
    ones = np.where(np.arange(DEVICES) % 2, 1.0, -1.0)
    nodes = networkx.Graph(RING)
    networkx.set_node_attributes(nodes, dict(enumerate(ones.tolist())), "y")
    assert "-1 is unknown" in Graph.from_networkx(nodes, features=None).notes[0]


def test_labels_as_objects() -> None:
    values = ["a", None, float("nan"), "b"]
    graph = Graph.from_edges([(0, 1), (2, 3)], labels=values)
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.classes) == ([0, -1, -1, 1], ("a", "b"))
    graph = Graph.from_edges([(0, 1), (2, 3)], labels=[0, None, 1, 1], classes=("x", "y"))
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, -1, 1, 1]
    with pytest.raises(InputError, match="classes: the label 'c' is not among them"):
        Graph.from_edges([(0, 1), (2, 3)], labels=["c", "a", "a", "a"], classes=("a", "b"))
    with pytest.raises(InputError, match=r"labels: row 1 is .*numbers or text"):
        Graph.from_edges([(0, 1), (2, 3)], labels=["c", ("a",), "a", "a"])
