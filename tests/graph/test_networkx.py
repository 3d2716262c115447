"""Graphs from NetworkX and to it."""

import sys
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.graph.round_trips import GRAPHS, assert_same, dense, made

import lumos
from lumos.errors import InputError, UsageError
from lumos.graph import Graph


@given(st.integers(1, 30), st.floats(0, 0.5), st.integers(0, 1000))
def test_structure_survives(devices: int, density: float, seed: int) -> None:
    original = networkx.gnp_random_graph(devices, density, seed=seed)
    graph = Graph.from_networkx(original)
    assert graph.edge_list().tolist() == sorted(sorted(edge) for edge in original.edges)
    assert graph.devices == devices


def test_nodes_keep_their_order_names_features_and_labels() -> None:
    original = networkx.Graph(name="club")
    original.add_node("z", x=[1, 0], y="red")
    original.add_node("a", x=np.array([0, 2]), y=None)
    original.add_node(("t", 1), x=(3, 3), y="blue")
    original.add_edge("z", "a")
    original.add_edge("a", "a")
    graph = Graph.from_networkx(original)
    assert graph.name == "club"
    assert graph.ids == ("z", "a", "('t', 1)")
    assert np.array_equal(graph.features, [[1, 0], [0, 2], [3, 3]])  # type: ignore[arg-type]
    assert graph.classes == ("blue", "red")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, 0]
    assert graph.dropped_self_loops == 1


def test_integer_nodes_stay_integers() -> None:
    graph = Graph.from_networkx(networkx.Graph([(40, 7), (7, 9)]))
    assert graph.ids.tolist() == [40, 7, 9]  # type: ignore[union-attr]


def test_parallel_edges_are_duplicates() -> None:
    graph = Graph.from_networkx(networkx.MultiGraph([(0, 1), (0, 1), (1, 0)]))
    assert (graph.edges, graph.dropped_duplicates) == (1, 2)


def test_what_is_refused_can_be_converted() -> None:
    directed = networkx.DiGraph([(0, 1), (1, 0), (2, 1)])
    with pytest.raises(InputError, match=r"`directed='symmetrise'`"):
        Graph.from_networkx(directed)
    graph = Graph.from_networkx(directed, directed="symmetrise")
    assert graph.edge_list().tolist() == [[0, 1], [1, 2]]
    weighted = networkx.Graph()
    weighted.add_edge(0, 1, weight=2.5)
    with pytest.raises(InputError, match=r"'0'–'1' has the weight '2.5'.*`weights='drop'`"):
        Graph.from_networkx(weighted)
    assert Graph.from_networkx(weighted, weights="drop").edges == 1
    several = networkx.path_graph(2)
    networkx.set_node_attributes(several, {0: ["b", "a"], 1: {"a", "c"}}, "y")
    with pytest.raises(InputError, match=r"several labels .*`multilabel='first'`"):
        Graph.from_networkx(several)
    assert Graph.from_networkx(several, multilabel="first").classes == ("a", "b")
    gap = networkx.path_graph(3)
    gap.nodes[0]["y"] = 1
    with pytest.raises(InputError, match=r"node '1' has no 'y'.*`missing_labels='unknown'`"):
        Graph.from_networkx(gap)
    graph = Graph.from_networkx(gap, missing_labels="unknown")
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, -1, -1]


def nodes(**attributes: Any) -> networkx.Graph:
    graph = networkx.path_graph(2)
    for name, values in attributes.items():
        for node, value in enumerate(values):
            graph.nodes[node][name] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (networkx.Graph(), "the NetworkX graph is empty"),
        ([1, 2], "a NetworkX graph is needed; got list"),
        (networkx.Graph([(0, "0")]), "'0' occurs twice"),
        (networkx.Graph([(0, -3)]), "-3 is negative"),
        (networkx.Graph([(0, 10**30)]), "too large"),
        (nodes(x=[[1]]), "node '1' has no 'x'"),
        (nodes(x=[[1], [1, 2]]), r"node '1': 'x' has shape \[2\]"),
        (nodes(x=[[1], ["a"]]), "node '1': .* is no list of numbers"),
        (nodes(x=[[1], [float("nan")]]), "node '1': 'x' holds NaN"),
        (nodes(y=[0, 0.5]), r"node '1': the label is 0.5, no class: .*`label_bins=4`"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(graph: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_networkx(graph)


@pytest.mark.parametrize("case", GRAPHS)
def test_there_and_back(case: str) -> None:
    graph = made(case)
    assert_same(graph, Graph.from_networkx(graph.to_networkx()))


def test_what_networkx_is_given() -> None:
    made_graph = made("everything").to_networkx()
    assert list(made_graph.nodes) == list("zyxwvu")
    assert sorted(map(sorted, made_graph.edges)) == [["w", "z"], ["x", "y"], ["y", "z"]]
    assert made_graph.nodes["z"]["x"].tolist() == [0, 1.5]
    assert [made_graph.nodes[node]["y"] for node in "zyx"] == ["m", None, "z"]
    assert (made_graph.name, made_graph.graph["class_names"]) == ("all of it", ["z", "a", "m"])
    bare = made("everything").to_networkx(features=None, labels=None)
    assert not any(data for _, data in bare.nodes(data=True))


def test_a_copy_can_be_changed() -> None:
    graph = made("dense")
    graph.to_networkx().nodes[0]["x"][0] = 99
    assert dense(graph)[0, 0] == 0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("abc", "a list of names is needed"),
        (["z", "z", "m"], "occurs twice"),
        (["z", "a"], "the label 'm' is not among them"),
    ],
)
def test_class_names_that_do_not_fit(names: Any, message: str) -> None:
    source = made("labels").to_networkx()
    source.graph["class_names"] = names
    with pytest.raises(InputError, match=f"class_names: .*{message}"):
        Graph.from_networkx(source)


def test_without_networkx_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(UsageError, match="needs NetworkX; type: pip install networkx"):
        made("structure").to_networkx()


@pytest.mark.parametrize("labels", ["y", "label"])
@pytest.mark.parametrize("features", ["x", "features"])
def test_usual_attributes_are_found(features: str, labels: str) -> None:
    source = nodes(**{features: [[1, 2], [3, 4]], labels: ["a", "b"], "age": [1, 2]})
    graph = Graph.from_networkx(source)
    assert dense(graph).tolist() == [[1, 2], [3, 4]]
    assert (graph.classes, graph.notes) == (("a", "b"), ())
    both = nodes(x=[1, 2], features=[3, 4], y=["a", "b"], label=["c", "d"])
    graph = Graph.from_networkx(both)
    assert (graph.classes, dense(graph).tolist()) == (("a", "b"), [[1], [2]])
    assert graph.notes == (
        "features are the attribute 'x', not 'features'",
        "labels are the attribute 'y', not 'label'",
    )
    assert Graph.from_networkx(both, features=None, labels=None).feature_count == 0


def test_training_lists_the_attributes_that_exist() -> None:
    club = networkx.karate_club_graph()
    for _, _, edge in club.edges(data=True):
        edge.clear()
    with pytest.raises(InputError, match=r"no features.*'x' or 'features'.* may name one of: club"):
        lumos.train(club)
    networkx.set_node_attributes(club, 1.0, "x")
    with pytest.raises(InputError, match=r"no labels.*'y' or 'label'.* may name one of: club\)"):
        lumos.train(club)
    with pytest.raises(InputError, match=r"no labels.*'y' or 'label'.* may name one of: club\)"):
        lumos.evaluate(club, systems=["own"], seeds=1)
    with pytest.raises(InputError, match=r"no node has the attribute 'team'; .* are: club, x"):
        Graph.from_networkx(club, labels="team")
