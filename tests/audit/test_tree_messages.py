"""The attack on tree messages: it succeeds where it must, and finds nothing where nothing is."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from benchmarks.tree_leak import determined_classes
from tests.trees.watching import watching

from lumos.audit.attacks import trees
from lumos.audit.attacks.trees import (
    NO_VALUE,
    Adversary,
    TreeLeak,
    TreeRun,
    record_trees,
    tree_leaks,
)
from lumos.device import Shard
from lumos.exchange import TOPICS, Door, Program, Topic
from lumos.exchange.messages import Outbox
from lumos.graph import Graph, load
from lumos.trees.balancers import BALANCERS, Compare, Observe, TreeSettings
from lumos.trees.balancers.greedy import NoBalancer
from lumos.trees.balancers.optimal import EdgeAssignment, hand_over
from lumos.twoparty.comparer import Comparer
from lumos.twoparty.workers import ComparedPairs
from lumos.typing import Flags


class TellingSizes(NoBalancer):
    """Broken: a message to each neighbour is as long as the sender's degree."""

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        sizes = shard.degree[shard.owner]
        body = np.zeros((len(sizes), int(sizes.max(initial=0))), np.uint8)
        topic = TOPICS["test/padding"]
        yield topic.send(shard.ids_of(shard.owner), shard.neighbours, body, lengths=sizes)
        return np.ones(len(sizes), np.bool_)


class ComparingDegrees(NoBalancer):
    """Broken: neighbours compare their exact degrees."""

    compares = True

    def device_program(
        self, shard: Shard, comparer: Comparer, settings: TreeSettings, observe: Observe
    ) -> Program[Flags]:
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        yield from comparer.three_way(pairs, shard.degree[pairs.rows], 8)
        return np.ones(len(pairs), np.bool_)


TWINS = {"telling-sizes": TellingSizes(), "comparing-degrees": ComparingDegrees()}


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_STEPS", 300)


@pytest.fixture(autouse=True)
def _twins() -> Iterator[None]:
    Topic(name="test/padding", door=Door.OPEN, shape=None, learns="a degree, by its size")
    for name, twin in TWINS.items():
        BALANCERS.register(name, twin)
    yield
    for name in TWINS:
        BALANCERS.remove(name)
    del TOPICS["test/padding"]


def recorded(
    graph: Graph, balancer: str, compare: Compare = "ideal", iterations: int = 20
) -> TreeRun:
    chosen = TreeSettings(balancer=balancer, compare=compare, iterations=iterations, workers=1)
    return record_trees(graph, chosen, seed=3)


def one(leaks: list[TreeLeak], adversary: str, knowledge: str) -> dict[str, float]:
    [leak] = [x for x in leaks if (x.adversary, x.knowledge) == (adversary, knowledge)]
    return leak.found


NEIGHBOUR: tuple[Adversary, ...] = ("one neighbour",)


def test_a_degree_in_the_size_of_messages_is_found() -> None:
    run = recorded(load("demo:600", features=False), "telling-sizes")
    leaks = tree_leaks(run, adversaries=NEIGHBOUR)
    messages, alone = (one(leaks, "one neighbour", what) for what in ("messages", "own numbers"))
    assert messages["degree"] > 0.8 > 4 * alone["degree"]
    assert messages["degree above the median"] > 0.99


def test_a_comparison_of_degrees_is_found() -> None:
    run = recorded(load("demo:600", features=False), "comparing-degrees")
    leaks = tree_leaks(run, adversaries=NEIGHBOUR)
    messages, alone = (one(leaks, "one neighbour", what) for what in ("messages", "own numbers"))
    target = "degree above the median"
    assert messages[target] > 0.72 > 0.62 > alone[target]


def test_without_messages_there_is_nothing_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_STEPS", 100)  # there is nothing to learn
    run = recorded(load("demo:600", features=False), "none")
    assert len(run.pairs.viewer) == len(run.coordinator.viewer) == 0
    leaks = tree_leaks(run, adversaries=("one neighbour", "coordinator"))
    # Inputs are the same but for a column of zeros; 300 victims are right or wrong by chance.
    for adversary, alone in (("one neighbour", "own numbers"), ("coordinator", "nothing")):
        nothing, messages = one(leaks, adversary, alone), one(leaks, adversary, "messages")
        for target, found in messages.items():
            assert abs(found - nothing[target]) < 0.08, (adversary, target)
    assert determined_classes(run) == 0


def test_the_coordinator_learns_nothing_of_a_device_where_it_has_no_part() -> None:
    for balancer in ("greedy", "optimal"):
        run = recorded(load("demo:60", features=False), balancer)
        assert len(run.coordinator.viewer) == 0
    assert len(recorded(load("demo:60", features=False), "mcmc").coordinator.viewer) > 0


@pytest.mark.parametrize(("balancer", "devices"), [("greedy", 60), ("mcmc", 40), ("optimal", 60)])
def test_attackers_see_the_same_of_secret_and_ideal_comparisons(
    balancer: str, devices: int
) -> None:
    """So all figures are the same."""
    graph = load(f"demo:{devices}", features=False)
    ideal = recorded(graph, balancer, "ideal", iterations=5)
    secure = recorded(graph, balancer, "secure", iterations=5)
    for ours, theirs in ((ideal.pairs, secure.pairs), (ideal.coordinator, secure.coordinator)):
        assert ours.kinds == theirs.kinds
        for one_array, other in zip(ours[:4], theirs[:4], strict=True):
            assert np.array_equal(one_array, other)


def test_classes_that_answers_determine_are_those_of_brute_force() -> None:
    graph = load("demo:80", features=False)
    classes = [round(math.log(degree)) if degree else 0 for degree in graph.degrees]
    alone = []
    for victim in range(graph.devices):
        around = graph.neighbours[graph.offsets[victim] : graph.offsets[victim + 1]].tolist()
        answers = [np.sign(classes[u] - classes[victim]) for u in around]
        possible = [
            c
            for c in range(int(math.log(graph.devices)) + 2)
            if [np.sign(classes[u] - c) for u in around] == answers
        ]
        if around:
            alone.append(len(possible) == 1)
    assert determined_classes(recorded(graph, "greedy")) == pytest.approx(np.mean(alone))


def test_thresholds_are_public() -> None:
    """An attacker that knows no state follows them from rounds in which nobody sent anything."""
    now = [0]
    of_round: list[int] = []

    def listening(state: EdgeAssignment, threshold: int, step: int) -> Program[int]:
        now[0] = threshold
        return (yield from hand_over(state, threshold, step))

    def watch(topic: Topic, outboxes: Sequence[Outbox]) -> None:
        of_round.extend([now[0]] * sum(outbox.batch.messages for outbox in outboxes))

    with watching(watch, balancers__optimal__hand_over=listening):
        run = recorded(load("demo:300", features=False), "optimal")
    got = np.array([name.startswith("got ") for name in run.pairs.kinds])[run.pairs.kind]
    assert run.pairs.value[got].tolist() == of_round
    assert (run.pairs.value != NO_VALUE).all()
    assert len(set(of_round)) > 3


def test_no_private_number_is_printed() -> None:
    run = recorded(load("demo:60", features=False), "greedy")
    assert "array" not in repr(run)
