"""Tapes: what passed over a transport, recorded for an auditor.

    with recording() as tape:
        run = lumos.train(graph, transport="recording")
    tape.messages("strict/symbol"), tape.traffic

With `replayed`, the coordinator's messages of another tape take the place of those that it sends:
the same run with other data, and the same sums.

A tape belongs to the observer of a simulation. It is made where messages travel, behind the
endpoints: it has what was really delivered, and nothing that a program kept for itself. Attackers
get the part of it that the protocol gives them (`lumos.audit.harness`). Messages of ideal backends
are computed in the clear, and nobody would see them in a real run: they are marked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lumos.errors import ProtocolError
from lumos.exchange.messages import Batch, Topic
from lumos.typing import Ints

Keep = Callable[[Topic, Batch], Batch | None]
"""A choice of the messages of a round that a tape keeps; traffic is counted in any case."""


class Passed(NamedTuple):
    """The messages of one topic in one round."""

    exchange: int
    """Number of the transport: a run has one for its trees, and one for each variant."""
    round: int
    """Number of the round on that transport."""
    topic: Topic
    batch: Batch
    """By receiver, then sender; those that the tape keeps."""
    clear: bool
    """True if an ideal backend sent them in the clear, which real devices do not."""


@dataclass(kw_only=True, eq=False)
class TopicTraffic:
    """Messages of one topic on one transport, as whoever carries them sees them."""

    topic: Topic
    exchange: int
    clear: bool
    rounds: list[int] = field(default_factory=list, repr=False)
    """Rounds in which anybody sent."""
    sizes: set[int] = field(default_factory=set, repr=False)
    """Bytes of single messages."""
    uneven: list[int] = field(default_factory=list, repr=False)
    """Rounds in which messages differ in size."""
    sent: Ints = field(repr=False)
    """[devices + 1] messages; the coordinator is the last."""
    received: Ints = field(repr=False)
    bytes_sent: Ints = field(repr=False)
    bytes_received: Ints = field(repr=False)
    pairs: Ints = field(repr=False)
    """[pairs] sender · (devices + 1) + receiver of all who exchanged a message, increasing; the
    coordinator is number `devices`."""

    @staticmethod
    def none(topic: Topic, exchange: int, devices: int, *, clear: bool) -> "TopicTraffic":
        """Nothing so far."""
        sent, received, bytes_sent, bytes_received = np.zeros((4, devices + 1), np.int64)
        return TopicTraffic(
            topic=topic,
            exchange=exchange,
            clear=clear,
            sent=sent,
            received=received,
            bytes_sent=bytes_sent,
            bytes_received=bytes_received,
            pairs=np.empty(0, np.int64),
        )

    def add(self, round_: int, batch: Batch) -> None:
        """Count the messages of a round."""
        places = len(self.sent)
        sizes = np.full(batch.messages, 0) if batch.lengths is None else batch.lengths
        if batch.lengths is None:
            sizes += self.topic.size
        self.rounds.append(round_)
        if sizes.min() == sizes.max():  # `np.unique` takes long where all are equal
            self.sizes.add(int(sizes[0]))
        else:
            self.sizes.update(np.flatnonzero(np.bincount(sizes)).tolist())
            self.uneven.append(round_)
        sender, receiver = batch.sender % places, batch.receiver % places  # -1 is the last
        for messages, bytes_, end in (
            (self.sent, self.bytes_sent, sender),
            (self.received, self.bytes_received, receiver),
        ):
            messages += np.bincount(end, minlength=places)
            bytes_ += np.bincount(end, sizes, minlength=places).astype(np.int64)
        keys = sender * places + receiver
        where = np.minimum(np.searchsorted(self.pairs, keys), max(0, len(self.pairs) - 1))
        known = self.pairs[where] == keys if len(self.pairs) else np.zeros(len(keys), np.bool_)
        if not known.all():
            fresh = np.sort(keys[~known])
            fresh = fresh[np.diff(fresh, prepend=-1) > 0]
            self.pairs = np.insert(self.pairs, np.searchsorted(self.pairs, fresh), fresh)


class Tape:
    """Everything that passed while `recording`.

    Args:
        keep: which messages are kept; all by default.
        replayed: a tape whose messages of the coordinator are delivered again.
    """

    def __init__(self, keep: Keep | None = None, replayed: "Tape | None" = None) -> None:
        self._keep = keep
        self._replayed = replayed
        self._traffic: dict[tuple[int, str], TopicTraffic] = {}
        self.passed: list[Passed] = []
        self.exchanges = 0
        """Transports that were recorded."""

    def __repr__(self) -> str:
        return f"Tape(rounds={len(self.passed)})"  # messages are private

    @property
    def traffic(self) -> list[TopicTraffic]:
        """Counts of every topic on every transport, in the order of first messages."""
        return list(self._traffic.values())

    @property
    def last(self) -> int:
        """Number of the last transport: that of the run itself, which is trained last."""
        return self.exchanges - 1

    def open(self) -> int:
        """The number of a further transport."""
        self.exchanges += 1
        return self.exchanges - 1

    def add(
        self, exchange: int, round_: int, topic: Topic, batch: Batch, devices: int, *, clear: bool
    ) -> None:
        """Record the messages of a round."""
        place = (exchange, topic.name)
        if place not in self._traffic:
            self._traffic[place] = TopicTraffic.none(topic, exchange, devices, clear=clear)
        self._traffic[place].add(round_, batch)
        kept = batch if self._keep is None else self._keep(topic, batch)
        if kept is not None and kept.messages:
            # A copy: a program may use its arrays again. (`take` copies.)
            copied = kept.take(np.arange(kept.messages))
            self.passed.append(Passed(exchange, round_, topic, copied, clear))

    def instead(self, exchange: int, round_: int, topic: Topic, batch: Batch) -> Batch:
        """The messages of a round as they are delivered: the coordinator's from `replayed`.

        Raises:
            ProtocolError: that tape has others in this round.
        """
        if self._replayed is None or not (batch.sender < 0).any():
            return batch
        place = (exchange, round_, topic)
        sent = [one.batch for one in self._replayed.passed if one[:3] == place]
        rows = np.flatnonzero(batch.sender < 0)
        old = sent[0].take(np.flatnonzero(sent[0].sender < 0)) if sent else None
        if (
            old is None
            or not np.array_equal(old.receiver, batch.receiver[rows])
            or old.body.shape[1:] != batch.body.shape[1:]
        ):
            raise ProtocolError(
                f"topic {topic.name!r}: the tape that is replayed has other messages in this round"
            )
        body = batch.body.copy()
        body[rows] = old.body
        return Batch(batch.sender, batch.receiver, body, batch.epsilon, batch.lengths)

    def messages(self, topic: str, exchange: int | None = None) -> list[Batch]:
        """The batches of a topic, round by round; of the last transport unless another is named."""
        wanted = self.last if exchange is None else exchange
        return [
            one.batch for one in self.passed if one.topic.name == topic and one.exchange == wanted
        ]


_TAPE: ContextVar[Tape | None] = ContextVar("tape", default=None)


@contextmanager
def recording(keep: Keep | None = None, replayed: Tape | None = None) -> Iterator[Tape]:
    """Record whatever transports of the name `recording` move meanwhile; arguments of `Tape`."""
    tape = Tape(keep, replayed)
    token = _TAPE.set(tape)
    try:
        yield tape
    finally:
        _TAPE.reset(token)


def current_tape() -> Tape | None:
    """The tape of the innermost `recording`, if there is one."""
    return _TAPE.get()
