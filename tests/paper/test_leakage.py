"""Link prediction: no validation or test edge may influence a tree, a release or a training loss.

Two federations have equal training edges, and other edges held back. Whatever a device does in
training must be the same in both; broken twins show that the comparison would see it.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.runs.running import Message, Wire, listening, losses, run

from lumos import Graph
from lumos.device.randomness import PublicRandomness
from lumos.paper import tasks
from lumos.paper.tasks import NonNeighbours
from lumos.runs import loop as job
from lumos.runs import train as prepared
from lumos.runs.run import Run
from lumos.training.given_split import HeldOut
from lumos.training.split import EdgeSplit, pairs_without_edge, split_edges
from lumos.trees.balance import BalancedParts, balance

STATISTICS_OF_VALIDATION = 2  # the last numbers of the summed vector


class World(NamedTuple):
    """A whole graph, and how it was split."""

    whole: Graph
    split: EdgeSplit


def with_edges(graph: Graph, edges: np.ndarray) -> Graph:
    return Graph.from_edges(
        edges, features=graph.features, labels=graph.labels, ids=None, name="world"
    )


def worlds(graph: Graph) -> tuple[World, World]:
    """Two worlds of equal training edges; the second's other edges are none of the first's."""
    first = split_edges(graph, PublicRandomness(0))
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
            validation_non_neighbours=first.validation_non_neighbours,
            test_non_neighbours=first.test_non_neighbours,
        )
        found.append(
            World(with_edges(graph, np.concatenate([training, validation, tested])), split)
        )
    return found[0], found[1]


class Seen(NamedTuple):
    result: Run
    wire: Wire
    links: list[tasks.Link]


def live(world: World, **settings: Any) -> Seen:
    """Run one world; everything else is the program's own."""
    links: list[tasks.Link] = []
    init = tasks.Link.__init__

    def remembered(self: tasks.Link, *args: Any) -> None:
        init(self, *args)
        links.append(self)

    with pytest.MonkeyPatch.context() as patch, listening() as wire:
        held_out = HeldOut(world.split, "of a test", "a name", None)
        patch.setattr(prepared, "edge_split", lambda *_: held_out)
        patch.setattr(tasks.Link, "__init__", remembered)
        result = run(world.whole, task="link", **{"select": "last", "epochs": 4, **settings})
    return Seen(result, wire, links)


def validation_pairs(links: list[tasks.Link]) -> Counter[tuple[int, int]]:
    """(asker, asked) of what is asked for validation only, in every epoch."""
    pairs: Counter[tuple[int, int]] = Counter()
    for link in links:
        for rows, peers in ((link._held_rows, link._held_peers), link._held_out):
            asker = link._shard.devices[rows]
            pairs.update(zip(asker.tolist(), peers.tolist(), strict=True))
    return pairs


def of_training(seen: Seen) -> list[tuple[str, list[Message]]]:
    """Everything that passed, but for what was asked and answered for validation."""
    found = []
    for topic, messages in seen.wire.rounds:
        left = validation_pairs(seen.links)
        kept = []
        for message in messages:
            asker = (message.sender, message.receiver)
            if topic == "train/embedding":
                asker = asker[::-1]
            if topic in ("train/ask", "train/embedding") and left[asker]:
                left[asker] -= 1
            elif topic in ("aggregate/ideal", "aggregate/clear-sum/ideal"):
                cut = len(message.body) - 8 * STATISTICS_OF_VALIDATION
                kept.append(message._replace(body=message.body[: max(60, cut)]))
            elif topic.startswith("masked-flag/"):
                kept.append(message._replace(body=b""))  # one-time pads, fresh in every run
            else:
                kept.append(message)
        found.append((topic, kept))
    return found


def differences(one: Seen, other: Seen) -> set[str]:
    """Where two lives differ: trees, topics, losses. Bit by bit."""
    found = set()
    if not np.array_equal(one.result.trees.keep, other.result.trees.keep):
        found.add("trees")
    if losses(one.result) != losses(other.result):
        found.add("losses")
    left, right = of_training(one), of_training(other)
    if [topic for topic, _ in left] != [topic for topic, _ in right]:
        found.add("rounds")
    for (topic, mine), (_, others) in zip(left, right, strict=False):
        if mine != others:
            found.add(topic)
    return found


@pytest.mark.parametrize("balancer", ["greedy", "mcmc", "optimal"])
def test_no_edge_that_was_held_back_influences_training(balancer: str, sixty: Graph) -> None:
    steps = {"iterations": 30} if balancer == "mcmc" else {}
    one, other = (live(world, balancer=balancer, **steps) for world in worlds(sixty))
    assert one.result.metrics != other.result.metrics  # the observer does see other edges
    assert validation_pairs(one.links) != validation_pairs(other.links)
    assert differences(one, other) == set()
    assert np.array_equal(one.result.embeddings, other.result.embeddings)


def test_test_edges_do_not_even_choose_the_weights(sixty: Graph) -> None:
    first, second = worlds(sixty)
    mixed = EdgeSplit(**{**vars(first.split), "test": second.split.test})
    edges = [first.split.training.edge_list(), first.split.validation, second.split.test]
    other = World(with_edges(sixty, np.concatenate(edges)), mixed)
    one, two = (live(world, select="validation") for world in (first, other))
    assert one.wire.rounds == two.wire.rounds
    assert losses(one.result) == losses(two.result)
    assert np.array_equal(one.result.embeddings, two.result.embeddings)


def test_the_split_itself_leaves_no_trace_in_the_training_graph(sixty: Graph) -> None:
    split = split_edges(sixty, PublicRandomness(0))
    held = np.concatenate([split.validation, split.test])
    for u, v in held.tolist():
        mine = split.training.neighbours[split.training.offsets[u] : split.training.offsets[u + 1]]
        assert v not in mine
    assert split.training.edges + len(held) == sixty.edges


class TestBrokenTwins:
    """Each lets one held-back edge in somewhere, and the comparison sees where."""

    def test_non_neighbours_that_avoid_test_edges(
        self, sixty: Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hidden: set[tuple[int, int]] = set()
        draw = NonNeighbours.draw

        def avoiding(self: NonNeighbours, counts: Any, purpose: str, step: int) -> Any:
            rows, peers = draw(self, counts, purpose, step)
            asker = self._shard.devices[rows].tolist()
            bad = [
                (min(u, v), max(u, v)) in hidden for u, v in zip(asker, peers.tolist(), strict=True)
            ]
            _, again = draw(self, counts, purpose, step + 1000)
            return rows, np.where(bad, again, peers)

        monkeypatch.setattr(NonNeighbours, "draw", avoiding)
        seen = []
        for world in worlds(sixty):
            hidden.clear()
            hidden.update(map(tuple, world.split.test.tolist()))
            seen.append(live(world))
        assert {"train/ask", "losses"} <= differences(*seen)

    def test_trees_from_all_edges(self, sixty: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        whole: list[Graph] = []

        def of_all_edges(parts: Any, *args: Any, **settings: Any) -> BalancedParts:
            of_whole = balance(whole[-1], *args, **settings)
            device = np.repeat(np.arange(60), whole[-1].degrees)
            arcs = device * 60 + whole[-1].neighbours
            (part,) = parts
            mine = np.repeat(part.devices, np.diff(part.offsets)) * 60 + part.neighbours
            keep = of_whole.keep[np.searchsorted(arcs, mine)]
            return BalancedParts([keep], of_whole.ledger, of_whole.history, of_whole.seconds)

        monkeypatch.setattr(job, "balance_parts", of_all_edges)
        seen = []
        for world in worlds(sixty):
            whole.append(world.whole)
            seen.append(live(world))
        assert {"trees", "train/features", "losses"} <= differences(*seen)

    def test_validation_pairs_that_train(
        self, sixty: Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pairs = tasks.Link._pairs

        def all_train(self: tasks.Link, epoch: int) -> Any:
            rows, peers, signs, training = pairs(self, epoch)
            return rows, peers, signs, np.ones_like(training)

        monkeypatch.setattr(tasks.Link, "_pairs", all_train)
        one, other = (live(world) for world in worlds(sixty))
        assert {"losses", "train/embedding-gradient"} <= differences(one, other)

    def test_a_federation_of_all_edges(self, sixty: Graph) -> None:
        broken = [
            World(whole, EdgeSplit(**{**vars(split), "training": whole}))
            for whole, split in worlds(sixty)
        ]
        assert {"train/features", "losses"} <= differences(*map(live, broken))
