"""The endpoint: the only way from a shard to a carrier. It checks and counts every message.

It trusts nobody: neither the program behind it nor the carrier in front of it. Doors, ε and
releases that must be the same for all receivers are checked on the way out; ids, the form of bodies
and counts both ways. All of it is computed from the arrays that travel.
"""

from collections.abc import Collection, Generator
from typing import Protocol, TypeVar

import numpy as np

from lumos.device.shard import COORDINATOR, Shard, within
from lumos.errors import DoorClosed, NotHosted, ProtocolError
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.checks import check_common, check_form, check_no_padding
from lumos.exchange.ledger import Ledger
from lumos.exchange.programs import run_alone
from lumos.exchange.topic import PUBLIC_ID, Door, Topic
from lumos.typing import Ints

Result = TypeVar("Result")

Program = Generator[Outbox, Inbox, Result]
"""A program: it yields what its devices send in a round and is resumed with what they receive.

It cannot tell which carrier moves its messages, and no carrier looks inside it.
"""

EVERY_DOOR = frozenset(Door)


def no_part() -> Program[None]:
    """The program of a coordinator that neither sends nor receives anything."""
    yield from ()


class Connection(Protocol):
    """One party's connection to a carrier, for parties that live in processes of their own."""

    def swap(self, outbox: Outbox) -> Inbox:
        """Send what this party sends, wait until the round is complete, return what arrived."""
        ...


class Endpoint:
    """Checks and counts what enters and leaves one shard (or the coordinator).

    Args:
        shard: the hosted devices; None for the coordinator.
        doors: protections (`Door`) behind which messages may leave.
        ideal: topics on which an ideal backend may send plaintext, while the ledger books the cost
            of the secure protocol. A run with secure backends permits none.
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

    def check_outgoing(self, outbox: Outbox) -> Outbox:
        """Check and count an outbox on its way out; returns what travels."""
        topic, given = outbox.topic, outbox.batch
        if not given.sender.size:
            return Outbox(topic, topic.no_messages, outbox.awaits, outbox.check)
        if topic.door not in self._doors:
            raise DoorClosed(
                f"topic {topic.name!r} leaves through the door {topic.door.value!r}, "
                f"which this profile keeps shut: {topic.learns}"
            )
        # A fresh batch: attributes that the caller added cannot travel.
        batch = Batch(given.sender, given.receiver, given.body, given.epsilon, given.lengths)
        check_form(topic, batch)
        rows = self._local(batch.sender)
        self._check_ids(topic, "receiver", batch.receiver)
        if topic.vocabulary is PUBLIC_ID:
            self._check_ids(topic, "public id", batch.body, devices_only=True)
        if batch.lengths is not None:
            batch = batch.packed()
        if topic.common:
            check_common(topic, rows, batch)
        self.ledger.sent(topic, rows, batch)
        return Outbox(topic, batch, outbox.awaits, outbox.check)

    def check_incoming(self, topic: Topic, inbox: Inbox) -> Inbox:
        """Check and count an inbox on its way in."""
        batch = inbox.batch
        if batch.messages:
            check_form(topic, batch, arriving=True)
            if batch.lengths is not None:
                check_no_padding(topic, batch)
            rows = self._local(batch.receiver)
            self._check_ids(topic, "sender", batch.sender)
            if topic.vocabulary is PUBLIC_ID:
                self._check_ids(topic, "public id", batch.body, devices_only=True)
            self.ledger.received(topic, rows, batch)
        self.ledger.close_round()
        return inbox

    def drive(self, program: Program[Result], connection: Connection) -> Result:
        """Run a program over a connection until it returns."""

        def swapped(outbox: Outbox) -> Inbox:
            inbox = connection.swap(self.check_outgoing(outbox))
            return self.check_incoming(outbox.topic, inbox)

        return run_alone(program, swapped)

    def _local(self, ids: Ints) -> Ints:
        """Rows of the hosted parties with these ids; raises for anybody else."""
        if self.shard is not None:
            return self.shard.local(ids)
        if not within(ids, COORDINATOR, COORDINATOR + 1):
            raise NotHosted("the coordinator hosts no device")
        return np.zeros(len(ids), np.int64)

    def _check_ids(self, topic: Topic, what: str, ids: Ints, *, devices_only: bool = False) -> None:
        """Raise unless `ids` take part in rounds of this topic; `devices_only`: are devices."""
        if self.shard is not None:  # the coordinator does not know how many devices there are
            least = COORDINATOR if topic.coordinator and not devices_only else 0
            if not within(ids, least, self.shard.total):
                raise ProtocolError(f"topic {topic.name!r}: {what} out of range")
