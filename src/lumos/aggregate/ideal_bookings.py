"""What an ideal sum books: the ledger of the masked sum, by formula.

Where nobody falls silent, all devices book the same, and nothing of the size of the federation is
made. Else it follows from who falls silent where (`lumos.aggregate.dropouts`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lumos.aggregate.dropouts import RoundOutcome, bookings_of_everyone, flows_of
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.parameters import MaskParameters
from lumos.aggregate.topics import (
    ALIVE,
    CONFIRMED,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    KEYS,
    LEFT_OUT,
    LOST,
    MASKED,
    OBJECTION,
    REVEAL,
    ROUNDS,
    SUM,
    VERDICT,
    WRAPPED,
)
from lumos.exchange.ledger import Ledger
from lumos.exchange.topic import Topic
from lumos.exchange.traffic import Booking
from lumos.typing import Ints

BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (
        *(DRAW_COMMITMENT, DRAW_DIGEST, DRAW_CONTRIBUTION, DRAW_LIST),
        *(KEYS, WRAPPED, LEFT_OUT, MASKED, LOST, ALIVE, CONFIRMED, REVEAL, SUM),
        *(OBJECTION, VERDICT),
    )
}
"""The topics of the masked sum, as the ideal one books them."""

Entry = tuple[Topic, Ints, Booking]
"""A topic, positions of devices, and what is booked for each of them."""


class SumBookings(NamedTuple):
    """What one sum books at one party."""

    entries: list[Entry]
    rounds: list[tuple[Ints, int]]
    """Positions of devices, and the rounds in which they take part."""

    def book(self, ledger: Ledger) -> None:
        """Book it once."""
        for topic, rows, booking in self.entries:
            ledger.book(topic, rows, booking)
        for rows, count in self.rounds:
            ledger.book_rounds(rows, count)


def with_everyone(hosted: int, parameters: MaskParameters, vector_bytes: int) -> SumBookings:
    """At a shard of so many devices, where nobody in the federation falls silent."""
    rows = np.arange(hosted)
    bookings = bookings_of_everyone(parameters, vector_bytes)
    return SumBookings(
        [(BOOKED[topic], rows, booking) for topic, booking in bookings.items()], [(rows, ROUNDS)]
    )


def with_everyone_at_coordinator(
    total: int, parameters: MaskParameters, vector_bytes: int
) -> SumBookings:
    """At the coordinator, where nobody falls silent."""
    here = np.zeros(1, np.int64)
    entries: list[Entry] = []
    for topic, at_device in bookings_of_everyone(parameters, vector_bytes).items():
        sent, received, bytes_sent, bytes_received = (total * count for count in at_device)
        # What a device sends the coordinator receives.
        mirrored = Booking(received, sent, bytes_received, bytes_sent)
        entries.append((BOOKED[topic], here, mirrored))
    return SumBookings(entries, [])


def with_silent(
    here: Ints,
    graph: MaskGraph,
    parameters: MaskParameters,
    outcome: RoundOutcome,
    vector_bytes: int,
) -> SumBookings:
    """At the shard of the devices `here`."""
    rounds = np.zeros(len(here), np.int64)
    entries: list[Entry] = []
    for flow in flows_of(graph, parameters, outcome, vector_bytes):
        messages, size = flow.messages[here], flow.bytes[here]
        nothing = np.zeros_like(messages)
        columns = (
            [messages, nothing, size, nothing] if flow.up else [nothing, messages, nothing, size]
        )
        entries += _by_booking(BOOKED[flow.topic], np.stack(columns, axis=1))
        rounds += messages > 0
    rows_by_rounds = [
        (np.flatnonzero(rounds == count), count) for count in np.unique(rounds).tolist()
    ]
    return SumBookings(entries, rows_by_rounds)


def with_silent_at_coordinator(
    graph: MaskGraph, parameters: MaskParameters, outcome: RoundOutcome, vector_bytes: int
) -> SumBookings:
    """At the coordinator."""
    entries: list[Entry] = []
    for flow in flows_of(graph, parameters, outcome, vector_bytes):
        messages, size = int(flow.messages.sum()), int(flow.bytes.sum())
        entry = [0, messages, 0, size] if flow.up else [messages, 0, size, 0]
        entries += _by_booking(BOOKED[flow.topic], np.array([entry]))
    return SumBookings(entries, [])


def _by_booking(topic: Topic, entries: Ints) -> list[Entry]:
    """[rows, 4] messages and bytes, sent and received, as bookings, as far as they are not zero."""
    return [
        (topic, np.flatnonzero((entries == entry).all(axis=1)), Booking(*entry.tolist()))
        for entry in np.unique(entries[entries.any(axis=1)], axis=0)
    ]
