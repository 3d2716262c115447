"""The ledger counts what was delivered: a spy that sees the bytes counts the same."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest
from tests.exchange.balancing import balanced, idle_program
from tests.exchange.post import PostOffice
from tests.exchange.transports import Isolated

from lumos.device import COORDINATOR, Shard, cut
from lumos.exchange import PUBLIC_ID, Door, Endpoint, LedgerReport, Program, Topic
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import demo_graph

Declare = Callable[..., Topic]
DEVICES = 12


def listed(counts: Counter[int], total: int) -> list[int]:
    return [counts[device] for device in range(total)]


def agree(ledger: LedgerReport, spy: PostOffice, total: int) -> None:
    assert ledger.messages_sent.tolist() == listed(spy.sent, total)
    assert ledger.messages_received.tolist() == listed(spy.received, total)
    assert ledger.bytes_sent.tolist() == listed(spy.bytes_sent, total)
    assert ledger.bytes_received.tolist() == listed(spy.bytes_received, total)
    assert ledger.device_rounds.tolist() == listed(spy.took_part, total)
    assert ledger.rounds == spy.rounds
    assert ledger.messages == spy.received.total() == spy.sent.total()
    assert ledger.bytes == spy.bytes_received.total()
    assert {name: line.messages for name, line in ledger.topics.items()} == spy.of_topic
    assert {name: line.bytes for name, line in ledger.topics.items()} == spy.bytes_of_topic


def sent_equals_received(transport: Isolated | Loopback) -> None:
    totals: dict[str, Counter[str]] = {}
    for endpoint in (*transport.endpoints, transport.coordinator):
        for name, flows in endpoint.ledger.flows().items():
            for flow, counts in flows.items():
                totals.setdefault(name, Counter())[flow] += int(counts.sum())
    for name, flows_of_topic in totals.items():
        assert flows_of_topic["sent"] == flows_of_topic["received"], name
        assert flows_of_topic["bytes_sent"] == flows_of_topic["bytes_received"], name


def chatter(declare: Declare) -> tuple[Callable[..., Program[None]], Callable[..., Program[None]]]:
    """Random messages of every kind; a round is drawn by each device for itself."""
    plain = declare("test/plain", dtype=np.float64, shape=(3,))
    ragged = declare("test/ragged", shape=None, coordinator="both")
    release = declare("test/release", door=Door.RELEASE, dtype=np.int32)

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        for number in range(12):
            coin = shard.randomness.uniform(np.arange(len(shard)), "chatter", number, 4)
            speaks = np.flatnonzero(coin[:, 0] < 0.4)
            times = 1 + (coin[speaks, 1] * 3).astype(np.int64)
            sender = np.repeat(shard.devices[speaks], times)
            receiver = (sender * 5 + np.repeat((coin[speaks, 2] * DEVICES).astype(int), times)) % (
                DEVICES
            )
            if number % 3 == 0:
                yield plain.send(sender, receiver, np.ones((len(sender), 3)))
            elif number % 3 == 1:
                receiver = np.where(receiver % 4 == 0, COORDINATOR, receiver)
                lengths = (sender + number) % 8
                yield ragged.send(
                    sender, receiver, np.ones((len(sender), 9), np.uint8), lengths=lengths
                )
            else:
                body = np.ones(len(sender), np.int32)
                yield release.send(sender, receiver, body, epsilon=np.full(len(sender), 0.25))

    def coordinator(endpoint: Endpoint) -> Program[None]:
        for _ in range(4):
            yield ragged.send(
                np.array([COORDINATOR]),
                np.array([7]),
                np.ones((1, 9), np.uint8),
                lengths=np.array([5]),
            )

    return device, coordinator


@pytest.mark.parametrize("shards", [1, 2, 5, DEVICES])
def test_random_chatter_is_counted_as_the_spy_counts_it(
    declare: Declare,
    shards: int,
    ledger_differences: Callable[[LedgerReport, LedgerReport], list[str]],
) -> None:
    graph = demo_graph(DEVICES, features=False)
    device, coordinator = chatter(declare)
    spied = Isolated(cut(graph, shards, seed=1))
    spied.run(device, coordinator)
    ledger = spied.ledger()
    agree(ledger, spied.office, DEVICES)
    sent_equals_received(spied)
    assert spied.office.received[COORDINATOR] > 0
    transport = Loopback(cut(graph, shards, seed=1))
    transport.run(device, coordinator)
    sent_equals_received(transport)
    assert ledger_differences(ledger, transport.ledger()) == []


@pytest.mark.parametrize("balancer", ["greedy", "mcmc"])
def test_secret_comparisons_are_counted_as_the_spy_counts_them(balancer: str) -> None:
    transports: list[Isolated] = []

    def transport_of(
        shards: Sequence[Shard], doors: Collection[Door], ideal: Collection[Topic]
    ) -> Isolated:
        transports.append(Isolated(shards, doors, ideal))
        return transports[0]

    graph = demo_graph(8, features=False)
    _, ledger = balanced(graph, 3, balancer, "secure", transport_of)
    agree(ledger, transports[0].office, 8)
    sent_equals_received(transports[0])


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_epsilon_per_receiver_and_under_collusion(declare: Declare, shards: int) -> None:
    topic = declare("test/noisy", door=Door.RELEASE)
    # (round, sender, receiver, ε): to one receiver ε adds up, all receivers together may collude.
    releases = [
        (0, 0, 1, 0.5),
        (0, 0, 2, 0.25),
        (0, 3, 0, 2.0),
        (1, 0, 1, 0.5),
        (1, 2, 1, 0.125),
        (1, 2, 1, 0.125),
        (1, 2, 3, 0.125),
    ]

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        hosted = set(shard.devices.tolist())
        for number in (0, 1):
            own = [row for row in releases if row[0] == number and row[1] in hosted]
            yield topic.send(
                np.array([row[1] for row in own], np.int64),
                np.array([row[2] for row in own], np.int64),
                np.zeros(len(own), np.uint8),
                epsilon=np.array([row[3] for row in own]),
            )

    transport = Loopback(cut(demo_graph(4, features=False), shards, seed=0))
    transport.run(device, idle_program)
    ledger = transport.ledger()
    assert ledger.device_epsilon.tolist() == [1.0, 0.0, 0.25, 2.0]
    assert ledger.device_epsilon_collusion.tolist() == [1.25, 0.0, 0.375, 2.0]
    assert (ledger.epsilon_per_receiver, ledger.epsilon_collusion) == (2.0, 2.0)


KINDS = {
    "own, the same for all": {"common": True},
    "own, for each receiver": {},
    "edges, the same for all": {"common": True, "about_edges": True},
    "edges, for each receiver": {"about_edges": True},
}
"""Kinds of releases, and what a topic says of them."""


def releases(
    topics: dict[str, Topic], first: int = 0, last: int = 9
) -> Callable[[Shard, Endpoint], Program[None]]:
    """Rounds in which each device tells all its neighbours something of one kind, or nothing."""

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        everyone = np.arange(len(shard))
        for number in range(first, last):
            name = list(KINDS)[number % len(KINDS)]
            speaks = shard.randomness.uniform(everyone, "speaks", number)[:, 0] < 0.7
            slots = np.flatnonzero(speaks[shard.owner])
            yield topics[name].send(
                shard.ids_of(shard.owner[slots]),
                shard.neighbours[slots],
                np.zeros(len(slots), np.uint8),
                epsilon=np.full(len(slots), epsilon_of(number)),
            )

    return device


def epsilon_of(number: int) -> float:
    """ε of a release in one round; sums of them are exact."""
    return 2.0**-number


@pytest.mark.parametrize("shards", [1, 2, 5, DEVICES])
def test_releases_about_edges_are_counted_apart(declare: Declare, shards: int) -> None:
    """In closed form: the same for all receivers counts once, one for each counts for each."""
    graph = demo_graph(DEVICES, features=False)
    topics = {
        name: declare(f"test/{number}", door=Door.RELEASE, **settings)
        for number, (name, settings) in enumerate(KINDS.items())
    }
    transport = Loopback(cut(graph, shards, seed=1))
    transport.run(releases(topics), idle_program)
    whole = cut(graph, 1, seed=1)[0]
    spent = {name: np.zeros(DEVICES) for name in KINDS}
    for number in range(9):
        speaks = whole.randomness.uniform(np.arange(DEVICES), "speaks", number)[:, 0] < 0.7
        spent[list(KINDS)[number % len(KINDS)]] += epsilon_of(number) * speaks * (graph.degrees > 0)
    own = [spent[name] for name in list(KINDS)[:2]]
    edges = [spent[name] for name in list(KINDS)[2:]]
    ledger = transport.ledger()
    assert ledger.device_edge_epsilon.tolist() == (edges[0] + edges[1] * graph.degrees).tolist()
    assert ledger.edge_epsilon == ledger.device_edge_epsilon.max() > 0
    assert ledger.device_epsilon.tolist() == (own[0] + own[1]).tolist()
    assert ledger.device_epsilon_collusion.tolist() == (own[0] + own[1] * graph.degrees).tolist()
    assert ledger.epsilon_collusion == ledger.device_epsilon_collusion.max()
    totals = ledger.totals()
    assert totals["edge_epsilon"] == ledger.edge_epsilon
    assert "device_edge_epsilon" not in totals
    for endpoint in transport.endpoints:
        shard = endpoint.ledger.shard
        assert shard is not None
        expected = ledger.device_edge_epsilon[shard.devices]
        assert endpoint.ledger.edge_epsilon().tolist() == expected.tolist()


def test_without_releases_about_edges_their_epsilon_is_zero(declare: Declare) -> None:
    transport = Loopback(cut(demo_graph(DEVICES, features=False), 2, seed=1))
    transport.run(*chatter(declare))
    ledger = transport.ledger()
    assert ledger.edge_epsilon == 0
    assert not ledger.device_edge_epsilon.any()
    assert ledger.epsilon_collusion > 0


@pytest.mark.parametrize("stop", [0, 1, 4, 9])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_resumed_ledger_is_that_of_one_run(
    declare: Declare,
    shards: int,
    stop: int,
    ledger_differences: Callable[[LedgerReport, LedgerReport], list[str]],
) -> None:
    """Flows come from the checkpoint, ε from the repeated releases; neither is counted twice."""
    graph = demo_graph(DEVICES, features=False)
    topics = {
        name: declare(f"test/{number}", door=Door.RELEASE, **settings)
        for number, (name, settings) in enumerate(KINDS.items())
    }
    one = Loopback(cut(graph, shards, seed=1))
    one.run(releases(topics, 0, stop), idle_program)
    parties = (*one.endpoints, one.coordinator)
    checkpoint = [
        {key: counts.copy() for key, counts in endpoint.ledger.state_dict().items()}
        for endpoint in parties
    ]
    one.run(releases(topics, stop), idle_program)
    resumed = Loopback(cut(graph, shards, seed=1))
    resumed.run(releases(topics, 0, stop), idle_program)
    for endpoint, state in zip((*resumed.endpoints, resumed.coordinator), checkpoint, strict=True):
        endpoint.ledger.load_state_dict(state)
    resumed.run(releases(topics, stop), idle_program)
    assert ledger_differences(one.ledger(), resumed.ledger()) == []
    assert resumed.ledger().edge_epsilon > 0


def test_a_device_takes_part_in_rounds_in_which_it_sends_or_receives(declare: Declare) -> None:
    topic = declare("test/rounds")

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        one = shard.devices[shard.devices == 1]
        for times in (1, 3, 0):  # three messages in one round are one round
            yield topic.send(
                np.repeat(one, times),
                np.repeat(one + 1, times),
                np.zeros(len(one) * times, np.uint8),
            )

    transport = Loopback(cut(demo_graph(4, features=False), 2, seed=0))
    transport.run(device, idle_program)
    ledger = transport.ledger()
    assert ledger.device_rounds.tolist() == [0, 2, 2, 0]
    assert (ledger.rounds, ledger.messages) == (3, 4)


def test_control_bits(declare: Declare) -> None:
    """By hand: a single word 1 bit, one of four 2 bits, an id of 16 devices 4 bits."""
    single = declare("test/single", door=Door.CONTROL, vocabulary=("done",))
    four = declare("test/four", door=Door.CONTROL, vocabulary=("a", "b", "c", "d"))
    named = declare("test/named", door=Door.CONTROL, dtype=np.int64, vocabulary=PUBLIC_ID)

    def device(shard: Shard, _: Endpoint) -> Program[None]:
        me, other = shard.devices, shard.devices ^ 1
        yield single.send(me, other, 0)
        yield four.send(me[:1], other[:1], 3)
        yield named.send(me[:2], other[:2], me[:2])

    transport = Loopback(cut(demo_graph(16, features=False), 1, seed=0))
    transport.run(device, idle_program)
    assert transport.ledger().control_bits == 16 * 1 + 1 * 2 + 2 * 4


def test_totals_are_plain_numbers(declare: Declare) -> None:
    transport = Loopback(cut(demo_graph(DEVICES, features=False), 2, seed=1))
    transport.run(*chatter(declare))
    totals = transport.ledger().totals()
    assert totals["messages"] == sum(line["messages"] for line in totals["topics"].values())
    assert all(not isinstance(value, np.ndarray) for value in totals.values())
