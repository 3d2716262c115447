"""The ideal sum: computed in the clear, booked as the secure one, labelled `ideal`.

For simulations only. Each shard sends the sum over its devices to the coordinator, and the ledger
books, by formula, the messages, bytes and rounds that the masked sum would have needed, under
topics of their own. The sums of `sum` are the secure backend's, bit by bit. No device falls silent,
so all devices book the same, and nothing of the size of the federation is made.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lumos.crypto.shortness import ROWS, proof_size
from lumos.device.shard import Shard
from lumos.errors import UsageError
from lumos.exchange.counts import Booking
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Door, Inbox, Outbox, Topic
from lumos.secagg.mask_graph import contributions_of, seed_of
from lumos.secagg.masks import WORD
from lumos.secagg.noise import Bound, DrawnNoise, Noise, Update
from lumos.secagg.parameters import (
    AggregateSettings,
    FixedPoint,
    MaskParameters,
    RingWords,
    mask_parameters,
)
from lumos.secagg.signing import SIGNATURE
from lumos.secagg.topics import (
    ALIVE,
    CHALLENGE,
    CONFIRMED,
    CONTRIBUTION,
    DECISION,
    DRAW_COMMITMENT,
    DRAW_CONTRIBUTION,
    DRAW_DIGEST,
    DRAW_LIST,
    DRAW_ROUNDS,
    KEYS,
    LEFT_OUT,
    LOST,
    MASKED,
    PLEDGE,
    PROOF,
    REVEAL,
    ROUNDS,
    SHARE,
    SUM,
    WRAPPED,
    confirmed_bytes,
    pledge_bytes,
    published_bytes,
    wrapped_bytes,
)
from lumos.typing import Bytes, Doubles

if TYPE_CHECKING:
    from lumos.secagg.device import SecureAggregator

BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (
        *(DRAW_COMMITMENT, DRAW_DIGEST, DRAW_CONTRIBUTION, DRAW_LIST),
        *(KEYS, WRAPPED, LEFT_OUT, MASKED, LOST, ALIVE, CONFIRMED, REVEAL, SUM),
        *(PLEDGE, CHALLENGE, PROOF, DECISION),
    )
}
"""The topics of the masked sum, as the ideal one books them."""

CLEAR = Topic(
    name="aggregate/ideal",
    door=Door.AGGREGATE,
    shape=None,
    coordinator="both",
    learns="nobody learns anything: a simulation draws a seed and begins its sums",
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

Bookings = Mapping[Topic, Booking]
"""By topic, what is booked at each device."""


def draw_bookings(total: int) -> Bookings:
    """Return the bookings of the draw of the mask graph."""
    return {
        DRAW_COMMITMENT: Booking(1, 0, DRAW_COMMITMENT.size, 0),
        DRAW_DIGEST: Booking(0, 1, 0, DRAW_DIGEST.size),
        DRAW_CONTRIBUTION: Booking(1, 0, CONTRIBUTION, 0),
        DRAW_LIST: Booking(0, 1, 0, CONTRIBUTION * total),
    }


def sum_bookings(parameters: MaskParameters, vector_bytes: int) -> Bookings:
    """Return the bookings of one sum.

    All devices are in it, and each of them is confirmed by all its mask neighbours: there are
    `minimum` devices or more, and k ≥ t.
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


def bounded_bookings(parameters: MaskParameters, width: int, vector_bytes: int) -> Bookings:
    """Return the bookings of one sum with proofs, in which nobody lies."""
    k = parameters.neighbours
    bookings = dict(sum_bookings(parameters, vector_bytes))
    del bookings[WRAPPED], bookings[LOST], bookings[ALIVE], bookings[CONFIRMED]
    proof = proof_size(min(width, ROWS)) + SIGNATURE
    return {
        **bookings,
        PLEDGE: Booking(1, 0, pledge_bytes(k), 0),
        CHALLENGE: Booking(0, 1, 0, CHALLENGE.size),
        PROOF: Booking(1, 0, proof, 0),
        DECISION: Booking(0, 1, 0, DECISION.size),
    }


def book_at_devices(ledger: Ledger, hosted: int, bookings: Bookings, rounds: int) -> None:
    """Book the same at each hosted device."""
    rows = np.arange(hosted)
    for topic, booking in bookings.items():
        ledger.book(BOOKED[topic], rows, booking)
    ledger.book_rounds(rows, rounds)


def book_at_coordinator(ledger: Ledger, total: int, bookings: Bookings) -> None:
    """Book at the coordinator what `total` devices book; it receives what a device sends."""
    for topic, at_device in bookings.items():
        sent, received, bytes_sent, bytes_received = (total * count for count in at_device)
        mirrored = Booking(received, sent, bytes_received, bytes_sent)
        ledger.book(BOOKED[topic], np.zeros(1, np.int64), mirrored)


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
        self._proofs = settings.proofs
        self.parameters = mask_parameters(settings, shard.total)
        self.fixed = FixedPoint.of(settings, shard.total)
        self._clear = FixedPoint.in_the_clear(settings, shard.total)
        self.context = b""
        """Unused: nobody receives different sums in the clear."""

    def setup(self) -> Program[None]:
        """Draw the seed of the mask graph in the clear; book the draw, and the keys."""
        shard, k = self._shard, self.parameters.neighbours
        ids = shard.devices.astype("<i8").view(np.uint8).reshape(len(shard), _ID)
        yield self._send(np.hstack([ids, contributions_of(shard, 0)]).ravel())
        yield CLEAR.nothing()
        bookings = {
            **draw_bookings(shard.total),
            KEYS: Booking(k, k, KEYS.size * k, KEYS.size * k),
        }
        book_at_devices(self._ledger, len(shard), bookings, DRAW_ROUNDS + 1)
        self._ledger.round += DRAW_ROUNDS + 1 - _DRAW_SWAPS

    def sum(self, vectors: Doubles) -> Program[Doubles]:
        """The sum over all devices; `vectors` as in the secure backend."""
        if vectors.ndim != 2 or len(vectors) != len(self._shard):
            raise UsageError(
                f"vectors must be [{len(self._shard)}, width], got {list(vectors.shape)}"
            )
        words = np.zeros(vectors.shape[1], self.fixed.dtype)
        for start in range(0, len(vectors), _ROWS):
            encoded = self.fixed.encode(vectors[start : start + _ROWS])
            words += encoded.sum(axis=0, dtype=self.fixed.dtype)
        if self._clear != self.fixed:
            words = self._clear.encode_sum(self.fixed.decode(words))
        return (yield from self._sum(words))

    def sum_fused(self, partial: Doubles) -> Program[Doubles]:
        """The same where vectors of single devices never existed.

        Args:
            partial: [width] the float sum over all hosted devices. It is rounded once, not once
                per device, and with all fraction bits: the result differs from `sum` by at most
                n · 2^-(f + 1), f those of the masked sum, and the float error of `partial` itself.
        """
        return (yield from self._sum(self._clear.encode_sum(partial)))

    def sum_updates(
        self,
        update: Update,
        noise: Noise | None = None,
        step: int = 0,
        drop_stage: npt.NDArray[np.int8] | None = None,
        bound: Bound | None = None,
    ) -> Program[Doubles | None]:
        """Sum an update; nobody falls silent or lies, and the coordinator adds the noise."""
        partial = update(False)
        if not (self._proofs and _finite(bound, len(partial))):
            return (yield from self.sum_fused(partial))
        return (yield from self._sum(self._clear.encode_sum(partial), proved=True))

    def restartable(self) -> "SecureAggregator":
        """Raise `UsageError`: no device of a simulation restarts."""
        raise UsageError("devices that may restart need `aggregate='secure'`")

    def _sum(self, words: RingWords, *, proved: bool = False) -> Program[Doubles]:
        yield self._send(np.empty(0, np.uint8))  # nobody is silent
        yield CLEAR.nothing()
        yield self._send(words.view(np.uint8), CLEAR_SUM)
        inbox = yield CLEAR_SUM.nothing()
        bookings = _sum_cost(self.parameters, len(words), self.fixed.wire, proved=proved)
        book_at_devices(self._ledger, len(self._shard), bookings, ROUNDS)
        self._ledger.round += ROUNDS - _SWAPS
        return self._clear.decode(np.ascontiguousarray(inbox.body[0]).view(self._clear.dtype))

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
        self._proofs = settings.proofs
        self.parameters = mask_parameters(settings, total)
        self.fixed = FixedPoint.of(settings, total)
        self._clear = FixedPoint.in_the_clear(settings, total)

    def setup(self) -> Program[None]:
        """Draw the seed of the mask graph from the devices' contributions, and book that."""
        inbox = yield CLEAR.nothing()
        rows = _without_padding(inbox).reshape(-1, _ID + CONTRIBUTION)
        contributions = np.empty((self._total, CONTRIBUTION), np.uint8)
        contributions[np.ascontiguousarray(rows[:, :_ID]).view("<i8").ravel()] = rows[:, _ID:]
        yield _answer(inbox, np.frombuffer(seed_of(contributions, 0), np.uint8))
        book_at_coordinator(self._ledger, self._total, draw_bookings(self._total))
        self._ledger.round += DRAW_ROUNDS - _DRAW_SWAPS

    def sum(
        self, width: int, noise: DrawnNoise | None = None, bound: Bound | None = None
    ) -> Program[Doubles]:
        """One sum of vectors of `width` numbers.

        Args:
            noise: draws what the shares of noise of all devices come to.
            bound: of an honest summand; None or infinite: no proofs are booked.
        """
        inbox = yield CLEAR.nothing()
        yield _answer(inbox, np.empty(0, np.uint8))
        inbox = yield CLEAR_SUM.nothing()
        total = np.zeros(width, self._clear.dtype)
        for body in inbox.body:
            total += np.ascontiguousarray(body).view(self._clear.dtype)
        if noise is not None:
            total += self._clear.encode_sum(noise())
        yield _answer(inbox, total.view(np.uint8), CLEAR_SUM)
        proved = self._proofs and _finite(bound, width)
        bookings = _sum_cost(self.parameters, width, self.fixed.wire, proved=proved)
        book_at_coordinator(self._ledger, self._total, bookings)
        self._ledger.round += ROUNDS - _SWAPS
        return self._clear.decode(total)


def _finite(bound: Bound | None, width: int) -> bool:
    return bound is not None and not math.isinf(bound(width))


def _sum_cost(parameters: MaskParameters, width: int, wire: int, *, proved: bool) -> Bookings:
    """Return the bookings of one sum."""
    if proved:
        return bounded_bookings(parameters, width, width * wire)
    return sum_bookings(parameters, width * wire)


def _answer(inbox: Inbox, body: Bytes, topic: Topic = CLEAR) -> Outbox:
    """The same to everyone who sent something."""
    to = inbox.sender
    return topic.from_coordinator(to, np.broadcast_to(body, (len(to), len(body))))


def _without_padding(inbox: Inbox) -> Bytes:
    """The messages of an inbox, one behind the other."""
    lengths = inbox.batch.lengths
    if lengths is None:
        return inbox.body.ravel()
    return np.concatenate([row[:size] for row, size in zip(inbox.body, lengths, strict=True)])
