"""What holds for every balancer on every graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trees.naive import SHAPES, graphs, neighbours_of, random_graph, state_of

from lumos.errors import UsageError
from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import BALANCERS, TreeSettings


def run(graph: Graph, balancer: str, seed: int = 0, iterations: int = 12) -> Balanced:
    chosen = TreeSettings(balancer=balancer, iterations=iterations, compare="ideal")
    return balance(graph, chosen, seed=seed)


def check(balanced: Balanced) -> None:
    graph = balanced.graph
    kept, neighbours = state_of(graph, balanced.keep), neighbours_of(graph)
    for u, row in enumerate(kept):
        assert row <= set(neighbours[u]), "nobody holds a non-neighbour"
    for u, v in graph.edge_list().tolist():
        assert v in kept[u] or u in kept[v], "every edge is in at least one tree"
    assert balanced.workload.tolist() == [len(row) for row in kept]
    assert balanced.max_workload == max((len(row) for row in kept), default=0)
    assert balanced.lower_bound() <= balanced.max_workload


@pytest.mark.parametrize("balancer", BALANCERS.names())
@settings(max_examples=60, deadline=None)
@given(graph=graphs(most=10), seed=st.integers(0, 2**32))
def test_valid_on_any_graph(balancer: str, graph: Graph, seed: int) -> None:
    check(run(graph, balancer, seed))


@pytest.mark.parametrize("balancer", BALANCERS.names())
@pytest.mark.parametrize("shape", SHAPES)
def test_valid_on_every_shape(balancer: str, shape: str) -> None:
    check(run(SHAPES[shape](), balancer, seed=3, iterations=40))


@pytest.mark.parametrize("balancer", BALANCERS.names())
def test_same_seed_same_trees_ten_times(balancer: str) -> None:
    graph = random_graph(30, 0.25, 5)
    first = run(graph, balancer, seed=11, iterations=40)
    for _ in range(9):
        again = run(graph, balancer, seed=11, iterations=40)
        assert np.array_equal(again.keep, first.keep)
        assert again.history == first.history
        assert again.ledger.totals() == first.ledger.totals()


@pytest.mark.parametrize("balancer", ["mcmc", "optimal"])
def test_other_seeds_give_other_trees(balancer: str) -> None:
    graph = random_graph(30, 0.25, 5)
    trees = {run(graph, balancer, seed=seed, iterations=40).keep.tobytes() for seed in range(6)}
    assert len(trees) == 6


def test_none_keeps_everything_and_asks_nothing() -> None:
    graph = random_graph(30, 0.25, 5)
    balanced = run(graph, "none")
    assert balanced.keep.all()
    assert balanced.ledger.messages == balanced.ledger.comparisons == 0


def test_whatever_people_hold_is_balanced() -> None:
    """A name, a NetworkX graph, a PyG Data: the same trees as the graph itself."""
    graph = load("demo:60", features=False)
    chosen = TreeSettings(balancer="greedy", compare="ideal")
    expected = balance(graph, chosen).keep
    for held in ("demo:60", graph.to_networkx(), graph.to_pyg()):
        assert np.array_equal(balance(held, chosen).keep, expected)
    with pytest.raises(UsageError, match=r"neither a lumos\.Graph"):
        balance(60, chosen)
