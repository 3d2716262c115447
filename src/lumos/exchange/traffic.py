"""Messages and bytes of one party, by topic and direction."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from lumos.exchange.tally import Tally
from lumos.exchange.topic import Topic
from lumos.typing import Ints

Key = TypeVar("Key", bound=Hashable)

FlowsByTopic = dict[str, dict[str, Ints]]
"""By topic name, by field of `Booking`: [hosted] a count per hosted device."""


class Booking(NamedTuple):
    """What one unit booked by an ideal backend stands for, at one of its two ends."""

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
