"""The ideal sum: computed in the clear, booked as the secure one, labelled `ideal`.

For simulations only. Each shard sends the sum over its devices to the coordinator, and the ledger
books, by formula, the messages, bytes and rounds that the masked sum would have needed, under
topics of their own. The sums of `sum` are the secure backend's, bit by bit.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lumos.aggregate.attempts import Attempted
from lumos.aggregate.dropouts import round_outcome
from lumos.aggregate.fixed_point import FixedPoint, RingWords
from lumos.aggregate.ideal_bookings import (
    BOOKED,
    SumBookings,
    with_everyone,
    with_everyone_at_coordinator,
    with_silent,
    with_silent_at_coordinator,
)
from lumos.aggregate.mask_draw import contributions_of, seed_of
from lumos.aggregate.mask_graph import MaskGraph
from lumos.aggregate.noise import DrawnNoise, Noise, Update
from lumos.aggregate.parameters import mask_parameters
from lumos.aggregate.settings import AggregateSettings
from lumos.aggregate.topics import (
    ATTEMPT_ROUNDS,
    CONTRIBUTION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    DRAW_ROUNDS,
    KEYS,
    OBJECTION,
    ROUNDS,
    VERDICT,
    Stage,
)
from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import UsageError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.exchange.traffic import Booking
from lumos.typing import Bytes, Doubles, Ints

if TYPE_CHECKING:
    from lumos.aggregate.secure import SecureAggregator

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
"""What a carrier has to permit for this backend."""

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
        """Unused: nobody is told different sums in the clear."""

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
        first = self._shard.devices[:1]
        return topic.send(
            first, np.array([COORDINATOR]), body[None, :], lengths=np.array([len(body)])
        )


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
