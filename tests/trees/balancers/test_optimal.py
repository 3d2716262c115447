"""The optimal balancer: maximum flow, certificates, what devices believe, and who stays silent."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trees.naive import SHAPES, assignments, bipartite, clique, graphs, random_graph
from tests.trees.watching import watching

from lumos.exchange import Program, recording
from lumos.exchange.messages import Outbox, Topic
from lumos.graph import Graph, load
from lumos.trees.balance import Balanced, balance
from lumos.trees.balancers import TreeSettings
from lumos.trees.balancers.optimal import EdgeAssignment, hand_over, next_threshold
from lumos.trees.optimum import forced_workload, least_largest_workload

OPTIMAL = TreeSettings(balancer="optimal")


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
def test_no_other_assignment_has_a_smaller_largest_workload(graph: Graph, seed: int) -> None:
    assert balance(graph, OPTIMAL, seed=seed).max_workload == assignments(graph).max(1).min()


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


@settings(max_examples=300, deadline=None)
@given(least=st.integers(0, 5000), total=st.integers(1, 10_000))
def test_the_threshold_ends_at_the_least_possible(least: int, total: int) -> None:
    """Every threshold lies between what is impossible and what is possible."""
    impossible, possible = -1, max(least, total)
    tried = 0
    while possible - impossible > 1:
        threshold = next_threshold(impossible, possible)
        assert impossible < threshold < possible
        tried += 1
        if threshold >= least:
            possible = threshold
        else:
            impossible = threshold
    assert possible == least
    assert tried < 100  # 8 ln(total) and a few


class Believed:
    """Checks, in every round of questions, who asks, and that whoever is believed full is."""

    def __init__(self, graph: Graph, *, forget: bool = True) -> None:
        self.graph = graph
        self.states: dict[int, EdgeAssignment] = {}
        self.threshold = 0
        self.rounds = self.full = self.rises = 0
        believed = self

        def watched(state: EdgeAssignment, threshold: int, step: int) -> Program[int]:
            believed.states[int(state.shard.devices[0])] = state
            believed.rises += threshold > believed.threshold > 0
            believed.threshold = threshold
            if not forget:
                state.full |= believed.kept.setdefault(id(state), np.zeros_like(state.full))
            step = yield from hand_over(state, threshold, step)
            believed.kept[id(state)] = state.full.copy()
            return step

        self.kept: dict[int, np.ndarray] = {}
        self.replaced = {"balancers__optimal__hand_over": watched}

    def __call__(self, topic: Topic, outboxes: Sequence[Outbox]) -> None:
        if topic.name not in ("optimal/ask", "optimal/search") or not self.states:
            return
        self.rounds += 1
        graph = self.graph
        workload = np.zeros(graph.devices, np.int64)
        for state in self.states.values():
            workload[state.shard.devices] = state.workload
        assert workload.sum() == graph.edges, "each edge is carried once, in every round"
        asking = np.concatenate([outbox.batch.sender for outbox in outboxes])
        if topic.name == "optimal/ask":
            asked = np.bincount(asking, minlength=graph.devices)
            assert (asked <= np.maximum(workload - self.threshold, 0)).all(), "asks too many"
        else:
            assert (workload[asking] >= self.threshold).all(), "searches, and has room"
        for state in self.states.values():
            believed = state.keep & state.full
            others = workload[state.shard.neighbours[believed]]
            assert (others >= self.threshold).all(), "somebody believed to be full has room"
            self.full += int(believed.sum())


def believe(graph: Graph, seed: int, shards: int = 1, *, forget: bool = True) -> Believed:
    believed = Believed(graph, forget=forget)
    with watching(believed, **believed.replaced):
        balance(graph, OPTIMAL, seed=seed, shards=shards)
    return believed


@settings(max_examples=100, deadline=None)
@given(graph=graphs(most=12), seed=st.integers(0, 2**32))
def test_who_is_believed_to_be_full_is_on_any_graph(graph: Graph, seed: int) -> None:
    believe(graph, seed)


LONG = [
    (clique(9), 3),
    (bipartite(30, 5), 1),
    (random_graph(60, 0.2, 1), 1),
    (random_graph(60, 0.05, 2), 4),
    (load("demo:400", features=False), 1),
]


@pytest.mark.parametrize(
    ("graph", "shards"), LONG, ids=["clique", "bipartite", "dense", "sparse", "demo"]
)
def test_who_is_believed_to_be_full_is_in_long_runs(graph: Graph, shards: int) -> None:
    believed = believe(graph, 5, shards)
    assert believed.rounds > 5
    assert believed.full > 0


def test_who_does_not_forget_when_the_threshold_rises_believes_something_false() -> None:
    """The check has power: a device that was full has room under a higher threshold."""
    graph = random_graph(80, 0.6, 0)
    assert believe(graph, 5).rises > 0
    with pytest.raises(AssertionError, match="has room"):
        believe(graph, 5, forget=False)


@pytest.mark.parametrize("seed", range(3))
def test_who_is_below_all_thresholds_and_not_asked_is_silent(seed: int) -> None:
    """What `optimal` discloses: devices speak if they are above a threshold, or were spoken to."""
    graph = load("demo:600", features=False)
    with recording() as tape:
        balance(graph, OPTIMAL, seed=seed, transport="recording")
    spoken = np.zeros(graph.devices, np.bool_)
    for one in tape.passed:
        if one.topic.name in ("optimal/take", "optimal/found"):
            assert spoken[one.batch.sender].all(), "an answer to nobody"
        spoken[one.batch.receiver] = True
    spoke = np.zeros(graph.devices, np.bool_)
    for one in tape.passed:
        spoke[one.batch.sender] = True
    assert (~spoke & ~spoken).sum() > 20


def test_nothing_is_compared() -> None:
    balanced = balance(load("demo:200", features=False), OPTIMAL)
    assert balanced.compare == "none"
    assert balanced.ledger.comparisons == balanced.ledger.comparison_bits == 0
    assert set(balanced.ledger.topics) <= {
        *("optimal/ask", "optimal/take", "optimal/search", "optimal/found", "optimal/grant")
    }
