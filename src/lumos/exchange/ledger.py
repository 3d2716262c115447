"""The ledger: what left every device, counted where it passed.

Each party has a ledger of its own, which sees only that party's messages: one entry when they
leave, one when they arrive. The observer of a simulation adds the ledgers of all shards up.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.batch import Batch
from lumos.exchange.topic import TOPICS, Door, Topic

Ints = npt.NDArray[np.int64]

_FLUSH_ROWS = 1 << 20


class _Tally:
    """A count per device, fed with many small batches and added up in large ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._counts = np.zeros(size, np.int64)
        self._rows: list[Ints] = []
        self._weights: list[Ints | int] = []
        self._waiting = 0

    def add(self, rows: Ints, weight: Ints | int) -> None:
        if len(rows) >= _FLUSH_ROWS // 4:
            self._add_up(rows, weight)
            return
        self._rows.append(rows)
        self._weights.append(weight)
        self._waiting += len(rows)
        if self._waiting > _FLUSH_ROWS:
            self._flush()

    def counts(self) -> Ints:
        self._flush()
        return self._counts

    def _flush(self) -> None:
        if self._rows:
            weights = [
                np.full(len(rows), weight, np.int64) if isinstance(weight, int) else weight
                for rows, weight in zip(self._rows, self._weights, strict=True)
            ]
            self._add_up(np.concatenate(self._rows), np.concatenate(weights))
            self._rows, self._weights, self._waiting = [], [], 0

    def _add_up(self, rows: Ints, weight: Ints | int) -> None:
        if isinstance(weight, int):
            self._counts += np.bincount(rows, minlength=self.size) * weight
        else:  # sums below 2^53 are exact in float64
            sums = np.bincount(rows, weights=weight, minlength=self.size)
            self._counts += sums.astype(np.int64)


class _TopicCount:
    """Messages and bytes of one topic, per device, sent and received."""

    def __init__(self, size: int) -> None:
        self.sent = _Tally(size)
        self.received = _Tally(size)
        self.bytes_sent = _Tally(size)
        self.bytes_received = _Tally(size)


class Ledger:
    """The ledger of one shard (or of the coordinator, with `shard=None`).

    Counts, per hosted device: messages and bytes by topic, rounds in which it took part, answers
    of secret comparisons that it revealed, and ε spent on each receiver.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._size = 1 if shard is None else len(shard)
        self._topics: dict[str, _TopicCount] = {}
        self._last_round = np.full(self._size, -1, np.int64)
        self._rounds = np.zeros(self._size, np.int64)
        self.round = 0
        """Rounds that the federation has completed."""
        self._answers = {2: _Tally(self._size), 3: _Tally(self._size)}
        slots = 0 if shard is None else len(shard.neighbours)
        self._slot_answers = {2: _Tally(slots), 3: _Tally(slots)}
        self._stranger_answers: dict[tuple[int, int], list[int]] = {}
        self._epsilon: dict[tuple[int, int], float] = {}

    def sent(self, topic: Topic, batch: Batch) -> None:
        """Count messages that left, and the ε they spent."""
        if not len(batch):
            return
        rows = self._local(batch.sender)
        self._count(self._topic(topic).sent, self._topic(topic).bytes_sent, rows, batch)
        if batch.epsilon is not None:
            self._spend(rows, batch.receiver, batch.epsilon)

    def received(self, topic: Topic, batch: Batch) -> None:
        """Count messages that arrived."""
        if len(batch):
            rows = self._local(batch.receiver)
            self._count(self._topic(topic).received, self._topic(topic).bytes_received, rows, batch)

    def close_round(self) -> None:
        """The round is over."""
        self.round += 1

    def book(self, topic: Topic, rows: Ints, sent: Ints, got: Ints, nbytes: Ints, into: Ints) -> None:
        """Book messages of the ideal comparison by formula.

        Args:
            topic: the topic of the secret comparison.
            rows: [entries] position of the hosted device.
            sent: [entries] messages it would have sent; `got` those it would have received.
            nbytes: [entries] bytes sent; `into` bytes received.
        """
        count = self._topic(topic)
        count.sent.add(rows, sent)
        count.received.add(rows, got)
        count.bytes_sent.add(rows, nbytes)
        count.bytes_received.add(rows, into)

    def book_rounds(self, rows: Ints, rounds: int) -> None:
        """Book `rounds` further rounds in which the hosted devices `rows` take part."""
        self._rounds[rows] = self._rounds[rows] + rounds  # repeated rows write the same value

    def answered(self, rows: Ints, slots: Ints, peers: Ints, ways: int) -> None:
        """Count answers of secret comparisons.

        Args:
            rows: [answers] position of the hosted device.
            slots: [answers] slot of the peer, or -1 where the peer is no neighbour.
            peers: [answers] id of the peer.
            ways: 2 or 3 possible answers.
        """
        self._answers[ways].add(rows, 1)
        near = slots >= 0
        if near.all():
            self._slot_answers[ways].add(slots, 1)
            return
        self._slot_answers[ways].add(slots[near], 1)
        for row, peer in zip(rows[~near].tolist(), peers[~near].tolist(), strict=True):
            self._stranger_answers.setdefault((row, peer), [0, 0])[ways - 2] += 1

    def _topic(self, topic: Topic) -> _TopicCount:
        count = self._topics.get(topic.name)
        if count is None:
            count = self._topics[topic.name] = _TopicCount(self._size)
        return count

    def _local(self, ids: Ints) -> Ints:
        return np.zeros(len(ids), np.int64) if self._shard is None else self._shard.local(ids)

    def _count(self, messages: _Tally, nbytes: _Tally, rows: Ints, batch: Batch) -> None:
        messages.add(rows, 1)
        nbytes.add(rows, batch.body.itemsize * math.prod(batch.body.shape[1:]))
        fresh = rows[self._last_round[rows] != self.round]
        self._last_round[fresh] = self.round
        self._rounds[fresh] = self._rounds[fresh] + 1  # repeated rows write the same value

    def _spend(self, rows: Ints, receivers: Ints, epsilon: npt.NDArray[np.float64]) -> None:
        for row, receiver, spent in zip(
            rows.tolist(), receivers.tolist(), epsilon.tolist(), strict=True
        ):
            self._epsilon[row, receiver] = self._epsilon.get((row, receiver), 0.0) + spent


@dataclass(frozen=True, kw_only=True, eq=False)
class TopicLine:
    """One topic of a finished run."""

    door: str
    """The door through which it left."""
    messages: int
    """Messages delivered."""
    bytes: int
    """Bytes of their bodies; a carrier's own headers are not counted."""
    learns: str
    """Who learns what from it."""
    ideal: bool
    """True when an ideal comparison booked these messages by formula."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LedgerReport:
    """The ledgers of all parties added up, by the observer of a simulation."""

    messages: int
    """Messages delivered, over all devices and the coordinator."""
    bytes: int
    """Bytes of their bodies."""
    rounds: int
    """Rounds of the federation: how often everybody synchronised."""
    comparisons: int
    """Secret comparisons carried out."""
    comparison_bits: float
    """What their answers could tell, in bits: 1 for a two-way answer, log2 3 for a three-way one."""
    control_bits: float
    """What control messages could tell, in bits: at least 1 each."""
    bits_per_pair_mean: float
    """Mean comparison bits of the pairs that compared at all."""
    bits_per_pair_largest: float
    """Largest comparison bits of one pair."""
    epsilon_per_receiver: float
    """Largest ε that one device spent on one receiver."""
    epsilon_collusion: float
    """Largest ε that one device spent on all its receivers together."""
    topics: dict[str, TopicLine]
    """By topic."""
    messages_sent: Ints = field(repr=False)
    """[devices] messages sent by each device."""
    messages_received: Ints = field(repr=False)
    """[devices] messages received by each device."""
    bytes_sent: Ints = field(repr=False)
    """[devices] bytes sent by each device."""
    bytes_received: Ints = field(repr=False)
    """[devices] bytes received by each device."""
    device_rounds: Ints = field(repr=False)
    """[devices] rounds in which each device sent or received something."""
    device_comparison_bits: npt.NDArray[np.float64] = field(repr=False)
    """[devices] comparison bits that each device revealed, over all its peers."""
    device_epsilon: npt.NDArray[np.float64] = field(repr=False)
    """[devices] largest ε spent on one receiver."""
    device_epsilon_collusion: npt.NDArray[np.float64] = field(repr=False)
    """[devices] ε spent on all receivers together."""

    def totals(self) -> dict[str, Any]:
        """The totals as plain numbers, for JSON."""
        simple = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        topics = {name: vars(line) for name, line in self.topics.items()}
        return {**simple, "topics": topics}


def add_up(ledgers: list[Ledger], total: int) -> LedgerReport:
    """Add the ledgers of all shards (and the coordinator) up. Simulation only.

    Args:
        ledgers: one per shard, and the coordinator's.
        total: number of devices.
    """
    bits = {2: 1.0, 3: math.log2(3)}
    rounds = np.zeros(total, np.int64)
    flows = {name: np.zeros(total + 1, np.int64) for name in vars(_TopicCount(0))}
    topics: dict[str, dict[str, int]] = {}
    comparison_bits = np.zeros(total)
    epsilon, collusion = np.zeros(total), np.zeros(total)
    answers = {2: 0, 3: 0}
    pairs: list[npt.NDArray[np.float64]] = []
    for ledger in ledgers:
        shard = ledger._shard
        place = np.array([COORDINATOR]) if shard is None else shard.devices
        for name, count in ledger._topics.items():
            line = topics.setdefault(name, dict.fromkeys(flows, 0))
            for flow, tally in vars(count).items():
                counts = tally.counts()
                flows[flow][place] += counts
                line[flow] += int(counts.sum())
        if shard is None:
            continue
        rounds[place] = ledger._rounds
        for ways, tally in ledger._answers.items():
            comparison_bits[place] += tally.counts() * bits[ways]
            answers[ways] += int(tally.counts().sum())
        # Each pair once, at the end with the smaller id.
        slot_bits = sum(bits[ways] * tally.counts() for ways, tally in ledger._slot_answers.items())
        once = shard.devices[shard.owner] < shard.neighbours
        pairs.append(np.asarray(slot_bits, np.float64)[once])
        strangers = [
            two * bits[2] + three * bits[3]
            for (row, peer), (two, three) in ledger._stranger_answers.items()
            if shard.devices[row] < peer
        ]
        pairs.append(np.array(strangers, np.float64))
        for (row, _), spent in ledger._epsilon.items():
            device = int(place[row])
            epsilon[device] = max(epsilon[device], spent)
            collusion[device] += spent
    compared = np.concatenate(pairs) if pairs else np.empty(0)
    compared = compared[compared > 0]
    lines = {name: _line(TOPICS[name], line) for name, line in sorted(topics.items())}
    return LedgerReport(
        messages=sum(line.messages for line in lines.values()),
        bytes=sum(line.bytes for line in lines.values()),
        rounds=ledgers[0].round,
        comparisons=sum(answers.values()) // 2,
        comparison_bits=sum(bits[ways] * count for ways, count in answers.items()) / 2,
        control_bits=sum(
            line.messages * _bits_of(TOPICS[name])
            for name, line in lines.items()
            if TOPICS[name].door is Door.CONTROL
        ),
        bits_per_pair_mean=float(compared.mean()) if len(compared) else 0.0,
        bits_per_pair_largest=float(compared.max()) if len(compared) else 0.0,
        epsilon_per_receiver=float(epsilon.max(initial=0.0)),
        epsilon_collusion=float(collusion.max(initial=0.0)),
        topics=lines,
        messages_sent=flows["sent"][:total],
        messages_received=flows["received"][:total],
        bytes_sent=flows["bytes_sent"][:total],
        bytes_received=flows["bytes_received"][:total],
        device_rounds=rounds,
        device_comparison_bits=comparison_bits,
        device_epsilon=epsilon,
        device_epsilon_collusion=collusion,
    )


def _bits_of(topic: Topic) -> float:
    """Bits that one control message can tell; a single word still tells that it was sent."""
    return max(1.0, math.log2(len(topic.vocabulary)))


def _line(topic: Topic, flows: dict[str, int]) -> TopicLine:
    return TopicLine(
        door=topic.door.value,
        messages=flows["received"],
        bytes=flows["bytes_received"],
        learns=topic.learns,
        ideal=topic.booked,
    )
