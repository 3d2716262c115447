"""Rounds of a program over envelopes, and the rules by which a round is complete.

| topic | a device | the coordinator |
|---|---|---|
| the coordinator receives | sends it an envelope, goes on | waits for everyone that is present |
| the coordinator sends | waits for its envelope | sends one to everyone, and goes on |
| between devices, `awaits` known | sends them an envelope, waits for theirs | has no part |
| anything else | a barrier (below) | closes the round |

*With a barrier* a device sends an envelope to all its neighbours, and to whomever else it has a
message for; once all have arrived, it reports to the coordinator that it is done. When everyone is,
the coordinator closes the round and announces whether it was quiet. A participant that was
restarted meanwhile has lost what had arrived: it goes on once it has all of it again
(`Mailbox.welcome`).

A device that is left out is awaited by nobody. The envelopes that a participant received in a round
are recorded before anything follows from them, and after a restart it receives the same. With
others, a device would hide another vector under the same masks, or use the same scalar twice. An
envelope that is not what its topic declares is dropped: its sender counts as silent in that round,
and `refused` reports it, without its content.
"""

from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    OF_BOTH,
    WITH_COORDINATOR,
    Closed,
    Data,
    Done,
    RoundKey,
    batch_of,
    data_of,
)
from lumos.deploy.protocol.mailbox import Mailbox
from lumos.device.shard import COORDINATOR
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program, RunningProgram
from lumos.exchange.messages import Batch, Inbox, Outbox, Topic
from lumos.typing import Arrays, Ints

Result = TypeVar("Result")

Refused = Callable[[int, str], None]
"""Callback `(sender, line)`: an envelope was dropped, and why."""

RoundRecord = dict[RoundKey, dict[int, Data]]
"""Rounds that are over, with the envelopes that were in them, by sender."""
Record = Callable[[RoundKey, dict[int, Data]], None]
"""Callback `(round, envelopes)`: makes a round survive a restart, before it returns."""


class BegunAttempt(NamedTuple):
    """The state of an attempt, in addition to the snapshot of its phase."""

    attempt: int
    absent: frozenset[int]
    """Devices that are left out of it."""
    ledgers: Arrays
    """The participant's counts when it began."""


class ParticipantStore(Protocol):
    """The state of a participant that survives a restart."""

    def load(self) -> Arrays | None:
        """Return the last snapshot; None before the first."""
        ...

    def save(self, snapshot: Arrays) -> None:
        """Replace the snapshot, all or nothing, before it returns; forget rounds before it."""
        ...

    def rounds(self) -> RoundRecord:
        """Return the rounds since the last snapshot."""
        ...

    def add_round(self, key: RoundKey, envelopes: dict[int, Data]) -> None:
        """Record a round, before anything follows from it."""
        ...

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Record that another attempt at a phase begins, before anything of it is sent."""
        ...

    def begun(self, phase: int) -> BegunAttempt | None:
        """Return the last attempt at a phase; None for the first."""
        ...


@dataclass(kw_only=True, eq=False)
class _Rounds(Generic[Result]):
    """One program of one participant, in one attempt at one phase."""

    me: int
    """The participant's own id."""
    mailbox: Mailbox
    out: Set[int]
    """Devices that are left out for good; the participant adds to this very set."""
    endpoint: Endpoint
    """Endpoint of the program's messages."""
    program: Program[Result]
    phase: tuple[int, int]
    """Phase and attempt."""
    refused: Refused
    """Called where an envelope is dropped."""
    record: Record | None = None
    """Called with a round that is over and its envelopes, before anything follows from it; None
    where nothing of it is replayed."""
    recorded: RoundRecord = field(default_factory=dict)
    """Rounds that were over before a restart."""

    def __post_init__(self) -> None:
        self._numbers = [0, 0, 0]
        self._sent: Outbox | None = None
        self._done = False
        self.running = RunningProgram(self.program, self.endpoint)

    def advance(self, now: float) -> bool:
        """Go on as far as what has arrived allows; return whether the program has finished."""
        while not self.running.finished:
            inbox = self._round(now)
            if inbox is None:
                return False
            self._sent, self._done = None, False
            self._numbers[self._channel] += 1
            self.running.resume(inbox)
        return True

    @property
    def _topic(self) -> Topic:
        return self.running.outbox.topic if self._sent is None else self._sent.topic

    @property
    def _channel(self) -> int:
        part = self._topic.coordinator
        if part == "both":
            return OF_BOTH
        return WITH_COORDINATOR if part else BETWEEN_DEVICES

    @property
    def key(self) -> RoundKey:
        """The present round."""
        return RoundKey(*self.phase, self._channel, self._numbers[self._channel])

    def _round(self, now: float) -> Inbox | None:
        raise NotImplementedError

    def _over(self, key: RoundKey, envelopes: dict[int, Data]) -> dict[int, Data]:
        """Return the envelopes of a round that is over: the recorded ones, if it is replayed."""
        if key not in self.recorded:
            if self.record is None:
                return envelopes
            self.record(key, envelopes)
            self.recorded[key] = envelopes
        return self.recorded[key]

    def _closed_with(self, topic: Topic, key: RoundKey, *, quiet: bool) -> dict[int, Data]:
        """Return the envelopes of a round with a barrier; the coordinator's has `quiet`."""
        arrived = self._arrived(self.mailbox.senders(key), key)
        sent = arrived.get(COORDINATOR, Data(key, topic.name, 0, b""))
        return self._over(key, {**arrived, COORDINATOR: msgspec.structs.replace(sent, quiet=quiet)})

    def _after_barrier(self, outbox: Outbox, envelopes: dict[int, Data], key: RoundKey) -> Inbox:
        return Inbox(self._read(outbox, envelopes, key), quiet=envelopes[COORDINATOR].quiet)

    def _take(self) -> tuple[Outbox, bool]:
        """Return the outbox of the present round, and whether it is sent for the first time."""
        first = self._sent is None
        if self._sent is None:
            self._sent = self.running.take()
        return self._sent, first

    def _post(self, outbox: Outbox, receivers: Collection[int], now: float, quiet: bool) -> None:
        """Post an envelope to each receiver, with the messages for it."""
        batch, key = outbox.batch, self.key
        for receiver in receivers:
            rows = np.flatnonzero(batch.receiver == receiver)
            self.mailbox.post(receiver, data_of(key, outbox.topic, batch, rows, quiet=quiet), now)

    def _arrived(self, senders: Collection[int], key: RoundKey) -> dict[int, Data]:
        """Return the envelopes from these that have arrived."""
        return {
            sender: data
            for sender in senders
            if (data := self.mailbox.envelope(sender, key)) is not None
        }

    def _read(self, outbox: Outbox, envelopes: dict[int, Data], key: RoundKey) -> Batch:
        """Return the messages in the order of their senders; drop invalid envelopes."""
        topic, batches = outbox.topic, []
        for sender, data in sorted(envelopes.items()):
            try:
                batch = batch_of(data, topic, sender, self.me)
                if outbox.check is not None:
                    outbox.check(batch)
            except ProtocolError as error:
                self.mailbox.drop(sender, key)
                self.refused(sender, str(error))
                continue
            if batch.messages:
                batches.append(batch)
        return Batch.joined(batches) if batches else topic.no_messages


@dataclass(kw_only=True, eq=False)
class DeviceRounds(_Rounds[Result]):
    """The rounds of a device."""

    neighbours: Ints
    """Ids."""

    def __post_init__(self) -> None:
        self._closed: dict[RoundKey, bool] = {}
        super().__post_init__()

    def close(self, closed: Closed) -> None:
        """Note that the coordinator has closed a round."""
        self._closed.setdefault(closed.key, closed.quiet)

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "receives":
            self._post(outbox, [COORDINATOR], now, quiet=False)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "sends":
            return self._from_coordinator(topic, key)
        if topic.coordinator == "" and outbox.awaits is not None:
            return self._among(outbox, first, now)
        return self._with_barrier(outbox, first, now)

    def _from_coordinator(self, topic: Topic, key: RoundKey) -> Inbox | None:
        arrived = self._arrived([COORDINATOR], key)
        if not arrived and key not in self.recorded:
            return None
        data = self._over(key, arrived)[COORDINATOR]
        # What the coordinator sends is not dropped: without it there is no round.
        return Inbox(batch_of(data, topic, COORDINATOR, self.me), quiet=data.quiet)

    def _among(self, outbox: Outbox, first: bool, now: float) -> Inbox | None:
        """Run a round with the devices in `awaits`."""
        others = set(np.asarray(outbox.awaits).tolist()) - {self.me}
        if first:
            self._post(outbox, others, now, quiet=False)
        key, arrived = self.key, self._arrived(others, self.key)
        if key not in self.recorded and others - set(arrived) - self.out:
            return None
        return Inbox(self._read(outbox, self._over(key, arrived), key), quiet=False)

    def _with_barrier(self, outbox: Outbox, first: bool, now: float) -> Inbox | None:
        receivers = set(self.neighbours.tolist()) | set(outbox.batch.receiver.tolist())
        if first:
            self._post(outbox, receivers, now, quiet=False)
        key = self.key
        if key in self.recorded:
            return self._after_barrier(outbox, self.recorded[key], key)
        if not self._done:
            if not all(self.mailbox.acknowledged(receiver, key) for receiver in receivers):
                return None
            self._done = True
            self.say_done()
        if key not in self._closed or not self.mailbox.welcome():
            return None
        received = self._closed_with(outbox.topic, key, quiet=self._closed.pop(key))
        return self._after_barrier(outbox, received, key)

    def say_done(self) -> None:
        """Send the coordinator, repeatedly if needed, that all has arrived."""
        if self._done and self._sent is not None:
            silent = not self._sent.batch.messages
            self.mailbox.tell(COORDINATOR, Done(self.key, silent))


@dataclass(kw_only=True, eq=False)
class CoordinatorRounds(_Rounds[Result]):
    """The rounds of the coordinator, and the barriers that it closes for devices."""

    me: int = COORDINATOR
    total: int
    """Number of devices."""

    def __post_init__(self) -> None:
        self._barriers: dict[RoundKey, dict[int, bool]] = {}
        """By open round: the devices that are done, and whether each sent nothing."""
        super().__post_init__()

    def present(self) -> list[int]:
        """Return the devices that take part."""
        return [device for device in range(self.total) if device not in self.out]

    def missing(self) -> set[int]:
        """Return the devices that the present round waits for."""
        if self.running.finished or self._topic.coordinator != "receives":
            return set()
        key = self.key
        return {device for device in self.present() if self.mailbox.envelope(device, key) is None}

    def done(self, device: int, done: Done) -> None:
        """Note that a round is complete as far as a device is concerned."""
        if done.key in self.recorded:  # it has not received that the round is over
            quiet = self.recorded[done.key][COORDINATOR].quiet
            self.mailbox.tell(device, Closed(done.key, quiet))
            return
        self._barriers.setdefault(done.key, {})[device] = done.silent

    def close_barriers(self) -> None:
        """Close the rounds between devices that everyone present is done with."""
        for key, silent in list(self._barriers.items()):
            if key.channel == BETWEEN_DEVICES and self._all_done(silent):
                # Its envelopes are none of the coordinator's.
                self._over(key, {COORDINATOR: Data(key, "", 0, b"", quiet=all(silent.values()))})
                self._say_closed(key)

    def _all_done(self, silent: dict[int, bool]) -> bool:
        return all(device in silent for device in self.present())

    def _say_closed(self, key: RoundKey) -> None:
        """Announce to devices that a round is over; its record has it from now on."""
        self._barriers.pop(key, None)
        quiet = self.recorded[key][COORDINATOR].quiet
        for device in self.present():
            self.mailbox.tell(device, Closed(key, quiet))

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "sends":
            self._post(outbox, self.present(), now, quiet=not outbox.batch.messages)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "receives":
            return self._from_devices(outbox, key)
        return self._with_barrier(outbox, first, now)

    def _from_devices(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        if key not in self.recorded and self.missing():
            return None
        envelopes = self._over(key, self._arrived(self.present(), key))
        batch = self._read(outbox, envelopes, key)
        return Inbox(batch.packed(), quiet=not batch.messages)

    def _with_barrier(self, outbox: Outbox, first: bool, now: float) -> Inbox | None:
        """Run a round of devices and coordinator."""
        key, receivers = self.key, set(outbox.batch.receiver.tolist())
        if first:
            self._post(outbox, receivers, now, quiet=False)
        if key in self.recorded:
            return self._after_barrier(outbox, self.recorded[key], key)
        if not all(self.mailbox.acknowledged(receiver, key) for receiver in receivers):
            return None
        silent = self._barriers.setdefault(key, {})
        silent[COORDINATOR] = not outbox.batch.messages
        if not self._all_done(silent) or not self.mailbox.welcome():
            return None
        received = self._closed_with(outbox.topic, key, quiet=all(silent.values()))
        self._say_closed(key)
        return self._after_barrier(outbox, received, key)
