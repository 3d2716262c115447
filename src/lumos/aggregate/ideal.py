"""The ideal sum: computed in the clear, booked as the secure one, labelled `ideal`.

For simulations only. Each shard sends the sum over its devices to the coordinator, and the ledger
books, by formula, the messages, bytes and rounds that the masked sum would have needed, under
topics of their own. The sums of `sum` are the secure backend's, bit by bit.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.aggregate.attempts import Attempted
from lumos.aggregate.dropouts import RoundOutcome, bookings_among_devices, flows_of, round_outcome
from lumos.aggregate.fixed_point import FixedPoint, RingWords
from lumos.aggregate.mask_draw import contributions_of, seed_of
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.parameters import mask_parameters
from lumos.aggregate.settings import AggregateSettings
from lumos.aggregate.topics import (
    ALIVE,
    ATTEMPT_ROUNDS,
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
    SHARES,
    SUM,
    VERDICT,
    WRAPPED,
    Stage,
)
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import UsageError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.exchange.traffic import Booking
from lumos.typing import Bytes, Doubles, Ints

CLEAR = Topic(
    name="aggregate/ideal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator=True,
    learns="nobody learns anything: a simulation agrees on the mask graph, and on who falls silent",
)
CLEAR_SUM = Topic(
    name="aggregate/clear-sum/ideal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator=True,
    learns="everybody in the round learns the sum (a simulation computed it in the clear)",
)
BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (
        *(DRAW_COMMITMENT, DRAW_DIGEST, DRAW_CONTRIBUTION, DRAW_LIST),
        *(KEYS, SHARES, WRAPPED, LEFT_OUT, MASKED, LOST, ALIVE, REVEAL, SUM),
        *(OBJECTION, VERDICT),
    )
}
"""The topics of the masked sum, as the ideal one books them."""
IDEAL_TOPICS = frozenset({CLEAR, CLEAR_SUM, *BOOKED.values()})
"""What a carrier has to permit for this backend."""

_SWAPS = 4
_DRAW_SWAPS = 2
_ID = 8
_NOT_HOSTED = 255
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
        self._last: _Booked | None = None

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
        if drop_stage is None:
            drop_stage = np.full(len(shard), Stage.NEVER, np.int8)
        stages = np.full(shard.total, _NOT_HOSTED, np.uint8)
        stages[shard.devices] = drop_stage
        yield self._send(stages)
        inbox = yield CLEAR.nothing()
        outcome = round_outcome(graph, self.parameters, inbox.body[0].view(np.int8))
        words = arrived(np.flatnonzero(outcome.arrived[shard.devices]))
        yield self._send(words.view(np.uint8), CLEAR_SUM)
        inbox = yield CLEAR_SUM.nothing()
        self._book(graph, outcome, words.nbytes)
        if not (outcome.opened and outcome.answering[shard.devices].any()):
            return None
        return self.fixed.decode(np.ascontiguousarray(inbox.body[0]).view(self.fixed.dtype))

    def _send(self, body: Bytes, topic: Topic = CLEAR) -> Outbox:
        """One message for all hosted devices: in the clear there is nothing to keep apart."""
        first = self._shard.devices[:1]
        return topic.send(
            first, np.array([COORDINATOR]), body[None, :], lengths=np.array([len(body)])
        )

    def _book(self, graph: MaskGraph, outcome: RoundOutcome, vector_bytes: int) -> None:
        # Most sums book the same as the one before.
        if self._last is None or not self._last.matches(outcome, vector_bytes):
            self._last = self._entries(graph, outcome, vector_bytes)
        for topic, rows, booking in self._last.entries:
            self._ledger.book(topic, rows, booking)
        for rows, count in self._last.rounds:
            self._ledger.book_rounds(rows, count)
        self._ledger.round += ROUNDS - _SWAPS

    def _entries(self, graph: MaskGraph, outcome: RoundOutcome, vector_bytes: int) -> "_Booked":
        here = self._shard.devices
        rounds = np.zeros(len(here), np.int64)
        entries: list[Entry] = []
        for topic, of_devices in bookings_among_devices(graph, outcome).items():
            entries += _by_booking(BOOKED[topic], of_devices[here])
            rounds += of_devices[here].any(axis=1)
        for flow in flows_of(graph, outcome, vector_bytes):
            messages, size = flow.messages[here], flow.bytes[here]
            nothing = np.zeros_like(messages)
            columns = (
                [messages, nothing, size, nothing]
                if flow.up
                else [nothing, messages, nothing, size]
            )
            entries += _by_booking(BOOKED[flow.topic], np.stack(columns, axis=1))
            rounds += messages > 0
        rows_by_rounds = [
            (np.flatnonzero(rounds == count), count) for count in np.unique(rounds).tolist()
        ]
        return _Booked(outcome, vector_bytes, entries, rows_by_rounds)


Entry = tuple[Topic, Ints, Booking]
"""A topic, positions of devices, and what is booked for each of them."""


class _Booked(NamedTuple):
    """What one sum books at one shard."""

    outcome: RoundOutcome
    vector_bytes: int
    entries: list[Entry]
    rounds: list[tuple[Ints, int]]

    def matches(self, outcome: RoundOutcome, vector_bytes: int) -> bool:
        """Whether another sum books the same."""
        if vector_bytes != self.vector_bytes or outcome.opened != self.outcome.opened:
            return False
        flags = zip(outcome[:-1], self.outcome[:-1], strict=True)
        return all(np.array_equal(one, other) for one, other in flags)


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
        lengths = inbox.batch.lengths
        sent = np.arange(inbox.body.shape[1]) < (0 if lengths is None else lengths[:, None])
        rows = inbox.body[sent].reshape(-1, _ID + CONTRIBUTION)
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

    def sum(self, width: int, noise: Doubles | None = None) -> Program[Doubles | None]:
        """One sum of vectors of `width` numbers; None when nothing was opened.

        Args:
            noise: [width] what the shares of noise of all devices come to, where simulated devices
                do not draw them one by one.
        """
        graph = _drawn(self._graph)
        inbox = yield CLEAR.nothing()
        drop_stage = inbox.body.min(axis=0)
        yield _answer(inbox, drop_stage)
        outcome = round_outcome(graph, self.parameters, drop_stage.view(np.int8))
        inbox = yield CLEAR_SUM.nothing()
        total = np.zeros(width, self.fixed.dtype)
        for body in inbox.body:
            total += np.ascontiguousarray(body).view(self.fixed.dtype)
        if noise is not None:
            total += self.fixed.encode_sum(noise)
        yield _answer(inbox, total.view(np.uint8), CLEAR_SUM)
        for flow in flows_of(graph, outcome, total.nbytes):
            messages, size = int(flow.messages.sum()), int(flow.bytes.sum())
            entry = [0, messages, 0, size] if flow.up else [messages, 0, size, 0]
            for booked in _by_booking(BOOKED[flow.topic], np.array([entry])):
                self._ledger.book(*booked)
        self._ledger.round += ROUNDS - 2 - _SWAPS  # two rounds are among devices
        return self.fixed.decode(total) if outcome.opened else None

    def attempt(self, width: int, noise: Doubles | None = None) -> Program[Attempted]:
        """One attempt at a sum; arguments as in `sum`. Nobody objects."""
        total = yield from self.sum(width, noise)
        devices, here = self._total, np.zeros(1, np.int64)
        self._ledger.book(BOOKED[OBJECTION], here, Booking(0, devices, 0, OBJECTION.size * devices))
        self._ledger.book(BOOKED[VERDICT], here, Booking(devices, 0, VERDICT.size * devices, 0))
        self._ledger.round += ATTEMPT_ROUNDS - ROUNDS
        return Attempted(total, called_off=False)


def _draw_messages(total: int) -> list[tuple[Topic, int, bool]]:
    """What passes in a draw between each device and the coordinator: topic, bytes, upwards."""
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
    return topic.send(
        np.full(len(to), COORDINATOR),
        to,
        np.broadcast_to(body, (len(to), len(body))),
        lengths=np.full(len(to), len(body)),
    )


def _by_booking(topic: Topic, entries: Ints) -> list[Entry]:
    """[rows, 4] messages and bytes, sent and received, as bookings, as far as they are not zero."""
    return [
        (topic, np.flatnonzero((entries == entry).all(axis=1)), Booking(*entry.tolist()))
        for entry in np.unique(entries[entries.any(axis=1)], axis=0)
    ]
