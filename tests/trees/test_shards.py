"""One program: however devices are spread over shards, trees and ledgers are the same."""

import numpy as np
import pytest
from tests.trees.watching import same_ledgers

from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("demo:60", features=False)


def run(graph: Graph, balancer: str, shards: int) -> Balanced:
    chosen = TreeSettings(balancer=balancer, iterations=60, compare="ideal")
    return balance(graph, chosen, seed=7, shards=shards)


@pytest.mark.parametrize("shards", [2, 7, 60])
@pytest.mark.parametrize("balancer", ["greedy", "mcmc", "optimal"])
def test_same_trees_and_ledger(graph: Graph, balancer: str, shards: int) -> None:
    one, many = run(graph, balancer, 1), run(graph, balancer, shards)
    assert np.array_equal(one.keep, many.keep)
    assert np.array_equal(one.workload, many.workload)
    assert one.history == many.history
    same_ledgers(one.ledger, many.ledger)
