"""Strict links: what is held back influences nothing but what it is held back for.

Two federations have equal training edges, and other edges held back. Everything that passes must be
the same bit by bit, but for the asks and answers of validation pairs and the one sum of the choice;
broken twins show that the comparison would see it.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.narrow import present
from tests.runs.running import Message, Wire, listening
from tests.strict.linking import linked, losses

from lumos import Graph
from lumos.device.coins import PublicCoins
from lumos.runs import train as job
from lumos.runs.federation import Federation
from lumos.runs.run import Run
from lumos.strict.link_trainer import StrictLinker
from lumos.strict.score_models import PAIRS, LabelledPairs, ScoredPairs
from lumos.training.split import EdgeSplit, pairs_without_edge, split_edges
from lumos.training.strangers import Strangers

pytestmark = pytest.mark.usefixtures("short")

ASK, ANSWER = "strict/ask", "strict/answer"
Pair = tuple[int, int]


class World(NamedTuple):
    """A whole graph, and how it was split."""

    whole: Graph
    split: EdgeSplit


def with_edges(graph: Graph, edges: np.ndarray) -> Graph:
    return Graph.from_edges(edges, devices=graph.devices, features=graph.features, name="world")


def worlds(graph: Graph) -> tuple[World, World]:
    """Equal training edges; the second's other edges are none of the first's."""
    first = split_edges(graph, PublicCoins(0))
    held, test = len(first.validation), len(first.test)
    fresh = pairs_without_edge(
        graph.edge_list(), graph.devices, held + test, np.random.default_rng(1)
    )
    training = first.training.edge_list()
    found = []
    for validation, tested in ((first.validation, first.test), (fresh[:held], fresh[held:])):
        split = EdgeSplit(
            training=with_edges(graph, training),
            validation=validation,
            test=tested,
            validation_strangers=first.validation_strangers,
            test_strangers=first.test_strangers,
        )
        edges = np.concatenate([training, validation, tested])
        found.append(World(with_edges(graph, edges), split))
    return found[0], found[1]


class Seen(NamedTuple):
    result: Run
    wire: Wire
    validation: set[Pair]
    """(asker, asked) of the pairs that validate."""
    training: set[Pair]


def live(world: World, **settings: Any) -> Seen:
    """Run one world; everything else is the program's own."""
    federations: list[Federation] = []
    init = Federation.__init__

    def remembered(self: Federation, *args: Any, **others: Any) -> None:
        init(self, *args, **others)
        federations.append(self)

    with pytest.MonkeyPatch.context() as patch, listening() as wire:
        patch.setattr(job, "split_edges", lambda graph, coins: world.split)
        patch.setattr(Federation, "__init__", remembered)
        result = linked(world.whole, **settings)
    # Who asks whom, from the rules: the first validation edge of each device, and one stranger for
    # it; and so many strangers to train with.
    (shard,) = federations[0].shards
    first: dict[int, int] = {}
    for u, v in world.split.validation.tolist():
        first.setdefault(u, v)
    many = np.isin(np.arange(len(shard)), list(first)).astype(np.int64)
    others = Strangers(shard).draw(many, "validation strangers", 0)
    far = Strangers(shard).draw(np.full(len(shard), PAIRS), "strangers", 0)
    validation = set(first.items()) | set(zip(*(part.tolist() for part in others), strict=True))
    training = set(zip(*(part.tolist() for part in far), strict=True))
    return Seen(result, wire, validation, training)


def of_training(seen: Seen) -> list[tuple[str, list[Message]]]:
    """All rounds, but for what was asked and answered for validation alone."""
    validation_only = seen.validation - seen.training
    found = []
    for topic, messages in seen.wire.rounds:
        if topic in (ASK, ANSWER):
            messages = [
                message
                for message in messages
                if ((message.sender, message.receiver)[:: 1 if topic == ASK else -1])
                not in validation_only
            ]
        found.append((topic, messages))
    return found


CHOICE_ROUNDS = 4
"""Rounds of one ideal sum."""


def differences(one: Seen, other: Seen) -> set[str]:
    """Where two lives differ, before the choice: topics, losses, weights, what is kept."""
    found = set()
    left, right = of_training(one), of_training(other)
    if [topic for topic, _ in left] != [topic for topic, _ in right]:
        found.add("rounds")
    pairs = list(zip(left, right, strict=False))
    for (topic, mine), (_, others) in pairs[:-CHOICE_ROUNDS]:
        if mine != others:
            found.add(topic)
    if not np.array_equal(losses(one.result), losses(other.result), equal_nan=True):
        found.add("losses")
    for ours, theirs in (
        (one.result.model.weights, other.result.model.weights),
        (one.result.model.kept, other.result.model.kept),
        ({"h": one.result.embeddings}, {"h": other.result.embeddings}),
    ):
        found |= {
            name
            for name in ours.keys() - {"choice"}
            if not np.array_equal(ours[name], theirs[name])
        }
    return found


def choice_of(seen: Seen) -> list[tuple[str, list[Message]]]:
    return seen.wire.rounds[-CHOICE_ROUNDS:]


@pytest.mark.parametrize("settings", [{}, {"protect": "none", "relay": "none"}])
def test_what_is_held_back_shows_in_its_own_asks_and_in_the_choice_only(
    settings: dict[str, Any], sixty: Graph
) -> None:
    one, other = (live(world, **settings) for world in worlds(sixty))
    assert one.result.metrics != other.result.metrics  # the observer does see other edges
    assert one.validation != other.validation
    assert one.training == other.training
    assert differences(one, other) == set()
    # And these do differ: the validation pairs are asked for, and their answers are in the choice.
    for seen in (one, other):
        asked = {(m.sender, m.receiver) for m in seen.wire.all_of(ASK)}
        assert asked == seen.training | seen.validation
    assert {topic for topic, _ in choice_of(one)} == {"aggregate/ideal"}
    assert choice_of(one) != choice_of(other)


def test_test_edges_show_nowhere(sixty: Graph) -> None:
    first, second = worlds(sixty)
    mixed = EdgeSplit(**{**vars(first.split), "test": second.split.test})
    edges = [first.split.training.edge_list(), first.split.validation, second.split.test]
    other = World(with_edges(sixty, np.concatenate(edges)), mixed)
    one, two = (live(world, relay=2) for world in (first, other))
    assert one.wire.rounds == two.wire.rounds
    assert differences(one, two) == set()
    assert one.result.training.choice == two.result.training.choice
    assert one.result.metrics["val_auc"] == two.result.metrics["val_auc"]
    assert one.result.metrics["test_auc"] != two.result.metrics["test_auc"]


class TestBrokenTwins:
    """Each lets one held-back edge in somewhere, and the comparison sees where."""

    def test_strangers_that_avoid_what_is_held_back(
        self, sixty: Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hidden: set[Pair] = set()
        draw = Strangers.draw

        def avoiding(self: Strangers, counts: Any, purpose: str, step: int) -> Any:
            rows, peers = draw(self, counts, purpose, step)
            bad = [
                tuple(sorted(pair)) in hidden
                for pair in zip(rows.tolist(), peers.tolist(), strict=True)
            ]
            _, again = draw(self, counts, purpose, step + 1000)
            return rows, np.where(bad, again, peers)

        monkeypatch.setattr(Strangers, "draw", avoiding)
        seen = []
        for world in worlds(sixty):
            hidden.clear()
            held = np.concatenate([world.split.test, world.split.validation])
            hidden.update(map(tuple, held.tolist()))
            seen.append(live(world, relay="none"))
        assert {ASK, "losses", "trust"} <= differences(*seen)

    def test_validation_pairs_that_train(
        self, sixty: Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = StrictLinker._prepare_inputs

        def all_train(self: StrictLinker) -> Any:
            yield from original(self)
            parts = [present(self._training), present(self._validation)]
            columns = [np.concatenate(some) for some in zip(*(p for p, _ in parts), strict=True)]
            edge = np.concatenate([flags for _, flags in parts])
            order = np.argsort(columns[0], kind="stable")
            pairs = ScoredPairs(*(column[order] for column in columns))
            self._training = LabelledPairs(pairs, edge[order])

        monkeypatch.setattr(StrictLinker, "_prepare_inputs", all_train)
        one, other = (live(world, relay="none") for world in worlds(sixty))
        assert {"losses", "trust", "aggregate/ideal"} <= differences(one, other)

    def test_a_federation_of_all_edges(self, sixty: Graph) -> None:
        broken = [
            World(whole, EdgeSplit(**{**vars(split), "training": whole}))
            for whole, split in worlds(sixty)
        ]
        found = differences(*(live(world, relay="none") for world in broken))
        assert {"strict/symbol", "strict/neighbour-answer", "losses"} <= found
