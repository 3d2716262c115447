"""The optimal balancer: maximum flow, brute force, certificates, and what carriers believe."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trees.naive import SHAPES, assignments, bipartite, clique, graphs, random_graph
from tests.trees.watching import watching

from lumos.exchange.batch import Outbox
from lumos.exchange.topic import Topic
from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.edge_assignment import BOUND, EXACT, UNKNOWN, EdgeAssignment
from lumos.trees.optimum import forced_workload, least_largest_workload
from lumos.trees.settings import TreeSettings

OPTIMAL = TreeSettings(balancer="optimal", compare="ideal")


def verify(balanced: Balanced) -> None:
    """The certificate, checked with nothing but the edge list and counting."""
    proof = set(balanced.certificate().tolist())
    inner = [(u, v) for u, v in balanced.graph.edge_list().tolist() if u in proof and v in proof]
    if balanced.max_workload:
        # However these edges are given out, one of the set gets at least ⌈inner / |set|⌉.
        assert len(inner) > (balanced.max_workload - 1) * len(proof)
    assert forced_workload(balanced.graph, balanced.certificate()) == balanced.max_workload
    assert balanced.lower_bound() == balanced.max_workload


def each_edge_once(balanced: Balanced) -> None:
    graph = balanced.graph
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    ends = np.sort(np.stack([owner, graph.neighbours])[:, balanced.keep], axis=0).T
    assert sorted(ends.tolist()) == graph.edge_list().tolist()


@settings(max_examples=150, deadline=None)
@given(graph=graphs(most=12), seed=st.integers(0, 2**32))
def test_equals_maximum_flow(graph: Graph, seed: int) -> None:
    balanced = balance(graph, OPTIMAL, seed=seed)
    assert balanced.max_workload == least_largest_workload(graph)
    each_edge_once(balanced)
    verify(balanced)


@pytest.mark.parametrize("devices", [8, 15, 30, 60])
def test_equals_maximum_flow_on_hundreds_of_graphs(devices: int) -> None:
    for seed in range(60):
        graph = random_graph(devices, (0.05, 0.15, 0.4)[seed % 3], seed)
        balanced = balance(graph, OPTIMAL, seed=seed)
        assert balanced.max_workload == least_largest_workload(graph), seed
        verify(balanced)


@settings(max_examples=200, deadline=None)
@given(graph=graphs(most=7, most_edges=11), seed=st.integers(0, 2**32))
def test_no_other_assignment_is_better_in_any_place(graph: Graph, seed: int) -> None:
    """Largest first, the workloads are the lexicographically least, and so are their squares."""
    workload = balance(graph, OPTIMAL, seed=seed).workload
    every = assignments(graph)
    assert sorted(workload.tolist(), reverse=True) == min(
        sorted(row, reverse=True) for row in every.tolist()
    )
    assert (workload**2).sum() == (every**2).sum(axis=1).min()


@pytest.mark.parametrize("seed", range(5))
def test_every_seed_ends_at_the_same_workloads(seed: int) -> None:
    """The lexicographic optimum is one vector: another seed gives other trees, not other loads."""
    graph = load("demo:300", features=False)
    one, other = (np.sort(balance(graph, OPTIMAL, seed=s).workload) for s in (seed, seed + 100))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape: str) -> None:
    balanced = balance(SHAPES[shape](), OPTIMAL, seed=1)
    assert balanced.max_workload == least_largest_workload(balanced.graph)
    each_edge_once(balanced)
    verify(balanced)


def test_a_worse_assignment_has_no_certificate() -> None:
    graph = random_graph(30, 0.3, 4)
    best = balance(graph, OPTIMAL)
    owner = np.repeat(np.arange(graph.devices), graph.degrees)
    heaviest = int(best.workload.argmax())
    # Somebody hands one more edge to a heaviest device.
    slot = int(np.flatnonzero(best.keep & (graph.neighbours == heaviest))[0])
    back = int(np.flatnonzero((owner == heaviest) & (graph.neighbours == owner[slot]))[0])
    keep = best.keep.copy()
    keep[slot], keep[back] = False, True
    workload = np.bincount(owner[keep], minlength=graph.devices)
    worse = Balanced(**{**vars(best), "keep": keep, "workload": workload})
    assert worse.max_workload == best.max_workload + 1
    assert forced_workload(graph, worse.certificate()) < worse.max_workload
    assert worse.lower_bound() == best.max_workload


class Believed:
    """Checks, in every round, what each carrier believes of the other end's workload."""

    def __init__(self, graph: Graph, memory: bool = True) -> None:
        self.graph = graph
        self.memory = memory
        self.states: list[EdgeAssignment] = []
        self.rounds = self.finite = self.exact = 0
        believed = self

        class Seen(EdgeAssignment):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                believed.states.append(self)

        self.replaced = {"balancers__optimal__EdgeAssignment": Seen}

    def __call__(self, topic: Topic, _: Sequence[Outbox]) -> None:
        # In a round of `changed` edges are between two hands; the next round shows the outcome.
        if not self.states or topic.name == "optimal/changed":
            return
        self.rounds += 1
        graph = self.graph
        workload = np.zeros(graph.devices, np.int64)
        names = ("keep", "low", "high", "carrier_knows")
        over_slots = {name: np.zeros(2 * graph.edges, np.int64) for name in names}
        for state in self.states:
            shard = state.shard
            workload[shard.devices] = state.workload
            start = graph.offsets[shard.devices] - shard.offsets[:-1]
            slots = np.repeat(start, shard.degree) + np.arange(len(state.keep))
            for name, array in over_slots.items():
                array[slots] = getattr(state, name)
        owner = np.repeat(np.arange(graph.devices), graph.degrees)
        # The slot of the same edge at its other end.
        other = np.lexsort((owner, graph.neighbours))
        keep = over_slots["keep"] != 0
        assert (keep != keep[other]).all(), "each edge is carried once, in every round"
        assert np.array_equal(np.bincount(owner[keep], minlength=graph.devices), workload)
        gap = (workload[owner] - workload[graph.neighbours])[keep]
        low, high = over_slots["low"][keep], over_slots["high"][keep]
        assert (low <= gap).all(), "a lower bound is false"
        assert (gap <= high).all(), "an upper bound is false"
        known = over_slots["carrier_knows"][other][keep]
        above, below = high < UNKNOWN // 2, low > -UNKNOWN // 2
        if self.memory:
            assert (known[above] >= BOUND).all(), "the other end remembers that the carrier knows"
            assert (known[below] == EXACT).all(), "and that it knows the exact gap"
            assert (low[known == EXACT] == high[known == EXACT]).all()
        self.finite += int(above.sum())
        self.exact += int((low == high).sum())


def believe(graph: Graph, seed: int, shards: int = 1) -> Believed:
    believed = Believed(graph)
    with watching(believed, **believed.replaced):
        balance(graph, OPTIMAL, seed=seed, shards=shards)
    return believed


@settings(max_examples=100, deadline=None)
@given(graph=graphs(most=12), seed=st.integers(0, 2**32))
def test_what_carriers_believe_is_true_on_any_graph(graph: Graph, seed: int) -> None:
    believe(graph, seed)


@pytest.mark.parametrize(
    ("graph", "shards"),
    [
        (clique(9), 3),
        (bipartite(30, 5), 1),
        (random_graph(60, 0.2, 1), 1),
        (random_graph(60, 0.05, 2), 4),
        (load("demo:400", features=False), 1),
    ],
    ids=["clique", "bipartite", "dense", "sparse", "demo"],
)
def test_what_carriers_believe_is_true_in_long_runs(graph: Graph, shards: int) -> None:
    believed = believe(graph, 5, shards)
    assert believed.rounds > 5
    assert believed.finite > 0
    assert believed.exact > 0


def test_a_carrier_that_is_not_notified_believes_something_false() -> None:
    """The check has power: without the word "changed" a bound is soon wrong."""
    graph = random_graph(40, 0.2, 1)
    believed = Believed(graph, memory=False)

    def deafened(topic: Topic, outboxes: Sequence[Outbox]) -> None:
        believed(topic, outboxes)
        if topic.name == "optimal/changed":
            for outbox in outboxes:
                outbox.batch = topic.no_messages

    with (
        pytest.raises(AssertionError, match="bound is false"),
        watching(deafened, **believed.replaced),
    ):
        balance(graph, OPTIMAL, seed=1)
