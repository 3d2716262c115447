"""The endpoint: the only way from a shard to a carrier. Rules are checked and counted here.

It trusts nobody: neither the program behind it nor the carrier in front of it. Positions of
senders and receivers, the form of bodies, ε and counts are computed from the arrays that travel,
on the way out and again on the way in.
"""

from collections.abc import Collection, Generator
from typing import Protocol, TypeVar

import numpy as np

from lumos.device.shard import COORDINATOR, Shard, within
from lumos.errors import DoorClosed, NotHosted, ProtocolError
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.checks import check_common, check_form, check_no_padding
from lumos.exchange.ledger import Ledger
from lumos.exchange.topic import PUBLIC_ID, Door, Topic
from lumos.typing import Ints

Result = TypeVar("Result")

Program = Generator[Outbox, Inbox, Result]
"""A program: it yields what its devices send in a round and is resumed with what they receive.

It cannot tell which carrier moves its messages, and no carrier looks inside it.
"""

EVERY_DOOR = frozenset(Door)


class Connection(Protocol):
    """One party's connection to a carrier, for parties that live in processes of their own."""

    def swap(self, outbox: Outbox) -> Inbox:
        """Send what this party sends, wait until the round is complete, return what arrived."""
        ...


class Endpoint:
    """Checks and counts what enters and leaves one shard (or the coordinator).

    Args:
        shard: the hosted devices; None for the coordinator.
        doors: the doors that are open.
        ideal: topics of ideal backends that may compute in the clear and be booked by formula.
            A run with secure backends permits none.
    """

    def __init__(
        self,
        shard: Shard | None,
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
    ) -> None:
        self.shard = shard
        self.ledger = Ledger(shard, ideal)
        self._doors = frozenset(doors)

    def leave(self, outbox: Outbox) -> Outbox:
        """Check and count an outbox on its way out; returns what travels."""
        topic, given = outbox.topic, outbox.batch
        if not given.sender.size:
            return topic.nothing()
        if topic.door not in self._doors:
            raise DoorClosed(
                f"topic {topic.name!r} leaves through the door {topic.door.value!r}, "
                f"which this profile keeps shut: {topic.learns}"
            )
        # A batch of our own: nothing but these arrays travels.
        batch = Batch(given.sender, given.receiver, given.body, given.epsilon, given.lengths)
        check_form(topic, batch)
        rows = self._local(batch.sender)
        self._check_ids(topic, "receiver", batch.receiver)
        if topic.vocabulary is PUBLIC_ID:
            self._check_ids(topic, "public id", batch.body, device=True)
        if batch.lengths is not None:
            batch = batch.packed()
        if topic.common:
            check_common(topic, rows, batch)
        self.ledger.sent(topic, rows, batch)
        return Outbox(topic, batch)

    def arrive(self, topic: Topic, inbox: Inbox) -> Inbox:
        """Check and count an inbox on its way in."""
        batch = inbox.batch
        if batch.messages:
            check_form(topic, batch)
            if batch.lengths is not None:
                check_no_padding(topic, batch)
            rows = self._local(batch.receiver)
            self._check_ids(topic, "sender", batch.sender)
            if topic.vocabulary is PUBLIC_ID:
                self._check_ids(topic, "public id", batch.body, device=True)
            self.ledger.received(topic, rows, batch)
        self.ledger.close_round()
        return inbox

    def drive(self, program: Program[Result], connection: Connection) -> Result:
        """Run a program over a connection until it returns."""
        try:
            outbox = next(program)
            while True:
                inbox = connection.swap(self.leave(outbox))
                outbox = program.send(self.arrive(outbox.topic, inbox))
        except StopIteration as stop:
            result: Result = stop.value
            return result

    def _local(self, ids: Ints) -> Ints:
        """Positions of the parties behind this endpoint; raises for anybody else."""
        if self.shard is not None:
            return self.shard.local(ids)
        if not within(ids, COORDINATOR, COORDINATOR + 1):
            raise NotHosted("the coordinator hosts no device")
        return np.zeros(len(ids), np.int64)

    def _check_ids(self, topic: Topic, what: str, ids: Ints, *, device: bool = False) -> None:
        """Whether `ids` take part in rounds of this topic, or, with `device`, are devices."""
        if self.shard is not None:  # the coordinator does not know how many devices there are
            least = COORDINATOR if topic.coordinator and not device else 0
            if not within(ids, least, self.shard.total):
                raise ProtocolError(f"topic {topic.name!r}: {what} out of range")
