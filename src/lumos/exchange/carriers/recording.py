"""A loopback that records what it delivers on the tape of the innermost `recording`."""

from collections.abc import Collection, Sequence

from lumos.device.shard import Shard
from lumos.errors import UsageError
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.carriers.loopback import Loopback
from lumos.exchange.endpoint import EVERY_DOOR
from lumos.exchange.tape import current_tape
from lumos.exchange.topic import Door, Topic


class RecordingLoopback(Loopback):
    """The carrier `recording`: arguments as those of `Loopback`.

    Raises:
        UsageError: there is no tape.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        doors: Collection[Door] = EVERY_DOOR,
        ideal: Collection[Topic] = (),
    ) -> None:
        super().__init__(shards, doors, ideal)
        tape = current_tape()
        if tape is None:
            raise UsageError(
                "`carrier='recording'` needs a tape; use it within `lumos.exchange.recording()`"
            )
        self._tape = tape
        self._ideal = frozenset(ideal)
        self._devices = shards[0].total
        self._number = tape.open()
        self._round = 0

    def _carry(self, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        inboxes = [
            Inbox(
                self._tape.instead(self._number, self._round, topic, inbox.batch), quiet=inbox.quiet
            )
            for inbox in super()._carry(topic, outboxes)
        ]
        batches = [inbox.batch for inbox in inboxes if inbox.batch.messages]
        if batches:
            delivered = Batch.joined(batches).in_order()
            clear = topic in self._ideal
            self._tape.add(self._number, self._round, topic, delivered, self._devices, clear=clear)
        self._round += 1
        return inboxes
