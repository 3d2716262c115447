"""The endpoint: the only way from a shard to a carrier. Rules are checked and counted here."""

from collections.abc import Collection, Generator
from typing import Any, Protocol, TypeVar

import numpy as np

from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import DoorClosed, NotHosted, ProtocolError
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.ledger import Ledger
from lumos.exchange.topic import PUBLIC_ID, Door, Topic
from lumos.typing import Ints

Result = TypeVar("Result")

Program = Generator[Outbox, Inbox, Result]
"""A program: it yields what its devices send in a round and is resumed with what they receive.

It cannot tell which carrier moves its messages, and no carrier looks inside it.
"""

EVERY_DOOR = frozenset(Door)


class Carrier(Protocol):
    """What moves messages: `Loopback` in memory; processes, clusters and networks alike."""

    def swap(self, outbox: Outbox) -> Inbox:
        """Hand in what this shard sends, wait until the round is complete, get what came."""
        ...


class Endpoint:
    """Checks and counts what enters and leaves one shard (or the coordinator, `shard=None`)."""

    def __init__(self, shard: Shard | None, doors: Collection[Door] = EVERY_DOOR) -> None:
        self.shard = shard
        self.ledger = Ledger(shard)
        self._doors = doors

    def leave(self, outbox: Outbox) -> Outbox:
        """Check and count an outbox on its way out."""
        topic, batch = outbox.topic, outbox.batch
        if batch.messages:
            if topic.door not in self._doors:
                raise DoorClosed(
                    f"topic {topic.name!r} leaves through the door {topic.door.value!r}, "
                    f"which this profile keeps shut: {topic.learns}"
                )
            rows = self._check(topic, batch)
            if not topic.booked:
                self.ledger.sent(topic, rows, batch)
        return outbox

    def arrive(self, topic: Topic, inbox: Inbox, checked: bool = False) -> Inbox:
        """Count an inbox on its way in, and check it unless its sender's endpoint just did."""
        batch = inbox.batch
        if batch.messages:
            if not checked:
                rows = self._local(batch.receiver)
                self._check_ids(topic, "sender", batch.sender)
                self._check_body(topic, batch)
            elif self.shard is not None:
                rows = self.shard.rows_of(batch.receiver)
            else:
                rows = np.zeros(batch.messages, np.int64)
            if not topic.booked:
                self.ledger.received(topic, rows, batch)
        self.ledger.close_round()
        return inbox

    def drive(self, program: Program[Result], carrier: Carrier) -> Result:
        """Run a program over a carrier until it returns."""
        try:
            outbox = next(program)
            while True:
                inbox = carrier.swap(self.leave(outbox))
                outbox = program.send(self.arrive(outbox.topic, inbox))
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _local(self, ids: Ints) -> Ints:
        """Positions of the parties behind this endpoint; raises for anybody else."""
        if self.shard is not None:
            return self.shard.local(ids)
        if np.count_nonzero(ids != COORDINATOR):
            raise NotHosted("the coordinator hosts no device")
        return np.zeros(len(ids), np.int64)

    def _check(self, topic: Topic, batch: Batch) -> Ints:
        rows = batch.rows
        if rows is None:
            rows = self._local(batch.sender)
            self._check_ids(topic, "receiver", batch.receiver)
        if (topic.door is Door.RELEASE) != (batch.epsilon is not None):
            raise ProtocolError(
                f"topic {topic.name!r}: a release, and only a release, states its ε"
            )
        if not batch.regular:
            self._check_body(topic, batch)
        return rows

    def _check_ids(self, topic: Topic, what: str, ids: Ints, *, device: bool = False) -> None:
        """Whether `ids` take part in rounds of this topic, or, with `device`, are devices."""
        if self.shard is not None:  # the coordinator does not know how many devices there are
            # Shifted so that the least allowed id is 0; as unsigned numbers lower ones are huge.
            shift = -COORDINATOR if topic.coordinator and not device else 0
            if np.maximum.reduce((ids + shift).view(np.uint64)) >= self.shard.total + shift:
                raise ProtocolError(f"topic {topic.name!r}: {what} out of range")

    def _check_body(self, topic: Topic, batch: Batch) -> None:
        body: np.ndarray[Any, Any] = batch.body
        shape = topic.shape if topic.shape is not None else (body.shape[-1],)
        if body.dtype != topic.dtype or body.shape != (batch.messages, *shape):
            raise ProtocolError(
                f"topic {topic.name!r}: a message body is {body.dtype}{list(body.shape[1:])}, "
                f"not {np.dtype(topic.dtype)}{list(shape)}"
            )
        if (topic.shape is None) != (batch.lengths is not None):
            raise ProtocolError(
                f"topic {topic.name!r}: lengths where there should be none, or none"
            )
        if batch.lengths is not None and (
            batch.lengths.shape != (batch.messages,)
            or batch.lengths.min() < 0
            or batch.lengths.max() > body.shape[1]
        ):
            raise ProtocolError(f"topic {topic.name!r}: lengths that are not those of its messages")
        words = topic.vocabulary
        if words is PUBLIC_ID:
            self._check_ids(topic, "public id", body, device=True)
        elif words and body.max() >= len(words):
            raise ProtocolError(f"topic {topic.name!r}: a word outside its vocabulary")
