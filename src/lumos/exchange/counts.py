"""Counts of one ledger, per hosted device.

`Tally` counts rows, `Flows` messages and bytes by topic, `Spending` ε by receiver, `AnswerCounts`
answers of comparisons and scores. `lumos.exchange.ledger` holds one of each.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.messages import Topic
from lumos.typing import Arrays, Doubles, Ints

_FLUSH_ROWS = 1 << 18


class Tally:
    """A count per row, fed with many small batches and added up in large ones.

    Counts of every row at once, as ideal sums book them, are kept as one number.

    Args:
        size: number of rows.
    """

    __slots__ = ("_counts", "_every", "_rows", "_waiting", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._every = 0
        self._counts: Ints | None = None
        self._rows: list[Ints] = []
        self._waiting = 0

    def add(self, rows: Ints) -> None:
        """Count each of `rows` once more. The caller may reuse its array."""
        if len(rows) == self.size and each_row(rows, self.size):
            self._every += 1
        elif len(rows) > _FLUSH_ROWS:  # counted now, and so not copied
            self._count(rows)
        else:
            self._rows.append(rows.copy())
            self._waiting += len(rows)
            if self._waiting > _FLUSH_ROWS:
                self._flush()

    def counts(self) -> Ints:
        """[size] how often each row was counted."""
        counts = self.counts_or_one()
        if isinstance(counts, int):
            counts, self._every = np.full(self.size, counts, np.int64), 0
            self._counts = counts
        return counts

    def counts_or_one(self) -> Ints | int:
        """[size] the same; or one number, where every row has it."""
        self._flush()
        if self._counts is None:
            return self._every
        if self._every:
            self._counts += self._every
            self._every = 0
        return self._counts

    def _flush(self) -> None:
        if self._rows:
            self._count(np.concatenate(self._rows))
            self._rows, self._waiting = [], 0

    def _count(self, rows: Ints) -> None:
        counts = np.bincount(rows, minlength=self.size)
        if self._counts is None:
            self._counts = counts
        else:
            self._counts += counts


def each_row(rows: Ints, size: int) -> bool:
    """Return whether `rows` [size] are 0, 1, … `size` - 1."""
    if not size:
        return True
    ends = rows[0] == 0 and rows[-1] == size - 1
    return bool(ends and (rows[1:] > rows[:-1]).all())


def nondecreasing(rows: Ints) -> bool:
    """Return whether no row is below the one before it."""
    return not np.count_nonzero(rows[1:] < rows[:-1])


# Messages and bytes, by topic and direction.

Key = TypeVar("Key", bound=Hashable)

FlowsByTopic = dict[str, dict[str, Ints]]
"""By topic name, by field of `Booking`: [hosted] a count per hosted device."""


class Booking(NamedTuple):
    """Messages and bytes of one unit that an ideal backend books, at one of its two ends."""

    sent: int
    received: int
    bytes_sent: int
    bytes_received: int


class Flows:
    """Counts of messages and bytes, per hosted device.

    Where the bodies of a topic have one size, bytes follow from messages.

    Args:
        size: number of hosted devices.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._sent: dict[Topic, Tally] = {}
        self._received: dict[Topic, Tally] = {}
        self._bytes_sent: dict[Topic, Ints] = {}
        self._bytes_received: dict[Topic, Ints] = {}
        self._booked: dict[tuple[Topic, Booking], Tally] = {}
        self._restored: FlowsByTopic = {}

    def sent(self, topic: Topic, rows: Ints, lengths: Ints | None) -> None:
        """Count messages that left. `rows`: positions of the senders."""
        self._tally(self._sent, topic).add(rows)
        if lengths is not None:
            self._add_bytes(self._bytes_sent, topic, rows, lengths)

    def received(self, topic: Topic, rows: Ints, lengths: Ints | None) -> None:
        """Count messages that arrived. `rows`: positions of the receivers."""
        self._tally(self._received, topic).add(rows)
        if lengths is not None:
            self._add_bytes(self._bytes_received, topic, rows, lengths)

    def book(self, topic: Topic, rows: Ints, booking: Booking) -> None:
        """Count one booked unit for each of `rows`."""
        self._tally(self._booked, (topic, booking)).add(rows)

    def by_topic(self) -> FlowsByTopic:
        """By topic name: messages and bytes, sent and received, per hosted device.

        Arrays are read-only where all devices have the same number: there they take no memory.
        """
        flows: dict[str, dict[str, Ints | int]] = {
            name: dict(of_topic) for name, of_topic in self._restored.items()
        }

        def add(topic: Topic, flow: str, counts: Ints | int) -> None:
            of_topic = flows.setdefault(topic.name, {})
            of_topic[flow] = of_topic[flow] + counts if flow in of_topic else counts

        for direction, tallies in (("sent", self._sent), ("received", self._received)):
            for topic, tally in tallies.items():
                counts = tally.counts_or_one()
                add(topic, direction, counts)
                if topic.shape is not None:
                    add(topic, f"bytes_{direction}", counts * topic.size)
        for direction, sums in (("sent", self._bytes_sent), ("received", self._bytes_received)):
            for topic, total in sums.items():
                add(topic, f"bytes_{direction}", total)
        for (topic, booking), tally in self._booked.items():
            counts = tally.counts_or_one()
            for flow, units in booking._asdict().items():
                add(topic, flow, counts * units)
        return {
            name: {flow: np.broadcast_to(counts, self._size) for flow, counts in of_topic.items()}
            for name, of_topic in flows.items()
        }

    def load_state_dict(self, flows: Mapping[str, Mapping[str, Ints]]) -> None:
        """Continue from counts of `by_topic`; what was counted since is dropped."""
        self._sent, self._received, self._booked = {}, {}, {}
        self._bytes_sent, self._bytes_received = {}, {}
        self._restored = {name: dict(of_topic) for name, of_topic in flows.items()}

    def _tally(self, tallies: dict[Key, Tally], key: Key) -> Tally:
        tally = tallies.get(key)
        if tally is None:
            tally = tallies[key] = Tally(self._size)
        return tally

    def _add_bytes(self, sums: dict[Topic, Ints], topic: Topic, rows: Ints, lengths: Ints) -> None:
        total = sums.get(topic)
        if total is None:
            total = sums[topic] = np.zeros(self._size, np.int64)
        if len(rows) < self._size:
            np.add.at(total, rows, lengths)
        elif (length := int(lengths[0])) == lengths.max() == lengths.min():
            total += length * np.bincount(rows, minlength=self._size)
        else:  # whole numbers far below 2^53: exact as floats
            total += np.bincount(rows, lengths, self._size).astype(np.int64)


# ε that the devices of one shard spent, by receiver.
#
# Most releases go to all neighbours of a device, at one ε: one number per device counts them. What
# goes to some neighbours only is counted by slot, and what goes to non-neighbours by pair.

Spent = tuple[Ints, Ints, Doubles]
"""Positions of senders, ids of receivers, ε of each message."""


_MAX_PARTS = 256
"""Batches of messages to non-neighbours that are kept before they are added up by pair."""


class Spending:
    """ε of every release, per hosted device and receiver.

    Args:
        shard: the hosted devices; None for the coordinator, which has no neighbours.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._size = 1 if shard is None else len(shard)
        self._shard = shard
        # By whether a sender sends the same to all its receivers.
        self._of_kind = {common: _PairTotals(shard) for common in (False, True)}

    def add(self, rows: Ints, receivers: Ints, epsilon: Doubles, *, common: bool) -> None:
        """Count the ε of messages. The sender may reuse its arrays.

        Args:
            rows: [messages] positions of the senders.
            receivers: [messages] ids.
            epsilon: [messages].
            common: whether each sender sends the same to all its receivers.
        """
        self._of_kind[common].add(rows, receivers, epsilon)

    def state_dict(self) -> Arrays:
        """ε of every pair of sender and receiver, for a participant that may be restarted."""
        names = ("rows", "receivers", "epsilon")
        return {
            f"{'common' if common else 'apart'}/{name}": np.array(column)
            for common, of_kind in self._of_kind.items()
            for name, column in zip(names, of_kind.pairs(), strict=True)
        }

    def load_state_dict(self, arrays: Arrays) -> None:
        """Go on from these."""
        for common in self._of_kind:
            kind = "common" if common else "apart"
            rows, receivers, epsilon = (
                arrays[f"{kind}/{name}"] for name in ("rows", "receivers", "epsilon")
            )
            spent = epsilon > 0
            if spent.any():
                self.add(rows[spent], receivers[spent], epsilon[spent], common=common)

    def totals(self) -> tuple[Doubles, Doubles]:
        """[hosted] largest ε that each device spent on one receiver, and on all together.

        A release that is common to all receivers counts once for all of them.
        """
        apart, common = self._of_kind[False], self._of_kind[True]
        if self._shard is not None and not apart.spent and common.alike is not None:
            most = np.where(self._shard.degree > 0, common.alike, 0.0)
            return most, most.copy()
        of_apart, of_common = apart.pairs(), common.pairs()
        largest, most, together = np.zeros((3, self._size))
        rows, _, spent = _added(of_apart, of_common)
        np.maximum.at(largest, rows, spent)
        np.maximum.at(most, of_common[0], of_common[2])
        np.add.at(together, of_apart[0], of_apart[2])
        return largest, together + most


class _PairTotals:
    """ε of each pair of sender and receiver, added up in the order of the messages."""

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._by_row: Doubles | None = None if shard is None else np.zeros(len(shard))
        """[hosted] ε spent on every neighbour alike; None once neighbours differ."""
        self._by_slot = np.empty(0)
        """[slots] ε spent on each neighbour, once they differ."""
        self._non_neighbours: list[Spent] = []
        self.spent = False
        """True once anything was spent."""

    @property
    def alike(self) -> Doubles | None:
        """[hosted] ε on every neighbour, where all have the same and no non-neighbour has any."""
        return None if self._non_neighbours else self._by_row

    def add(self, rows: Ints, receivers: Ints, epsilon: Doubles) -> None:
        self.spent = True
        shard = self._shard
        if shard is None:
            self._add_non_neighbours((rows.copy(), receivers.copy(), epsilon.copy()))
            return
        if self._by_row is not None:
            counts = np.bincount(rows, minlength=len(shard))
            if _to_all_neighbours(shard, counts, rows, receivers, epsilon):
                senders = np.flatnonzero(counts)
                self._by_row[senders] += epsilon[(np.cumsum(counts) - counts)[senders]]
                return
            self._by_slot = np.repeat(self._by_row, shard.degree)
            self._by_row = None
        slots = shard.slots_or_none(rows, receivers)
        near = slots >= 0
        np.add.at(self._by_slot, slots[near], epsilon[near])
        if not near.all():
            self._add_non_neighbours((rows[~near], receivers[~near], epsilon[~near]))

    def _add_non_neighbours(self, spent: Spent) -> None:
        """Count ε by pair; now and then they are added up, in the same order."""
        self._non_neighbours.append(spent)
        if len(self._non_neighbours) > _MAX_PARTS:
            self._non_neighbours = [_by_pair(self._non_neighbours)]

    def pairs(self) -> Spent:
        """Every pair once, by sender and receiver; neighbours on whom nothing was spent have 0."""
        shard = self._shard
        if shard is None or not self.spent:
            return _by_pair(self._non_neighbours)
        by_slot = self._by_slot
        if self._by_row is not None:
            by_slot = np.repeat(self._by_row, shard.degree)
        near = (shard.owner, shard.neighbours, by_slot)
        return _by_pair([near, *self._non_neighbours]) if self._non_neighbours else near


def _to_all_neighbours(
    shard: Shard, counts: Ints, rows: Ints, receivers: Ints, epsilon: Doubles
) -> bool:
    """Return whether each sender sends to all its neighbours, in the order of slots, at one ε."""
    sending = counts > 0
    if not np.array_equal(counts[sending], shard.degree[sending]) or not nondecreasing(rows):
        return False
    everybody = len(rows) == len(shard.neighbours)
    neighbours = (
        shard.neighbours if everybody else shard.neighbours[np.repeat(sending, shard.degree)]
    )
    if not np.array_equal(receivers, neighbours):
        return False
    changes = (epsilon[1:] != epsilon[:-1]) & (rows[1:] == rows[:-1])
    return epsilon.strides[0] == 0 or not np.count_nonzero(changes)


def _added(one: Spent, other: Spent) -> Spent:
    """Both together, by pair."""
    if one[1] is other[1]:  # the neighbours of a shard
        return one[0], one[1], one[2] + other[2]
    return _by_pair([one, other])


def _by_pair(spent: list[Spent]) -> Spent:
    """ε of each pair of sender and receiver, added up."""
    if not spent:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    rows, receivers, epsilon = (np.concatenate(parts) for parts in zip(*spent, strict=True))
    pairs: Ints
    # The coordinator's id is -1.
    pairs, which = np.unique((rows << 32) + receivers + 1, return_inverse=True)
    totals = np.zeros(len(pairs))
    np.add.at(totals, which, epsilon)
    return pairs >> 32, (pairs & 0xFFFFFFFF) - 1, totals


# Answers of comparisons and scores.

ANSWER_BITS = {ways: math.log2(ways) for ways in range(2, 9)}
"""Bits that one answer can reveal, by the number of possible answers."""


class AnswerCounts:
    """Answers that the devices of one shard learned and revealed.

    Args:
        shard: the hosted devices; None for the coordinator, which compares nothing.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._hosted, self._slots = (0, 0) if shard is None else (len(shard), len(shard.neighbours))
        # By the number of possible answers, made when the first such answer is counted.
        self._of_device: dict[int, Tally] = {}
        self._of_slot: dict[int, Tally] = {}
        self._of_non_neighbours: dict[int, Counter[tuple[int, int]]] = {}

    def add(self, rows: Ints, slots: Ints, ways: int) -> None:
        """Count answers between neighbours. `rows`, `slots`: [answers]; `ways`: 2 to 8."""
        self._begin(ways)
        self._of_device[ways].add(rows)
        self._of_slot[ways].add(slots)

    def add_non_neighbours(self, rows: Ints, peers: Ints, ways: int) -> None:
        """Count answers between devices that are no neighbours. `peers`: [answers] ids."""
        self._begin(ways)
        self._of_device[ways].add(rows)
        self._of_non_neighbours[ways].update(zip(rows.tolist(), peers.tolist(), strict=True))

    def _begin(self, ways: int) -> None:
        if ways not in self._of_device:
            if ways not in ANSWER_BITS:
                raise ValueError(f"an answer is one of 2 to {max(ANSWER_BITS)}, not of {ways}")
            self._of_device[ways] = Tally(self._hosted)
            self._of_slot[ways] = Tally(self._slots)
            self._of_non_neighbours[ways] = Counter()

    def state_dict(self) -> Arrays:
        """Return all counts, by the number of possible answers, to go on after a restart."""
        arrays: Arrays = {}
        for ways in self._of_device:
            met = [(*pair, count) for pair, count in sorted(self._of_non_neighbours[ways].items())]
            arrays |= {
                f"{ways}/device": self._of_device[ways].counts(),
                f"{ways}/slot": self._of_slot[ways].counts(),
                f"{ways}/strangers": np.array(met, np.int64).reshape(-1, 3),
            }
        return arrays

    def load_state_dict(self, arrays: Arrays) -> None:
        """Go on from these counts."""
        for ways in sorted({int(name.split("/")[0]) for name in arrays}):
            self._begin(ways)
            for tally, kind in ((self._of_device, "device"), (self._of_slot, "slot")):
                counts = arrays[f"{ways}/{kind}"]
                tally[ways].add(np.repeat(np.arange(len(counts)), counts))
            for row, peer, count in arrays[f"{ways}/strangers"].tolist():
                self._of_non_neighbours[ways][row, peer] += count

    def pair_bits(self, rows: Ints, slots: Ints, peers: Ints) -> Doubles:
        """[pairs] bits that each pair has revealed so far; slot -1 for a non-neighbour."""
        bits = np.zeros(len(rows))
        for ways, tally in sorted(self._of_slot.items()):
            if tally.size:
                bits += ANSWER_BITS[ways] * tally.counts()[slots]
        for index in np.flatnonzero(slots < 0).tolist():
            bits[index] = self._non_neighbour_bits((int(rows[index]), int(peers[index])))
        return bits

    def totals(self) -> dict[int, int]:
        """Answers of all hosted devices, by the number of possible answers."""
        return {ways: int(tally.counts().sum()) for ways, tally in self._of_device.items()}

    def device_bits(self) -> Doubles:
        """[hosted] bits that each device has revealed, over all its peers."""
        bits = np.zeros(self._hosted)
        for ways, tally in sorted(self._of_device.items()):
            bits += tally.counts() * ANSWER_BITS[ways]
        return bits

    def pairs(self) -> tuple[Ints, Doubles]:
        """[pairs, 2] ids, the smaller first and hosted here, and [pairs] their bits."""
        shard = self._shard
        if shard is None or not self._of_device:
            return np.empty((0, 2), np.int64), np.empty(0)
        slot_bits = np.zeros(self._slots)
        for ways, tally in sorted(self._of_slot.items()):
            slot_bits += ANSWER_BITS[ways] * tally.counts()
        device = shard.devices[shard.owner]
        # Each pair once, at the end with the smaller id.
        once = np.flatnonzero((device < shard.neighbours) & (slot_bits > 0))
        near = np.stack([device[once], shard.neighbours[once]], axis=1)
        of_shard = shard.devices.tolist()
        met: set[tuple[int, int]] = set().union(*self._of_non_neighbours.values())
        non_neighbours = [(row, peer) for row, peer in met if of_shard[row] < peer]
        far = np.array([(of_shard[row], peer) for row, peer in non_neighbours], np.int64)
        far_bits = np.array([self._non_neighbour_bits(pair) for pair in non_neighbours])
        return np.concatenate([near, far.reshape(-1, 2)]), np.concatenate(
            [slot_bits[once], far_bits]
        )

    def _non_neighbour_bits(self, pair: tuple[int, int]) -> float:
        counts = sorted(self._of_non_neighbours.items())
        return sum(ANSWER_BITS[ways] * count[pair] for ways, count in counts)


def most_pair_bits(state: Arrays) -> float:
    """The most bits that one pair has revealed, by what `AnswerCounts.state` gave of a device."""
    slots, non_neighbours = np.zeros(1), Counter[int]()
    for ways in sorted({int(name.split("/")[0]) for name in state}):
        slots = slots + ANSWER_BITS[ways] * state[f"{ways}/slot"]
        for _, peer, count in state[f"{ways}/strangers"].tolist():
            non_neighbours[peer] += ANSWER_BITS[ways] * count
    return max(float(slots.max(initial=0.0)), max(non_neighbours.values(), default=0.0))
