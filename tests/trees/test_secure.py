"""Secret comparisons give the trees and the ledger of ideal ones, and say which they were."""

from typing import get_args

import numpy as np
import pytest
from tests.trees.watching import same_ledgers

from lumos.device.randomness import RandomnessSource
from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import Compare, TreeSettings


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("demo:60", features=False)


def run(
    graph: Graph,
    balancer: str,
    compare: Compare,
    workers: int = 1,
    shards: int = 1,
    group: str = "auto",
    randomness: RandomnessSource = "seeded",
) -> Balanced:
    chosen = TreeSettings(
        balancer=balancer, iterations=30, compare=compare, workers=workers, group=group
    )
    return balance(graph, chosen, seed=3, shards=shards, randomness=randomness)


@pytest.mark.parametrize(
    ("balancer", "workers", "shards", "group"),
    [
        pytest.param("greedy", 2, 1, "auto", marks=pytest.mark.long),
        ("greedy", 2, 3, "ed25519"),
        ("greedy", 2, 3, "secp256k1"),
        ("mcmc", 1, 1, "auto"),
    ],
)
def test_same_as_ideal(graph: Graph, balancer: str, workers: int, shards: int, group: str) -> None:
    ideal = run(graph, balancer, "ideal", group=group)
    secure = run(graph, balancer, "secure", workers, shards, group)
    assert ideal.ledger.group == secure.ledger.group == group.replace("auto", "secp256k1")
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


@pytest.mark.parametrize("compare", ["ideal", "secure"])
def test_real_devices_compare_in_constant_time(compare: Compare) -> None:
    graph = load("demo:20", features=False)
    chosen = {
        (group, randomness): run(
            graph, "greedy", compare, group=group, randomness=randomness
        ).ledger.group
        for group in ("auto", "ed25519", "secp256k1")
        for randomness in get_args(RandomnessSource)
    }
    assert chosen == {
        ("auto", "seeded"): "secp256k1",
        ("auto", "system"): "ed25519",
        ("ed25519", "seeded"): "ed25519",
        ("ed25519", "system"): "ed25519",
        ("secp256k1", "seeded"): "secp256k1",
        ("secp256k1", "system"): "secp256k1",
    }


def test_the_group_changes_points_and_not_the_trees(graph: Graph) -> None:
    one, other = (run(graph, "mcmc", "ideal", group=group) for group in ("ed25519", "secp256k1"))
    assert np.array_equal(one.keep, other.keep)
    assert one.history == other.history
    names = {name for name in vars(one.ledger) if name not in ("topics", "clear_traffic")}
    differing = {
        name
        for name in names
        if not np.array_equal(getattr(one.ledger, name), getattr(other.ledger, name))
    }
    assert differing == {"bytes", "group", "bytes_sent", "bytes_received"}
