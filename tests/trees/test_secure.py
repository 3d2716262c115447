"""Secret comparisons give the trees and the ledger of ideal ones, and say which they were."""

import numpy as np
import pytest
from tests.trees.watching import same_ledgers

from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.settings import Compare, TreeSettings


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("demo:200", features=False)


def run(
    graph: Graph, balancer: str, compare: Compare, workers: int = 1, shards: int = 1
) -> Balanced:
    chosen = TreeSettings(balancer=balancer, iterations=30, compare=compare, workers=workers)
    return balance(graph, chosen, seed=3, shards=shards)


@pytest.mark.parametrize(
    ("balancer", "workers", "shards"), [("greedy", 2, 1), ("greedy", 2, 3), ("mcmc", 1, 1)]
)
def test_same_as_ideal(graph: Graph, balancer: str, workers: int, shards: int) -> None:
    ideal = run(graph, balancer, "ideal")
    secure = run(graph, balancer, "secure", workers, shards)
    assert np.array_equal(secure.keep, ideal.keep)
    assert secure.history == ideal.history
    same_ledgers(secure.ledger, ideal.ledger, topics=False)
    # Topic by topic too, apart from the name of the comparison and its label.
    ours, theirs = dict(secure.ledger.topics), dict(ideal.ledger.topics)
    compared, booked = ours.pop("compare"), theirs.pop("compare/ideal")
    assert (compared.messages, compared.bytes) == (booked.messages, booked.bytes)
    assert {name: vars(line) for name, line in ours.items()} == {
        name: vars(line) for name, line in theirs.items()
    }


def test_labels() -> None:
    graph = load("demo:20", features=False)
    ideal, secure = run(graph, "greedy", "ideal"), run(graph, "greedy", "secure")
    assert (ideal.compare, secure.compare) == ("ideal", "secure")
    assert [line.ideal for line in ideal.ledger.topics.values()] == [True]
    assert [line.ideal for line in secure.ledger.topics.values()] == [False]
