"""The oracle itself: maximum flow and certificates against every assignment there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.trees.naive import SHAPES, assignments, cuts, graphs, path, random_graph, star

from lumos.graph import Graph
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.optimum import certificate, forced_workload, least_largest_workload


def inner_edges(graph: Graph, devices: list[int]) -> int:
    inside = set(devices)
    return sum(u in inside and v in inside for u, v in graph.edge_list().tolist())


@settings(deadline=None, max_examples=200)
@given(graphs(most=7, most_edges=11))
def test_maximum_flow_equals_brute_force(graph: Graph) -> None:
    least = int(assignments(graph).max(axis=1).min()) if graph.edges else 0
    assert least_largest_workload(graph) == least
    # Hakimi's theorem: the densest set of devices forces exactly this much.
    forced = max(-(-inner_edges(graph, chosen) // len(chosen)) for chosen in cuts(graph.devices))
    assert forced == least


@settings(deadline=None, max_examples=60)
@given(graphs(most=7, most_edges=11))
def test_no_set_forces_more_than_the_optimum(graph: Graph) -> None:
    least = least_largest_workload(graph)
    for chosen in cuts(graph.devices):
        forced = forced_workload(graph, np.array(chosen))
        assert forced == -(-inner_edges(graph, chosen) // len(chosen))
        assert forced <= least


@pytest.mark.parametrize(
    ("shape", "least"),
    [
        ("one device", 0),
        ("no edges", 0),
        ("one edge", 1),
        ("isolated devices", 1),
        ("path", 1),
        ("star", 1),
        ("clique", 4),  # 28 edges over 8 devices
        ("bipartite", 3),  # 60 edges over 23 devices
        ("two cliques and a bridge", 3),  # 21 edges over 10 devices
    ],
)
def test_known_optima(shape: str, least: int) -> None:
    assert least_largest_workload(SHAPES[shape]()) == least


def test_nothing_forces_nothing() -> None:
    assert forced_workload(path(3), np.empty(0, np.int64)) == 0


def test_a_certificate_of_something_worse_proves_nothing() -> None:
    # The hub carries all 5: whatever can be reached from it does not force a workload of 5.
    graph = star(6)
    keep = np.repeat(np.arange(6), graph.degrees) == 0
    workload = np.array([5, 0, 0, 0, 0, 0])
    found = certificate(graph, keep, workload)
    assert found.tolist() == [0, 1, 2, 3, 4, 5]
    assert forced_workload(graph, found) == 1


@pytest.mark.parametrize("seed", range(20))
def test_greedy_trees_are_not_certified_unless_optimal(seed: int) -> None:
    graph = random_graph(25, 0.25, seed)
    balanced = balance(graph, TreeSettings(balancer="greedy", compare="ideal"))
    least = least_largest_workload(graph)
    forced = forced_workload(graph, balanced.certificate())
    assert forced <= least
    assert (forced == balanced.max_workload) <= (balanced.max_workload == least)
    assert balanced.lower_bound() == least
