"""Rounds of a program over envelopes, and the rules by which a round is complete.

| topic | a device | the coordinator |
|---|---|---|
| the coordinator receives | sends it an envelope, goes on | waits for everyone that is present |
| the coordinator sends | waits for its envelope | sends one to everyone, and goes on |
| anything else | sends envelopes, sends flags until the round is closed | closes the round |

**Rounds between devices** end for all at once, so that nobody shows whom it waits for. A device
sends an envelope to those in `awaits`, or to all its neighbours and whomever else it has a message
for. Something is *missing* until it has the envelopes of all in `awaits`, on its disk, or until all
its own have arrived. From the second tick after that on, at every tick, it sends the coordinator a
masked flag: 0, or a random word if something is missing (`FlagMasks`). Where the flags of all
devices at one tick add up to 0, the coordinator closes the round, and announces whether it was
quiet, which a second flag says. A device goes on when the round is closed, also if something is
still missing: the coordinator lies, or it has waited for as long as the deadline.

*What the flags say.* Masks of two ticks differ, and a device sends one share of each, so the
coordinator learns of a tick whether nothing is missing anywhere, if it has all shares, and
otherwise nothing. A device that does not have the sum before the round has no share to send. One
that got it late has had a whole tick to reach its neighbours when it sends its first share: so a
device that the coordinator holds up makes no difference at its neighbours, if clocks differ by
less than a tick. A device that has to go on without a message treats its sender as silent.

A participant that was restarted in a round without `awaits` has lost what had arrived: it goes on
once it has all of it again (`Mailbox.welcome`).

A device that is left out is awaited by nobody. The envelopes that a participant received in a round
are recorded before anything follows from them, and after a restart it receives the same. With
others, a device would hide another vector under the same masks, or use the same scalar twice. An
envelope that is not what its topic declares is dropped: its sender counts as silent in that round,
and `refused` reports it, without its content.
"""

import math
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from struct import Struct
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from lumos.crypto import entropy
from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    FLAG_BYTES,
    OF_BOTH,
    WITH_COORDINATOR,
    Closed,
    Data,
    MaskedFlags,
    RoundKey,
    batch_of,
    data_of,
)
from lumos.deploy.protocol.mailbox import Mailbox
from lumos.device.randomness import PublicRandomness
from lumos.device.shard import COORDINATOR
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program, RunningProgram
from lumos.exchange.messages import Batch, Inbox, Outbox, Topic
from lumos.secagg.openings import partner_shifts
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
        """Record envelopes of a round, before anything follows from them; others may be there."""
        ...

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Record that another attempt at a phase begins, before anything of it is sent."""
        ...

    def begun(self, phase: int) -> BegunAttempt | None:
        """Return the last attempt at a phase; None for the first."""
        ...


TICK = 0.1
"""Seconds between two ticks, unless the plan says otherwise."""
PARTNER_SHIFTS = 64
"""Half the number of devices with which one shares masks of flags: all, if there are up to 129."""
REPEATED = 16
"""Ticks whose shares are in a packet: packets can be lost."""
MAX_TICKS = 512
"""Ticks whose shares the coordinator keeps: clocks may differ."""
MAX_CLOSED = 4096
"""Announcements of the coordinator that a device keeps in a phase."""
_PLACE = Struct("<5q")
_WORD = (1 << 64) - 1


class FlagMasks:
    """The masks of one device's flags: of each pair of partners, they cancel.

    Guarantee: the coordinator together with fewer than 2(d + 1)/3 devices learns of a tick whether
    at least one of the other devices raised its flag, and neither who nor how many; d is twice
    `PARTNER_SHIFTS`, or about the number of devices if there are fewer (`lumos.secagg.openings`).

    Args:
        device: its id.
        total: number of devices.
        public: public randomness, for the partners.
        pair_key: from an id to 32 bytes that only this device and that one know.
    """

    def __init__(
        self, device: int, total: int, public: PublicRandomness, pair_key: Callable[[int], bytes]
    ) -> None:
        self._device, self._total = device, total
        self._public, self._pair_key = public, pair_key

    @cached_property
    def _keys(self) -> dict[int, bytes]:
        shifts = partner_shifts(self._total, self._public, PARTNER_SHIFTS)
        places = {self._device + sign * shift for shift in shifts for sign in (1, -1)}
        partners = {place % self._total for place in places} - {self._device}
        return {partner: self._pair_key(partner) for partner in sorted(partners)}

    def share(
        self, key: RoundKey, tick: int, out: Set[int], *, missing: bool, speaks: bool
    ) -> bytes:
        """Return the masked flags of a tick.

        A device that misses something raises both: whether it speaks is not decided yet.

        Args:
            out: devices that are left out.
        """
        place = _PLACE.pack(*key, tick)
        flags = np.frombuffer(entropy.draw(FLAG_BYTES), "<u8") * (missing, missing or speaks)
        partners = [partner for partner in self._keys if partner not in out]
        masks = b"".join(
            blake2b(
                place, digest_size=FLAG_BYTES, key=self._keys[partner], person=b"lumos flags"
            ).digest()
            for partner in partners
        )
        words = np.frombuffer(masks, "<u8").reshape(-1, 2)
        before = np.searchsorted(partners, self._device)  # of these two, the other one adds
        added = words[before:].sum(axis=0) - words[:before].sum(axis=0)
        share: bytes = (flags.astype("<u8") + added).astype("<u8").tobytes()
        return share


def _two_words(content: bytes) -> tuple[int, int]:
    return int.from_bytes(content[:8], "little"), int.from_bytes(content[8:], "little")


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
        self.running = RunningProgram(self.program, self.endpoint)

    def advance(self, now: float) -> bool:
        """Go on as far as what has arrived allows; return whether the program has finished."""
        while not self.running.finished:
            inbox = self._round(now)
            if inbox is None:
                return False
            if self.record is not None:  # what arrived is on disk
                self.mailbox.forget_round(self.key)
            self._sent = None
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

    def _is_closed(self, key: RoundKey) -> bool:
        """Return whether the record has that the coordinator closed a round."""
        return COORDINATOR in self.recorded.get(key, {})

    def _record_close(self, topic: Topic, key: RoundKey, *, quiet: bool) -> None:
        """Record the end of a round between devices: the coordinator's envelope has `quiet`.

        Envelopes that were recorded before, as all were there, are not replaced.
        """
        arrived = self._arrived(self.mailbox.senders(key), key)
        sent = arrived.pop(COORDINATOR, Data(key, topic.name, 0, b""))
        before = self.recorded.get(key)
        closing = {COORDINATOR: msgspec.structs.replace(sent, quiet=quiet)}
        added = {**arrived, **closing} if before is None else closing
        if self.record is not None:
            self.record(key, added)
        self.recorded[key] = {**(before or {}), **added}

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
    masks: FlagMasks | None = None
    """Masks of its flags; None for rounds of two devices alone, which no coordinator closes."""
    tick: float = TICK
    """Seconds between two ticks."""
    came_back: bool = False
    """The device was started again in this phase."""

    def __post_init__(self) -> None:
        self._closed: dict[RoundKey, bool] = {}
        self._receivers: set[int] = set()
        self._began = 0
        """The tick before which the present round began."""
        self._shares: dict[int, bytes] = {}
        """By tick."""
        super().__post_init__()

    def close(self, closed: Closed) -> None:
        """Note that the coordinator has closed a round."""
        if len(self._closed) < MAX_CLOSED:
            self._closed.setdefault(closed.key, closed.quiet)

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "receives":
            self._post(outbox, [COORDINATOR], now, quiet=False)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "sends":
            return self._from_coordinator(topic, key)
        if first:
            self._begin_between(outbox, now)
        if self.masks is None:
            return self._of_two(outbox, key)
        return self._between(outbox, key)

    def _from_coordinator(self, topic: Topic, key: RoundKey) -> Inbox | None:
        arrived = self._arrived([COORDINATOR], key)
        if not arrived and key not in self.recorded:
            return None
        data = self._over(key, arrived)[COORDINATOR]
        # What the coordinator sends is not dropped: without it there is no round.
        return Inbox(batch_of(data, topic, COORDINATOR, self.me), quiet=data.quiet)

    def _begin_between(self, outbox: Outbox, now: float) -> None:
        """Send the envelopes of a round between devices."""
        if outbox.awaits is None:
            self._receivers = set(self.neighbours.tolist()) | set(outbox.batch.receiver.tolist())
        else:
            self._receivers = set(np.asarray(outbox.awaits).tolist())
        self._receivers -= {self.me}
        self._post(outbox, self._receivers, now, quiet=False)
        self._began, self._shares = tick_before(now, self.tick), {}

    def _of_two(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        """Wait for the other one."""
        arrived = self._arrived(self._receivers, key)
        if self._receivers - set(arrived) - self.out:
            return None
        return Inbox(self._read(outbox, self._over(key, arrived), key), quiet=False)

    def _between(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        """Wait until the coordinator closes the round."""
        if not self._is_closed(key):
            if outbox.awaits is not None and key not in self.recorded:
                arrived = self._arrived(self._receivers, key)
                if not self._receivers - set(arrived) - self.out:
                    self._over(key, arrived)  # before the flag says that nothing is missing
            if key not in self._closed:
                return None
            lost = self.came_back and outbox.awaits is None and not self.mailbox.welcome()
            if lost:
                return None
            self._record_close(outbox.topic, key, quiet=self._closed.pop(key))
        return self._after_barrier(outbox, self.recorded[key], key)

    @property
    def sends_flags(self) -> bool:
        """True in rounds between devices that the coordinator has to close."""
        outbox = self._sent
        return (
            self.masks is not None
            and outbox is not None
            and outbox.topic.coordinator not in ("receives", "sends")
        )

    def flags(self, tick: int) -> MaskedFlags | None:
        """Return the masked flags to send at a tick; None where there are none to send."""
        outbox = self._sent
        if not self.sends_flags or outbox is None or self.masks is None:
            return None
        if tick < self._began + 2:  # its envelopes may be on their way
            return None
        key = self.key
        if outbox.awaits is not None:
            missing, speaks = key not in self.recorded, True
        else:
            arrived = all(self.mailbox.acknowledged(other, key) for other in self._receivers)
            missing = not arrived or not self.mailbox.welcome()
            speaks = bool(outbox.batch.messages)
        if tick not in self._shares:
            self._shares[tick] = self.masks.share(
                key, tick, self.out, missing=missing, speaks=speaks
            )
        self._shares = dict(sorted(self._shares.items())[-REPEATED:])
        return MaskedFlags(key, list(self._shares), b"".join(self._shares.values()))


def tick_before(now: float, seconds: float) -> int:
    """Return the number of the last tick at a time; ticks are `seconds` apart."""
    return math.floor(now / seconds + 1e-6)


@dataclass
class _OpenRound:
    """The flags of a round between devices that is not closed."""

    shares: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By device and tick."""
    added_up: int = -1
    """The last tick at which all flags were there, and something was missing."""
    since: float | None = None
    """When that was the case for the first time."""


@dataclass(kw_only=True, eq=False)
class Barriers:
    """The coordinator's part in rounds between devices: it adds up flags, and closes rounds.

    Devices may be in such a round of a phase that is over for the coordinator.
    """

    mailbox: Mailbox
    out: Set[int]
    """Devices that are left out for good; the coordinator adds to this very set."""
    total: int
    """Number of devices."""
    deadline: float
    """Seconds after which a round is closed in which something stays missing."""
    record: Record
    recorded: RoundRecord
    log: Callable[[str], None]

    def __post_init__(self) -> None:
        self._rounds: dict[RoundKey, _OpenRound] = {}
        self._first_open: dict[tuple[int, int, int], int] = {}
        """By phase, attempt and channel: the first round that is not closed, as far as known."""

    def present(self) -> list[int]:
        """Return the devices that take part."""
        return [device for device in range(self.total) if device not in self.out]

    def is_closed(self, key: RoundKey) -> bool:
        """Return whether a round is closed."""
        return COORDINATOR in self.recorded.get(key, {})

    def take(self, device: int, flags: MaskedFlags, phases: Collection[tuple[int, int]]) -> bool:
        """Note masked flags of a device; return whether one of them is new.

        Args:
            phases: phases and attempts in which devices can be.
        """
        key = flags.key
        if self.is_closed(key):  # it has not received that the round is over
            self.mailbox.tell(device, Closed(key, self.recorded[key][COORDINATOR].quiet))
            return False
        between = key.channel in (BETWEEN_DEVICES, OF_BOTH) and key[:2] in phases
        if not between or key.number != self._open_round(key):
            return False
        found = self._rounds.setdefault(key, _OpenRound())
        shares, new = found.shares.setdefault(device, {}), False
        for place, tick in enumerate(flags.ticks[:REPEATED]):
            share = flags.shares[place * FLAG_BYTES : (place + 1) * FLAG_BYTES]
            if tick > found.added_up and tick not in shares:
                shares[tick], new = _two_words(share), True
        while len(shares) > MAX_TICKS:
            del shares[next(iter(shares))]
        return new

    def _open_round(self, key: RoundKey) -> int:
        place = key[:3]
        number = self._first_open.get(place, 0)
        while self.is_closed(RoundKey(*place, number)):
            number += 1
        if place not in self._first_open:  # phases before the last one are over for everybody
            self._first_open = {
                old: first for old, first in self._first_open.items() if old[0] >= key.phase - 1
            }
        self._first_open[place] = number
        return number

    def verdict(self, key: RoundKey, now: float) -> bool | None:
        """Return whether a round was quiet, once it may be closed; None before."""
        found, present = self._rounds.get(key, _OpenRound()), self.present()
        if not all(found.shares.get(device) for device in present):
            return None
        fewest = min((found.shares[device] for device in present), key=len)
        for tick in sorted(fewest):
            if all(tick in found.shares[device] for device in present):
                # A device that was left out since has its masks in the others' shares.
                words = [shares[tick] for shares in found.shares.values() if tick in shares]
                missing, spoke = (sum(flags) & _WORD for flags in zip(*words, strict=True))
                if not missing:
                    return not spoke
                found.added_up = tick
                found.since = now if found.since is None else found.since
        for device, shares in found.shares.items():
            later = {tick: flags for tick, flags in shares.items() if tick > found.added_up}
            found.shares[device] = later
        if found.since is not None and now - found.since > self.deadline:
            self.log(
                f"something was missing between devices for {self.deadline:g} s; the round ends"
            )
            return False
        return None

    def close(self, now: float) -> None:
        """Close the rounds between devices in which nothing is missing."""
        for key in list(self._rounds):
            quiet = self.verdict(key, now) if key.channel == BETWEEN_DEVICES else None
            if quiet is not None:  # its envelopes are none of the coordinator's
                closing = {COORDINATOR: Data(key, "", 0, b"", quiet=quiet)}
                self.record(key, closing)
                self.recorded[key] = closing
                self.announce(key)

    def announce(self, key: RoundKey) -> None:
        """Send devices that a round is over; its record has it."""
        self._rounds.pop(key, None)
        quiet = self.recorded[key][COORDINATOR].quiet
        for device in self.present():
            self.mailbox.tell(device, Closed(key, quiet))

    def forget(self, phase: int, attempt: int) -> None:
        """Forget the open rounds of an attempt that is given up."""
        for key in [key for key in self._rounds if key[:2] == (phase, attempt)]:
            del self._rounds[key]


@dataclass(kw_only=True, eq=False)
class CoordinatorRounds(_Rounds[Result]):
    """The rounds of the coordinator."""

    me: int = COORDINATOR
    barriers: Barriers

    def present(self) -> list[int]:
        """Return the devices that take part."""
        return self.barriers.present()

    def missing(self) -> set[int]:
        """Return the devices that the present round waits for."""
        part = "sends" if self.running.finished else self._topic.coordinator
        if part == "sends":
            return set()
        if part != "receives":
            return set(self.present())
        key = self.key
        return {device for device in self.present() if self.mailbox.envelope(device, key) is None}

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "sends":
            self._post(outbox, self.present(), now, quiet=not outbox.batch.messages)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "receives":
            return self._from_devices(outbox, key)
        return self._of_both(outbox, first, now)

    def _from_devices(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        if key not in self.recorded and self.missing():
            return None
        envelopes = self._over(key, self._arrived(self.present(), key))
        batch = self._read(outbox, envelopes, key)
        return Inbox(batch.packed(), quiet=not batch.messages)

    def _of_both(self, outbox: Outbox, first: bool, now: float) -> Inbox | None:
        """Run a round of devices and coordinator."""
        key, receivers = self.key, set(outbox.batch.receiver.tolist())
        if first:
            self._post(outbox, receivers, now, quiet=False)
        if not self._is_closed(key):
            if not all(self.mailbox.acknowledged(receiver, key) for receiver in receivers):
                return None
            quiet = self.barriers.verdict(key, now)
            if quiet is None or not self.mailbox.welcome():
                return None
            self._record_close(outbox.topic, key, quiet=quiet and not outbox.batch.messages)
            self.barriers.announce(key)
        return self._after_barrier(outbox, self.recorded[key], key)
