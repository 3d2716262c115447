"""Algorithm 1 against its printed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trees.naive import (
    SHAPES,
    algorithm_1,
    clique,
    graphs,
    neighbours_of,
    random_graph,
    star,
    state_of,
)

from lumos.graph import Graph
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings

GREEDY = TreeSettings(balancer="greedy", compare="ideal")


@settings(deadline=None)
@given(graphs(most=12))
def test_equals_the_printed_algorithm(graph: Graph) -> None:
    balanced = balance(graph, GREEDY)
    assert state_of(graph, balanced.keep) == algorithm_1(neighbours_of(graph))


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_equals_it_where_degrees_differ_by_much(seed: int) -> None:
    graph = random_graph(40, 0.25, seed)
    balanced = balance(graph, GREEDY)
    assert state_of(graph, balanced.keep) == algorithm_1(neighbours_of(graph))


def test_both_ends_keep_a_tie() -> None:
    balanced = balance(clique(6), GREEDY)
    assert balanced.keep.all()
    assert balanced.workload.tolist() == [5] * 6


def test_the_lower_class_keeps_the_edge() -> None:
    balanced = balance(star(5), GREEDY)
    assert balanced.workload.tolist() == [0, 1, 1, 1, 1]


def test_a_step_within_a_class_is_a_tie() -> None:
    # deg 5 … 12 all round to ln = 2: the hub of a wheel and the hub of a smaller one keep both.
    hubs = Graph.from_edges(
        [[0, 1], *([0, 2 + i] for i in range(4)), *([1, 6 + i] for i in range(10))], devices=16
    )
    assert hubs.degrees[:2].tolist() == [5, 11]
    kept = state_of(hubs, balance(hubs, GREEDY).keep)
    assert 1 in kept[0]
    assert 0 in kept[1]


def test_one_three_way_comparison_for_each_edge() -> None:
    graph = random_graph(30, 0.3, 1)
    ledger = balance(graph, GREEDY).ledger
    assert ledger.comparisons == graph.edges
    assert ledger.comparison_bits == pytest.approx(graph.edges * np.log2(3))
    assert ledger.bits_per_pair_largest == pytest.approx(np.log2(3))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str) -> None:
    graph = SHAPES[shape]()
    assert state_of(graph, balance(graph, GREEDY).keep) == algorithm_1(neighbours_of(graph))
