"""The ideal sum: computed in the clear, booked as the secure one, labelled `ideal`.

For simulations only. Each shard sends the sum over its devices to the coordinator, and the ledger
books, by formula, the messages, bytes and rounds that the masked sum would have needed, under
topics of their own. The sums of `sum` are the secure backend's, bit by bit.

Where nobody falls silent, all devices book the same, and nothing of the size of the federation is
made. Else the bookings follow from who falls silent where (`round_outcome`), to which tests also
hold the secure backend; the arrays then have the size of the federation.

First comes the outcome of a round, then the bookings of a sum, then the backend.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.device.shard import Shard
from lumos.errors import UsageError
from lumos.exchange.counts import Booking
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Door, Inbox, Outbox, Topic
from lumos.secagg.mask_graph import MaskGraph, contributions_of, seed_of
from lumos.secagg.masks import WORD
from lumos.secagg.noise import DrawnNoise, Noise, Update
from lumos.secagg.openings import Attempted
from lumos.secagg.parameters import (
    AggregateSettings,
    FixedPoint,
    MaskParameters,
    RingWords,
    mask_parameters,
)
from lumos.secagg.topics import (
    ALIVE,
    ATTEMPT_ROUNDS,
    CONFIRMED,
    CONTRIBUTION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    DRAW_ROUNDS,
    KEYS,
    LEFT_OUT,
    LOST,
    MASKED,
    OBJECTION,
    REVEAL,
    ROUNDS,
    SHARE,
    SUM,
    VERDICT,
    WRAPPED,
    Stage,
    confirmed_bytes,
    published_bytes,
    wrapped_bytes,
)
from lumos.typing import Bytes, Doubles, Flags, Ints

if TYPE_CHECKING:
    from lumos.secagg.device import SecureAggregator

BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (
        *(DRAW_COMMITMENT, DRAW_DIGEST, DRAW_CONTRIBUTION, DRAW_LIST),
        *(KEYS, WRAPPED, LEFT_OUT, MASKED, LOST, ALIVE, CONFIRMED, REVEAL, SUM),
        *(OBJECTION, VERDICT),
    )
}
"""The topics of the masked sum, as the ideal one books them."""


# The outcome of a round and its messages, as a public function of who falls silent where.


class RoundOutcome(NamedTuple):
    """The state of every device at the end of one round, [total] each."""

    wrapped: Flags
    """Left its wrapped seeds with the coordinator."""
    joined: Flags
    """Is in the round: all of those, or nobody if they are too few."""
    arrived: Flags
    """Its masked vector arrived: it is in the sum, if there is one."""
    asked: Flags
    """Was asked for shares: all of those, or nobody if they are too few."""
    alive: Flags
    """Confirmed to its mask neighbours that it has them in the sum."""
    answering: Flags
    """Was confirmed by enough of them, gave shares, and receives the sum."""
    opened: bool
    """True if there is a sum."""


def round_outcome(
    graph: MaskGraph, parameters: MaskParameters, drop_stage: npt.NDArray[np.int8]
) -> RoundOutcome:
    """The outcome for `drop_stage`: [total] the `Stage` in which each device falls silent."""
    nobody = np.zeros(graph.total, np.bool_)
    wrapped = drop_stage > Stage.WRAPPED
    joined = wrapped if wrapped.sum() >= parameters.minimum else nobody
    enough = graph.count(joined) >= parameters.threshold
    arrived = joined & enough & (drop_stage > Stage.MASKED)
    asked = arrived if arrived.sum() >= parameters.minimum else nobody
    enough = graph.count(arrived) >= parameters.threshold
    alive = asked & enough & (drop_stage > Stage.ALIVE)
    confirmed = graph.count(alive) >= parameters.threshold
    answering = alive & confirmed & (drop_stage > Stage.REVEAL)
    # A lost device matters if one that is not lost masked with it.
    needed = asked | (joined & ~arrived & (graph.count(asked) > 0))
    opened = asked.any() and (graph.count(answering) >= parameters.threshold)[needed].all()
    return RoundOutcome(wrapped, joined, arrived, asked, alive, answering, bool(opened))


def bookings_of_everyone(parameters: MaskParameters, vector_bytes: int) -> dict[Topic, Booking]:
    """By topic, what one sum comes to at each device if nobody falls silent.

    Then all devices are in the sum, and each of them is confirmed by all its mask neighbours: there
    are `minimum` devices or more, and k ≥ t.
    """
    k, t = parameters.neighbours, parameters.threshold
    return {
        WRAPPED: Booking(1, 0, wrapped_bytes(k, t), 0),
        LEFT_OUT: Booking(0, 1, 0, LEFT_OUT.size),
        MASKED: Booking(1, 0, vector_bytes + published_bytes(k, t), 0),
        LOST: Booking(0, 1, 0, LOST.size),
        ALIVE: Booking(1, 0, WORD * k, 0),
        CONFIRMED: Booking(0, 1, 0, confirmed_bytes(k)),
        REVEAL: Booking(1, 0, SHARE * k, 0),
        SUM: Booking(0, 1, 0, vector_bytes),
    }


class MessageFlow(NamedTuple):
    """Messages and bytes of one topic at each device, [total] each."""

    topic: Topic
    messages: Ints
    bytes: Ints
    up: bool
    """From the devices to the coordinator; else from the coordinator."""


def flows_of(
    graph: MaskGraph, parameters: MaskParameters, outcome: RoundOutcome, vector_bytes: int
) -> list[MessageFlow]:
    """List what passes between the devices and the coordinator, topic by topic."""
    k, t = parameters.neighbours, parameters.threshold
    lost = outcome.joined & ~outcome.arrived
    holders = graph.count(outcome.joined)
    left_out = outcome.joined * (graph.count(~outcome.wrapped) + 1)
    named_lost = outcome.asked * (graph.count(lost) + 1)
    wrapped, arrived, alive, answering = (
        flags.astype(np.int64)
        for flags in (outcome.wrapped, outcome.arrived, outcome.alive, outcome.answering)
    )
    receiving = answering * outcome.opened
    masked = vector_bytes + published_bytes(0, t) + SHARE * holders
    return [
        MessageFlow(WRAPPED, wrapped, wrapped_bytes(k, t) * wrapped, True),
        MessageFlow(LEFT_OUT, left_out, LEFT_OUT.size * left_out, False),
        MessageFlow(MASKED, arrived, masked * arrived, True),
        MessageFlow(LOST, named_lost, LOST.size * named_lost, False),
        MessageFlow(ALIVE, alive, WORD * k * alive, True),
        MessageFlow(CONFIRMED, alive, confirmed_bytes(k) * alive, False),
        MessageFlow(REVEAL, answering, SHARE * holders * answering, True),
        MessageFlow(SUM, receiving, vector_bytes * receiving, False),
    ]


# The bookings of a sum.

Entry = tuple[Topic, Ints, Booking]
"""A topic, positions of devices, and what is booked for each of them."""


class SumBookings(NamedTuple):
    """The bookings of one sum at one participant."""

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


# The backend.

CLEAR = Topic(
    name="aggregate/ideal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="both",
    learns="nobody learns anything: a simulation agrees on the mask graph, and on who falls silent",
)
CLEAR_SUM = Topic(
    name="aggregate/clear-sum/ideal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="both",
    learns="everybody in the round learns the sum (a simulation computed it in the clear)",
)
IDEAL_TOPICS = frozenset({CLEAR, CLEAR_SUM, *BOOKED.values()})
"""The topics that a transport has to permit for this backend."""

_SWAPS = 4
_DRAW_SWAPS = 2
_ID = 8
_ROWS = 256  # vectors encoded at a time


class IdealAggregator:
    """The backend `ideal` of one shard.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger is booked.
        settings: public settings, the same everywhere.
    """

    label = "ideal"

    def __init__(
        self, shard: Shard, endpoint: Endpoint, settings: AggregateSettings | None = None
    ) -> None:
        settings = settings or AggregateSettings()
        self._shard = shard
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self.parameters = mask_parameters(settings, shard.total)
        self.fixed = FixedPoint.of(settings, shard.total)
        self._graph: MaskGraph | None = None
        self._last: tuple[tuple[bytes, int], SumBookings] | None = None
        self.context = b""
        """Unused: nobody receives different sums in the clear."""

    def setup(self) -> Program[None]:
        """Draw the mask graph of the secure backend in the clear; book that, and the keys."""
        shard, k = self._shard, self.parameters.neighbours
        ids = shard.devices.astype("<i8").view(np.uint8).reshape(len(shard), _ID)
        yield self._send(np.hstack([ids, contributions_of(shard, 0)]).ravel())
        inbox = yield CLEAR.nothing()
        self._graph = MaskGraph(shard.total, k, inbox.body[0].tobytes())
        rows = np.arange(len(shard))
        for topic, size, up in _draw_messages(shard.total):
            booking = Booking(1, 0, size, 0) if up else Booking(0, 1, 0, size)
            self._ledger.book(BOOKED[topic], rows, booking)
        self._ledger.book(BOOKED[KEYS], rows, Booking(k, k, KEYS.size * k, KEYS.size * k))
        self._ledger.book_rounds(rows, DRAW_ROUNDS + 1)
        self._ledger.round += DRAW_ROUNDS + 1 - _DRAW_SWAPS

    def sum(
        self,
        vectors: Doubles,
        drop_stage: npt.NDArray[np.int8] | None = None,
        *,
        shares: RingWords | None = None,
    ) -> Program[Doubles | None]:
        """The sum over all devices whose vectors arrive; arguments as in the secure backend."""
        if vectors.ndim != 2 or len(vectors) != len(self._shard):
            raise UsageError(
                f"vectors must be [{len(self._shard)}, width], got {list(vectors.shape)}"
            )

        def arrived(rows: Ints) -> RingWords:
            total = np.zeros(vectors.shape[1], self.fixed.dtype)
            for start in range(0, len(rows), _ROWS):
                encoded = self.fixed.encode(vectors[rows[start : start + _ROWS]])
                total += encoded.sum(axis=0, dtype=self.fixed.dtype)
            if shares is not None:
                total += shares[rows].sum(axis=0, dtype=self.fixed.dtype)
            return total

        return (yield from self._sum(arrived, drop_stage))

    def sum_fused(self, partial: Doubles) -> Program[Doubles | None]:
        """The same where vectors of single devices never existed; nobody falls silent.

        Args:
            partial: [width] the float sum over all hosted devices. It is rounded once, not once
                per device: the result differs from `sum` by at most n · 2^-(fraction_bits + 1)
                and the float error of `partial` itself.
        """
        return (yield from self._sum(lambda _: self.fixed.encode_sum(partial), None))

    def sum_updates(
        self,
        update: Update,
        noise: Noise | None = None,
        step: int = 0,
        drop_stage: npt.NDArray[np.int8] | None = None,
    ) -> Program[Doubles | None]:
        """Sum an update; nobody falls silent, and the coordinator adds the noise."""
        return (yield from self.sum_fused(update(False)))

    def noise_shares(self, noise: Noise | None, width: int, step: int) -> Doubles | None:
        """Return None: the coordinator adds the noise of all devices."""
        return None

    def restartable(self) -> "SecureAggregator":
        """Raise `UsageError`: no device of a simulation restarts."""
        raise UsageError("devices that may restart need `aggregate='secure'`")

    def attempt(self, words: RingWords) -> Program[Attempted]:
        """An attempt at a sum to which nobody objects; nobody falls silent.

        Args:
            words: [width] the sum over all hosted devices, in the ring.
        """
        total = yield from self._sum(lambda _: words, None)
        everyone = np.arange(len(self._shard))
        self._ledger.book(BOOKED[OBJECTION], everyone, Booking(1, 0, OBJECTION.size, 0))
        self._ledger.book(BOOKED[VERDICT], everyone, Booking(0, 1, 0, VERDICT.size))
        self._ledger.book_rounds(everyone, ATTEMPT_ROUNDS - ROUNDS)
        self._ledger.round += ATTEMPT_ROUNDS - ROUNDS
        return Attempted(total, called_off=False)

    def _sum(
        self, arrived: Callable[[Ints], RingWords], drop_stage: npt.NDArray[np.int8] | None
    ) -> Program[Doubles | None]:
        shard, graph = self._shard, _drawn(self._graph)
        yield self._send(_silent_here(shard, drop_stage))
        inbox = yield CLEAR.nothing()
        told = np.ascontiguousarray(inbox.body[0])
        if not told.size:  # everybody is there
            words = arrived(np.arange(len(shard)))
            receiving = True
        else:
            outcome = round_outcome(graph, self.parameters, _stages(told, shard.total))
            words = arrived(np.flatnonzero(outcome.arrived[shard.devices]))
            receiving = outcome.opened and bool(outcome.answering[shard.devices].any())
        yield self._send(words.view(np.uint8), CLEAR_SUM)
        inbox = yield CLEAR_SUM.nothing()
        vector_bytes = len(words) * self.fixed.wire
        # Most sums book the same as the one before.
        if self._last is None or self._last[0] != (told.tobytes(), vector_bytes):
            bookings = (
                with_silent(shard.devices, graph, self.parameters, outcome, vector_bytes)
                if told.size
                else with_everyone(len(shard), self.parameters, vector_bytes)
            )
            self._last = (told.tobytes(), vector_bytes), bookings
        self._last[1].book(self._ledger)
        self._ledger.round += ROUNDS - _SWAPS
        if not receiving:
            return None
        return self.fixed.decode(np.ascontiguousarray(inbox.body[0]).view(self.fixed.dtype))

    def _send(self, body: Bytes, topic: Topic = CLEAR) -> Outbox:
        """One message for all hosted devices: in the clear there is nothing to keep apart."""
        return topic.to_coordinator(self._shard, np.zeros(1, np.int64), body[None, :])


class IdealCoordinator:
    """The coordinator's part of the backend `ideal`; arguments as in the secure backend."""

    label = "ideal"

    def __init__(
        self,
        total: int,
        endpoint: Endpoint,
        settings: AggregateSettings | None = None,
    ) -> None:
        settings = settings or AggregateSettings()
        self._total = total
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self.parameters = mask_parameters(settings, total)
        self.fixed = FixedPoint.of(settings, total)
        self._graph: MaskGraph | None = None

    def setup(self) -> Program[None]:
        """Draw the mask graph from the devices' contributions, and book that."""
        inbox = yield CLEAR.nothing()
        rows = _without_padding(inbox).reshape(-1, _ID + CONTRIBUTION)
        contributions = np.empty((self._total, CONTRIBUTION), np.uint8)
        contributions[np.ascontiguousarray(rows[:, :_ID]).view("<i8").ravel()] = rows[:, _ID:]
        seed = seed_of(contributions, 0)
        self._graph = MaskGraph(self._total, self.parameters.neighbours, seed)
        yield _answer(inbox, np.frombuffer(seed, np.uint8))
        for topic, size, up in _draw_messages(self._total):
            messages, whole = self._total, size * self._total
            booking = Booking(0, messages, 0, whole) if up else Booking(messages, 0, whole, 0)
            self._ledger.book(BOOKED[topic], np.zeros(1, np.int64), booking)
        self._ledger.round += DRAW_ROUNDS - _DRAW_SWAPS

    def sum(self, width: int, noise: DrawnNoise | None = None) -> Program[Doubles | None]:
        """One sum of vectors of `width` numbers; None when nothing was opened.

        Args:
            noise: draws what the shares of noise of all devices come to.
        """
        graph = _drawn(self._graph)
        inbox = yield CLEAR.nothing()
        told = _without_padding(inbox)
        yield _answer(inbox, told)
        inbox = yield CLEAR_SUM.nothing()
        total = np.zeros(width, self.fixed.dtype)
        for body in inbox.body:
            total += np.ascontiguousarray(body).view(self.fixed.dtype)
        if noise is not None:
            total += self.fixed.encode_sum(noise())
        yield _answer(inbox, total.view(np.uint8), CLEAR_SUM)
        opened, vector_bytes = True, width * self.fixed.wire
        if told.size:
            outcome = round_outcome(graph, self.parameters, _stages(told, self._total))
            opened = outcome.opened
            bookings = with_silent_at_coordinator(graph, self.parameters, outcome, vector_bytes)
        else:
            bookings = with_everyone_at_coordinator(self._total, self.parameters, vector_bytes)
        bookings.book(self._ledger)
        self._ledger.round += ROUNDS - _SWAPS
        return self.fixed.decode(total) if opened else None

    def attempt(self, width: int, noise: DrawnNoise | None = None) -> Program[Attempted]:
        """One attempt at a sum; arguments as in `sum`. Nobody objects."""
        total = yield from self.sum(width, noise)
        devices, here = self._total, np.zeros(1, np.int64)
        self._ledger.book(BOOKED[OBJECTION], here, Booking(0, devices, 0, OBJECTION.size * devices))
        self._ledger.book(BOOKED[VERDICT], here, Booking(devices, 0, VERDICT.size * devices, 0))
        self._ledger.round += ATTEMPT_ROUNDS - ROUNDS
        return Attempted(total, called_off=False)


def _draw_messages(total: int) -> list[tuple[Topic, int, bool]]:
    """List the messages of a draw between each device and the coordinator: topic, bytes, up."""
    return [
        (DRAW_COMMITMENT, DRAW_COMMITMENT.size, True),
        (DRAW_DIGEST, DRAW_DIGEST.size, False),
        (DRAW_CONTRIBUTION, CONTRIBUTION, True),
        (DRAW_LIST, CONTRIBUTION * total, False),
    ]


def _drawn(graph: MaskGraph | None) -> MaskGraph:
    if graph is None:
        raise UsageError("the first sum of a run needs setup() before it")
    return graph


def _answer(inbox: Inbox, body: Bytes, topic: Topic = CLEAR) -> Outbox:
    """The same to everyone who sent something."""
    to = inbox.sender
    return topic.from_coordinator(to, np.broadcast_to(body, (len(to), len(body))))


def _silent_here(shard: Shard, drop_stage: npt.NDArray[np.int8] | None) -> Bytes:
    """The hosted devices that fall silent, and where, as bytes: none where nobody does."""
    if drop_stage is None:
        return np.empty(0, np.uint8)
    rows = np.flatnonzero(drop_stage < Stage.NEVER)
    pairs = np.stack([shard.devices[rows], drop_stage[rows]], axis=1)
    return pairs.astype("<i8").view(np.uint8).ravel()


def _stages(silent: Bytes, total: int) -> npt.NDArray[np.int8]:
    """[total] the stage in which each device falls silent."""
    stages = np.full(total, Stage.NEVER, np.int8)
    devices, where = silent.view("<i8").reshape(-1, 2).T
    stages[devices] = where
    return stages


def _without_padding(inbox: Inbox) -> Bytes:
    """The messages of an inbox, one behind the other."""
    lengths = inbox.batch.lengths
    if lengths is None:
        return inbox.body.ravel()
    return np.concatenate([row[:size] for row, size in zip(inbox.body, lengths, strict=True)])
