"""Before a device opens anything, enough neighbours confirm it: liars open no pair secret of it.

The liars here are clever: they pass on to each device only what fits what they told it.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from tests.secagg.federation import Federation, drawn_graph, fixed_sum, shards_of

from lumos.device import COORDINATOR, Shard
from lumos.errors import Forged, ProtocolError
from lumos.exchange import EVERY_DOOR, Batch, Endpoint, Outbox, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import AggregateSettings, SecureAggregator, SecureCoordinator
from lumos.secagg.masks import WORD
from lumos.secagg.shares import PAIR, SELF
from lumos.secagg.topics import ALIVE, CONFIRMED, LEFT_OUT, LOST, MASKED, REVEAL, SUM, WRAPPED

TOTAL, K, T = 12, 6, 5
SETTINGS = AggregateSettings(neighbours=K, threshold=T)
VECTORS = np.random.default_rng(0).normal(scale=20, size=(TOTAL, 4))
VICTIM = 1
HOLDERS = drawn_graph(TOTAL, K).of(np.array([VICTIM]))[0]


class Recorded(SecureAggregator):
    """Remembers of whom it gave out what: (holder, owner, which)."""

    given: list[tuple[int, int, int]]

    def _reveal(self, vault: Any, rows: Any, joined: Any, lost: Any) -> Outbox:
        for row in rows.tolist():
            for slot in np.flatnonzero(joined[row]).tolist():
                owner = int(self._neighbours[row, slot])
                which = PAIR if lost[row, slot] else SELF
                type(self).given.append((int(self._shard.devices[row]), owner, which))
        return super()._reveal(vault, rows, joined, lost)


class TellsLost(SecureCoordinator):
    """Tells some devices of others that these are lost, and hides words that would betray it."""

    lies: list[tuple[int, int]]
    """To whom, about whom."""

    def _name(self, topic: Any, receivers: Any, named: Any) -> Outbox:
        outbox = super()._name(topic, receivers, named)
        if topic is not LOST:
            return outbox
        to, about = np.array(self.lies, np.int64).reshape(-1, 2).T
        batch = outbox.batch
        return Outbox(
            LOST,
            Batch(
                np.append(batch.sender, np.full(len(to), COORDINATOR)),
                np.append(batch.receiver, to),
                np.append(batch.body, about),
            ),
        )

    def _relay(self, alive: Any, words: Any) -> Outbox:
        words = words.copy()
        senders = np.flatnonzero(alive)
        for to, about in self.lies:
            if alive[about] and alive[to]:
                slot = self._graph.slots(np.array([about]), np.array([to]))[0]
                row = np.searchsorted(senders, about)
                words[row, WORD * slot : WORD * (slot + 1)] = 0
        return super()._relay(alive, words)


def play(lies: list[tuple[int, int]], shards: int = TOTAL) -> list[tuple[int, int, int]]:
    """What devices give out if a coordinator tells these lies."""
    given: list[tuple[int, int, int]] = []
    federation = Federation(
        SETTINGS,
        shards=shards,
        aggregator=type("Recorded", (Recorded,), {"given": given}),
        coordinator=type("TellsLost", (TellsLost,), {"lies": lies}),
    )
    with suppress(Forged):  # shares of two secrets give neither
        federation.run([VECTORS])
    return given


def shares_of(given: list[tuple[int, int, int]], owner: int, which: int) -> int:
    return sum(one[1:] == (owner, which) for one in given)


def opens(given: list[tuple[int, int, int]], device: int) -> bool:
    return any(holder == device for holder, _, _ in given)


def test_without_lies_everybody_opens_every_self_secret() -> None:
    given = play([])
    assert len(given) == TOTAL * K
    assert {which for _, _, which in given} == {SELF}


@pytest.mark.parametrize("told", range(K + 1))
def test_asking_some_holders_for_one_secret_and_some_for_the_other(told: int) -> None:
    """So many holders hear that the victim is lost; it hears that it is in the sum."""
    given = play([(int(holder), VICTIM) for holder in HOLDERS[:told]])
    opened = [shares_of(given, VICTIM, which) >= T for which in (SELF, PAIR)]
    assert not all(opened)
    assert not (opens(given, VICTIM) and opened[PAIR])
    assert opens(given, VICTIM) == (K - told >= T)


@pytest.mark.parametrize("broken", [False, True])
def test_a_device_that_all_holders_hear_is_lost_opens_nothing(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin needs no confirmation: it opens, and so do its holders its pair secret."""
    if broken:
        monkeypatch.setattr("lumos.secagg.device.confirm", unconfirmed)
    given = play([(int(holder), VICTIM) for holder in HOLDERS])
    assert shares_of(given, VICTIM, PAIR) >= T
    assert opens(given, VICTIM) == broken


def unconfirmed(shard: Any, opening: Any, in_sum: Any, own: Any, *rest: Any) -> Program[Any]:
    rows = np.flatnonzero(opening)
    body = np.zeros((len(rows), WORD * K), np.uint8)
    yield ALIVE.send(
        shard.devices[rows],
        np.full(len(rows), COORDINATOR),
        body,
        lengths=np.full(len(rows), WORD * K),
    )
    yield CONFIRMED.nothing()
    return opening


@pytest.mark.parametrize("seed", range(12))
def test_whoever_opens_anything_keeps_its_pair_secret(seed: int) -> None:
    """Random lies about random devices: the invariant of the module, for all devices at once."""
    random = np.random.default_rng(seed)
    graph = drawn_graph(TOTAL, K)
    lies = []
    for device in range(TOTAL):
        some = graph.of(np.array([device]))[0]
        told = random.choice(some, random.integers(0, K - T + 1), replace=False)
        lies += [(device, int(other)) for other in told]
    given = play(lies)
    for device in range(TOTAL):
        both = [shares_of(given, device, which) >= T for which in (SELF, PAIR)]
        assert not all(both)
        assert not (opens(given, device) and both[PAIR])


class Withholding(SecureCoordinator):
    """Passes on the words of too few."""

    def _relay(self, alive: Any, words: Any) -> Outbox:
        kept = words.copy()
        kept[T - 1 :] = 0
        return super()._relay(alive, kept)


def test_withheld_confirmations_open_nothing() -> None:
    federation = Federation(SETTINGS, coordinator=Withholding)
    _, [total] = federation.run([VECTORS])
    assert total is None
    assert federation.bodies("aggregate/reveal") == {}


class Replaying(SecureCoordinator):
    """Says in every sum what confirmed devices in the first."""

    first: Outbox | None = None

    def _relay(self, alive: Any, words: Any) -> Outbox:
        fresh = super()._relay(alive, words)
        self.first = self.first or fresh
        return self.first


def test_old_words_confirm_nobody() -> None:
    federation = Federation(SETTINGS, coordinator=Replaying)
    with pytest.raises(Forged, match="words that confirm"):
        federation.run([VECTORS, VECTORS])
    assert {len(bodies) for bodies in federation.bodies("aggregate/reveal").values()} == {1}


class ReplaysCorrections(SecureCoordinator):
    """Takes what devices published in the first sum for what they published in the second."""

    first: Any = None

    def _reconstructed(self, devices: Any, which: int, published: Any, *rest: Any) -> Any:
        if which == SELF:
            published = self.first = published if self.first is None else self.first
        return super()._reconstructed(devices, which, published, *rest)


def test_old_corrections_open_nothing() -> None:
    with pytest.raises(Forged, match="bound itself"):
        Federation(SETTINGS, coordinator=ReplaysCorrections).run([VECTORS, VECTORS])


@pytest.mark.parametrize("skipping", [True, False])
def test_a_device_that_missed_a_sum_comes_back(skipping: bool) -> None:
    """It is not there at all in the second sum. Without `skip` its words are of another one."""
    absent, topics = 3, (WRAPPED, LEFT_OUT, MASKED, LOST, ALIVE, CONFIRMED, REVEAL, SUM)
    settings = AggregateSettings(neighbours=K, threshold=T - 1)

    def devices(shard: Shard, endpoint: Endpoint) -> Program[list[Any]]:
        aggregator = SecureAggregator(shard, endpoint, settings)
        yield from aggregator.setup()
        sums = []
        for number in range(3):
            if number == 1 and shard.devices[0] == absent:
                for topic in topics:
                    yield topic.nothing()
                if skipping:
                    aggregator.skip()
            else:
                sums.append((yield from aggregator.sum(VECTORS[shard.devices])))
        return sums

    def coordinator(endpoint: Endpoint) -> Program[list[Any]]:
        party = SecureCoordinator(TOTAL, endpoint, settings)
        yield from party.setup()
        sums = []
        for _ in range(3):
            sums.append((yield from party.sum(4)))
        return sums

    transport = Loopback(shards_of(TOTAL, TOTAL), EVERY_DOOR)
    if not skipping:
        with pytest.raises(ProtocolError):
            transport.run(devices, coordinator)
        return
    heard, sums = transport.run(devices, coordinator)
    truth = fixed_sum(VECTORS, 32)
    assert np.array_equal(sums[0], truth)
    assert np.array_equal(sums[1], fixed_sum(np.delete(VECTORS, absent, axis=0), 32))
    assert np.array_equal(sums[2], truth)
    assert len(heard[absent]) == 2
    assert np.array_equal(heard[absent][1], truth)
