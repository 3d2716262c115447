"""The ledger: what left every device, counted where it passed.

Each party has a ledger of its own, which sees only that party's messages: one entry when they
leave, one when they arrive. The observer of a simulation adds the ledgers of all shards up.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.device.shard import COORDINATOR, Shard
from lumos.exchange.batch import Batch
from lumos.exchange.topic import PUBLIC_ID, TOPICS, Door, Topic
from lumos.typing import Ints

_FLUSH_ROWS = 1 << 18

Spent = tuple[Ints, Ints, npt.NDArray[np.float64]]
"""Positions of senders, ids of receivers, ε of each message."""

ANSWER_BITS = {2: 1.0, 3: math.log2(3)}
"""What an answer can tell, by the number of possible answers."""


class _Tally:
    """A count per row, fed with many small batches and added up in large ones."""

    __slots__ = ("_counts", "_rows", "_waiting", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._counts = np.zeros(size, np.int64)
        self._rows: list[Ints] = []
        self._waiting = 0

    def add(self, rows: Ints) -> None:
        """Count each of `rows` once more."""
        self._rows.append(rows)
        self._waiting += len(rows)
        if self._waiting > _FLUSH_ROWS:
            self.counts()

    def counts(self) -> Ints:
        """[size] how often each row was counted."""
        if self._rows:
            self._counts += np.bincount(np.concatenate(self._rows), minlength=self.size)
            self._rows, self._waiting = [], 0
        return self._counts


class Booking(NamedTuple):
    """What one booked unit of the ideal comparison stands for, at one of its two ends."""

    sent: int
    received: int
    bytes_sent: int
    bytes_received: int


class Ledger:
    """The ledger of one shard (or of the coordinator, with `shard=None`).

    Counts, per hosted device: messages and bytes by topic, rounds in which it took part, answers
    of secret comparisons that it revealed, and ε spent on each receiver. Where the bodies of a
    topic have one size, bytes follow from messages.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._size = 1 if shard is None else len(shard)
        self._sent: dict[Topic, _Tally] = {}
        self._received: dict[Topic, _Tally] = {}
        self._bytes_sent: dict[Topic, Ints] = {}
        self._bytes_received: dict[Topic, Ints] = {}
        self._booked: dict[tuple[Topic, Booking], _Tally] = {}
        self._present: list[Ints] = []
        self._rounds = np.zeros(self._size, np.int64)
        self.round = 0
        """Rounds that the federation has completed."""
        self._answers = {2: _Tally(self._size), 3: _Tally(self._size)}
        slots = 0 if shard is None else len(shard.neighbours)
        self._slot_answers = {2: _Tally(slots), 3: _Tally(slots)}
        self._stranger_answers: dict[int, Counter[tuple[int, int]]] = {2: Counter(), 3: Counter()}
        self.lengths: set[int] = set()
        """Public bit lengths ℓ of the comparisons that were carried out."""
        self._spent: dict[bool, list[Spent]] = {False: [], True: []}
        self._before: dict[str, dict[str, Ints]] = {}

    def sent(self, topic: Topic, rows: Ints, batch: Batch) -> None:
        """Count messages that left, and the ε they spent. `rows`: positions of the senders."""
        self._tally(self._sent, topic).add(rows)
        if batch.lengths is not None:
            self._weigh(self._bytes_sent, topic, rows, batch.lengths)
        if self._shard is not None:
            self._present.append(rows)
        if batch.epsilon is not None:
            self._spent[topic.common].append((rows, batch.receiver, batch.epsilon))

    def received(self, topic: Topic, rows: Ints, batch: Batch) -> None:
        """Count messages that arrived. `rows`: positions of the receivers."""
        self._tally(self._received, topic).add(rows)
        if batch.lengths is not None:
            self._weigh(self._bytes_received, topic, rows, batch.lengths)
        if self._shard is not None:
            self._present.append(rows)

    def close_round(self) -> None:
        """The round is over."""
        if self._present:
            rows = self._present[0] if len(self._present) == 1 else np.concatenate(self._present)
            self._rounds[rows] = self._rounds[rows] + 1  # repeated rows write the same value
            self._present.clear()
        self.round += 1

    def book(self, topic: Topic, rows: Ints, booking: Booking) -> None:
        """Book messages of the ideal comparison by formula, once for each of `rows`."""
        self._tally(self._booked, (topic, booking)).add(rows)

    def book_rounds(self, rows: Ints, rounds: int) -> None:
        """Book `rounds` further rounds in which the hosted devices `rows` take part."""
        self._rounds[rows] = self._rounds[rows] + rounds  # repeated rows write the same value

    def answered(self, rows: Ints, slots: Ints, ways: int) -> None:
        """Count answers of secret comparisons between neighbours.

        Args:
            rows: [answers] position of the hosted device.
            slots: [answers] slot of the peer.
            ways: 2 or 3 possible answers.
        """
        self._answers[ways].add(rows)
        self._slot_answers[ways].add(slots)

    def answered_strangers(self, rows: Ints, peers: Ints, ways: int) -> None:
        """Count answers between devices that are no neighbours, for example candidates."""
        self._answers[ways].add(rows)
        self._stranger_answers[ways].update(zip(rows.tolist(), peers.tolist(), strict=True))

    def pair_bits(self, rows: Ints, slots: Ints, peers: Ints) -> npt.NDArray[np.float64]:
        """[pairs] what each pair has revealed so far; slot -1 for a stranger."""
        known = np.zeros(len(rows))
        for ways, tally in self._slot_answers.items():
            if tally.size:
                known += ANSWER_BITS[ways] * tally.counts()[slots]
        for index in np.flatnonzero(slots < 0).tolist():
            known[index] = self._stranger_bits((int(rows[index]), int(peers[index])))
        return known

    def _stranger_bits(self, pair: tuple[int, int]) -> float:
        answers = self._stranger_answers
        return sum(ANSWER_BITS[ways] * count[pair] for ways, count in answers.items())

    def _tally(self, tallies: dict[Any, _Tally], key: Any) -> _Tally:
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = _Tally(self._size)
        return tally

    def _weigh(self, sums: dict[Topic, Ints], topic: Topic, rows: Ints, lengths: Ints) -> None:
        total = sums.setdefault(topic, np.zeros(self._size, np.int64))
        np.add.at(total, rows, lengths)

    def epsilon(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """[hosted] largest ε that each device spent on one receiver, and on all together.

        What is common to all receivers counts once for all of them.
        """
        largest, together = np.zeros(self._size), np.zeros(self._size)
        everything = [_by_pair(spent) for spent in self._spent.values()]
        rows, _, spent = _by_pair(everything)
        np.maximum.at(largest, rows, spent)
        for common, (rows, _, spent) in zip(self._spent, everything, strict=True):
            if common:
                most = np.zeros(self._size)
                np.maximum.at(most, rows, spent)
                together += most
            else:
                np.add.at(together, rows, spent)
        return largest, together

    def state(self) -> dict[str, Ints]:
        """Flows and rounds so far, for a checkpoint. Comparisons and ε are not in it."""
        flows = {
            f"{name}|{flow}": counts
            for name, of_topic in self.flows().items()
            for flow, counts in of_topic.items()
        }
        return {**flows, "|rounds": self._rounds.copy(), "|round": np.array([self.round])}

    def restore(self, state: dict[str, Ints]) -> None:
        """Go on from a checkpoint: flows and rounds are what they were then."""
        self._sent, self._received, self._booked = {}, {}, {}
        self._bytes_sent, self._bytes_received = {}, {}
        self._before = {}
        for key, counts in state.items():
            name, flow = key.rsplit("|", 1)
            if name:
                self._before.setdefault(name, {})[flow] = counts
        self._rounds = state["|rounds"].copy()
        self.round = int(state["|round"][0])

    def flows(self) -> dict[str, dict[str, Ints]]:
        """By topic name: messages and bytes, sent and received, per hosted device."""
        flows = {name: dict(of_topic) for name, of_topic in self._before.items()}

        def add(topic: Topic, flow: str, counts: Ints) -> None:
            of_topic = flows.setdefault(topic.name, {})
            of_topic[flow] = of_topic[flow] + counts if flow in of_topic else counts

        for direction, tallies in (("sent", self._sent), ("received", self._received)):
            for topic, tally in tallies.items():
                add(topic, direction, tally.counts())
                if topic.shape is not None:
                    add(topic, f"bytes_{direction}", tally.counts() * topic.size)
        for direction, sums in (("sent", self._bytes_sent), ("received", self._bytes_received)):
            for topic, total in sums.items():
                add(topic, f"bytes_{direction}", total)
        for (topic, booking), tally in self._booked.items():
            for flow, units in booking._asdict().items():
                add(topic, flow, tally.counts() * units)
        return flows


def _by_pair(spent: list[Spent]) -> Spent:
    """ε of each pair of sender and receiver, added up."""
    if not spent:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    rows, receivers, epsilon = (np.concatenate(parts) for parts in zip(*spent, strict=True))
    pairs: Ints
    pairs, which = np.unique((rows << 32) + receivers, return_inverse=True)
    totals = np.zeros(len(pairs))
    np.add.at(totals, which, epsilon)
    return pairs >> 32, pairs & 0xFFFFFFFF, totals


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
    """What their answers could tell: 1 bit for two possible answers, log2 3 for three."""
    comparison_lengths: tuple[int, ...]
    """Public bit lengths ℓ of the compared values."""
    control_bits: float
    """log2 of the vocabulary per control message, at least 1. That none came is not counted."""
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
    pairs: Ints = field(repr=False)
    """[pairs, 2] the pairs that compared, the smaller id first, in increasing order."""
    pair_bits: npt.NDArray[np.float64] = field(repr=False)
    """[pairs] comparison bits that the two revealed to each other."""
    device_epsilon: npt.NDArray[np.float64] = field(repr=False)
    """[devices] largest ε spent on one receiver."""
    device_epsilon_collusion: npt.NDArray[np.float64] = field(repr=False)
    """[devices] ε spent on all receivers together."""

    def revealed_by(self, device: int) -> dict[int, float]:
        """To whom a device has revealed comparison bits, and how many."""
        mine = (self.pairs == device).any(axis=1)
        others = self.pairs[mine].sum(axis=1) - device
        return dict(zip(others.tolist(), self.pair_bits[mine].tolist(), strict=True))

    def totals(self) -> dict[str, Any]:
        """The totals as plain numbers, for JSON."""
        simple = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        topics = {name: vars(line) for name, line in self.topics.items()}
        return {**simple, "comparison_lengths": self.comparison_lengths, "topics": topics}


def add_up(ledgers: list[Ledger], total: int) -> LedgerReport:
    """Add the ledgers of all shards (and the coordinator) up. Simulation only.

    Args:
        ledgers: one per shard, and the coordinator's.
        total: number of devices.
    """
    bits = ANSWER_BITS
    rounds = np.zeros(total, np.int64)
    flows = {name: np.zeros(total + 1, np.int64) for name in Booking._fields}
    topics: dict[str, dict[str, int]] = {}
    comparison_bits = np.zeros(total)
    epsilon, collusion = np.zeros(total), np.zeros(total)
    answers = {2: 0, 3: 0}
    pairs: list[Ints] = [np.empty((0, 2), np.int64)]
    pair_bits: list[npt.NDArray[np.float64]] = [np.empty(0)]
    for ledger in ledgers:
        shard = ledger._shard
        place = np.array([COORDINATOR]) if shard is None else shard.devices
        for name, of_topic in ledger.flows().items():
            line = topics.setdefault(name, dict.fromkeys(flows, 0))
            for flow, counts in of_topic.items():
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
        me = shard.devices[shard.owner]
        once = np.flatnonzero((me < shard.neighbours) & (np.asarray(slot_bits) > 0))
        pairs.append(np.stack([me[once], shard.neighbours[once]], axis=1))
        pair_bits.append(np.asarray(slot_bits, np.float64)[once])
        for row, peer in set().union(*ledger._stranger_answers.values()):
            if shard.devices[row] < peer:
                pairs.append(np.array([[shard.devices[row], peer]]))
                pair_bits.append(np.array([ledger._stranger_bits((row, peer))]))
        epsilon[place], collusion[place] = ledger.epsilon()
    who, told = np.concatenate(pairs), np.concatenate(pair_bits)
    order = np.lexsort((who[:, 1], who[:, 0]))
    who, told = who[order], told[order]
    lines = {name: _line(TOPICS[name], line) for name, line in sorted(topics.items())}
    return LedgerReport(
        messages=sum(line.messages for line in lines.values()),
        bytes=sum(line.bytes for line in lines.values()),
        rounds=ledgers[0].round,
        comparisons=sum(answers.values()) // 2,
        comparison_bits=sum(bits[ways] * count for ways, count in answers.items()) / 2,
        comparison_lengths=tuple(sorted(set().union(*(ledger.lengths for ledger in ledgers)))),
        control_bits=sum(
            line.messages * _bits_of(TOPICS[name], total)
            for name, line in lines.items()
            if TOPICS[name].door is Door.CONTROL
        ),
        bits_per_pair_mean=float(told.mean()) if len(told) else 0.0,
        bits_per_pair_largest=float(told.max(initial=0.0)),
        epsilon_per_receiver=float(epsilon.max(initial=0.0)),
        epsilon_collusion=float(collusion.max(initial=0.0)),
        topics=lines,
        messages_sent=flows["sent"][:total],
        messages_received=flows["received"][:total],
        bytes_sent=flows["bytes_sent"][:total],
        bytes_received=flows["bytes_received"][:total],
        device_rounds=rounds,
        device_comparison_bits=comparison_bits,
        pairs=who,
        pair_bits=told,
        device_epsilon=epsilon,
        device_epsilon_collusion=collusion,
    )


def _bits_of(topic: Topic, total: int) -> float:
    """Bits that one control message can tell; a single word still tells that it was sent."""
    ways = total if topic.vocabulary is PUBLIC_ID else len(topic.vocabulary)
    return max(1.0, math.log2(ways))


def _line(topic: Topic, flows: dict[str, int]) -> TopicLine:
    return TopicLine(
        door=topic.door.value,
        messages=flows["received"],
        bytes=flows["bytes_received"],
        learns=topic.learns,
        ideal=topic.booked,
    )
