"""Attributes of NetworkX nodes by their names, and what is said where they are not there."""

import networkx
import numpy as np
import pytest
from tests.graph.round_trips import dense

from lumos.errors import InputError
from lumos.graph import Graph


@pytest.fixture
def club() -> networkx.Graph:
    graph = networkx.karate_club_graph()
    for node in graph:
        graph.nodes[node].update(age=20 + node, income=1000.0 * node, vector=[node, -node])
    return graph


def test_the_attribute_of_the_label_can_be_named(club: networkx.Graph) -> None:
    for graph in (
        Graph.from_networkx(club, labels="club", weights="drop"),
        Graph.from_networkx(club, label_column="club", weights="drop"),
    ):
        assert graph.classes == ("Mr. Hi", "Officer")
        names = [graph.classes[label] for label in graph.labels]  # type: ignore[union-attr]
        assert names == [club.nodes[node]["club"] for node in club]


def test_features_are_one_vector_or_several_numbers(club: networkx.Graph) -> None:
    graph = Graph.from_networkx(club, features=["age", "income"], weights="drop")
    assert np.array_equal(dense(graph), [[20 + node, 1000 * node] for node in club])
    graph = Graph.from_networkx(club, features="vector", weights="drop")
    assert np.array_equal(dense(graph), [[node, -node] for node in club])
    graph = Graph.from_networkx(club, features=("vector", "age"), weights="drop")
    assert np.array_equal(dense(graph), [[node, -node, 20 + node] for node in club])


def test_attributes_that_nobody_reads_are_listed_in_a_note(club: networkx.Graph) -> None:
    graph = Graph.from_networkx(club, weights="drop")
    seen = "may name one of: club, age, income, vector"
    assert graph.notes == (
        f"features absent: no node has the attribute 'x' or 'features'; `features` {seen}",
        f"labels absent: no node has the attribute 'y' or 'label'; `labels` {seen}",
    )
    assert Graph.from_networkx(networkx.path_graph(3)).notes == ()


@pytest.mark.parametrize(
    "settings", [{"labels": "team"}, {"features": ["age", "team"]}, {"label_column": "team"}]
)
def test_an_attribute_that_is_not_there_lists_the_others(
    club: networkx.Graph, settings: dict[str, object]
) -> None:
    with pytest.raises(
        InputError, match="no node has the attribute 'team'; the attributes are: club, age, income"
    ):
        Graph.from_networkx(club, weights="drop", **settings)


def test_numbers_of_age_are_no_classes(club: networkx.Graph) -> None:
    with pytest.raises(
        InputError, match=r"labels: 'age': 34 different .*labels= \(seen: club, income, vector\)"
    ):
        Graph.from_networkx(club, labels="age", weights="drop")
    graph = Graph.from_networkx(club, labels="age", label_bins=2, weights="drop")
    assert graph.classes == ("< 37", "≥ 37")
