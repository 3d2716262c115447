"""Rounds of a program over envelopes, and the rules by which a round is complete.

| topic | a device | the coordinator |
|---|---|---|
| the coordinator receives | sends it an envelope, goes on | waits for everyone that is present |
| the coordinator sends | waits for its envelope | sends one to everyone, and goes on |
| the coordinator gathers | sends flags and its word until the round is closed | closes the round |
| between devices, `local` | sends envelopes, waits for those in `awaits` | takes no part |
| anything else | sends envelopes, sends flags until the round is closed | closes the round |

**Rounds between devices** end for all at once, so that nobody shows whom it waits for. A device
sends an envelope to those in `awaits`, or to all its neighbours and whomever else it has a message
for. Something is *missing* until it has the envelopes of all in `awaits`, on its disk, or until all
its own have arrived. From the second tick after that on, at every tick, and at fewer if the round
takes long, it sends the coordinator a masked flag: 0, or a random word if something is missing
(`FlagMasks`). Where the flags of all devices at one tick add up to 0, the coordinator closes the
round, and announces whether it was quiet, which a second flag says. A device goes on when the round
is closed, also if something is still missing: the coordinator lies, or it has waited for as long as
the deadline.

*What the flags say.* Masks of two ticks differ, and a device sends one share of each, so the
coordinator learns of a tick whether nothing is missing anywhere, if it has all shares, and
otherwise nothing. A device that does not have the sum before the round has no share to send. One
that got it late has had a whole tick to reach its neighbours when it sends its first share: so a
device that the coordinator holds up makes no difference at its neighbours, if clocks differ by
less than a tick. A device that has to go on without a message treats its sender as silent.

**Stages** are local rounds that end with a gathering: thousands of short rounds would take hours if
the coordinator closed each. In them a device goes on by itself, and sends an envelope to all its
neighbours in each, something or nothing: in rounds of comparisons to those with larger ids, or to
those with smaller ones. From the second tick after the stage began on it sends
masked flags of the *gathering*, and something is missing until it has come to it. Behind the flags
is room for a word of each device. Where no flag is raised the sum of all shares has the words of
all, and otherwise every bit of it is random. So the coordinator learns of a tick whether all
devices have come to the end of the stage, and if so their words; a device that it holds up makes no
difference at others. A device that has not come to the end while the coordinator goes on stops:
the coordinator lies. In other local rounds it has named those who meet, and waits for them alone.

*Records.* What a device receives in local rounds, and from the coordinator in phases with such
rounds, is written before a packet leaves, and on the disk at the next sign of life at the latest.
After a loss of power its peers send it again, byte by byte the same: all of it follows from secrets
and from what the coordinator recorded.

A participant that was restarted in a round without `awaits` has lost what had arrived: it goes on
once it has all of it again (`Mailbox.welcome`).

A device that is left out is awaited by nobody. The envelopes that a participant received in a round
are recorded before anything follows from them, and after a restart it receives the same. With
others, a device would hide another vector under the same masks, or use the same scalar twice. An
envelope that is not what its topic declares is dropped: its sender counts as silent in that round,
and `refused` reports it, without its content.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Set
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from struct import Struct
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto import entropy
from lumos.deploy.protocol.frames import (
    BETWEEN_DEVICES,
    FLAG_BYTES,
    GATHERED,
    LOCAL,
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
Words = npt.NDArray[np.uint64]

Refused = Callable[[int, str], None]
"""Callback `(sender, line)`: an envelope was dropped, and why."""

RoundRecord = dict[RoundKey, dict[int, Data]]
"""Rounds that are over, with the envelopes that were in them, by sender."""


class Record(Protocol):
    """Makes a round survive a restart."""

    def __call__(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        """Record envelopes; as `ParticipantStore.add_round`."""
        ...


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

    def add_round(self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True) -> None:
        """Record envelopes of a round, before anything follows from them; others may be there.

        Args:
            durable: on the disk when this returns; otherwise after `write` or `sync`.
        """
        ...

    def write(self) -> None:
        """Have everything that was recorded survive the end of the process."""
        ...

    def sync(self) -> None:
        """Have everything that was recorded survive a loss of power."""
        ...

    def begin(self, phase: int, attempt: int, absent: Collection[int], ledgers: Arrays) -> None:
        """Record that another attempt at a phase begins, before anything of it is sent."""
        ...

    def begun(self, phase: int) -> BegunAttempt | None:
        """Return the last attempt at a phase; None for the first."""
        ...


TICK = 0.1
"""Seconds between two ticks, unless the plan says otherwise."""
SETTLE = 0.02
"""Seconds for which packets of a round may be on their way before flags are sent, at least."""
PARTNER_SHIFTS = 64
"""Half the number of devices with which one shares masks of flags: all, if there are up to 129."""
FEWER_TICKS = ((6, 4), (32, 16))
"""Pairs (a, b): from a ticks after a round or a stage began on, flags leave at every b-th."""
REPEATED = 16
"""Ticks whose shares are in a packet: packets can be lost."""
MAX_TICKS = 512
"""Ticks whose shares the coordinator keeps: clocks may differ."""
MAX_CLOSED = 4096
"""Announcements of the coordinator that a device keeps in a phase."""
_PLACE = Struct("<5q")
_WORD = np.dtype("<u8")
_COORDINATOR_ONLY = frozenset({COORDINATOR})


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
        self,
        key: RoundKey,
        tick: int,
        out: Set[int],
        *,
        missing: bool,
        speaks: bool,
        report: int | None = None,
    ) -> bytes:
        """Return the masked flags of a tick.

        A device that misses something raises both: whether it speaks is not decided yet.

        Args:
            out: devices that are left out.
            report: the device's word, where words are gathered; 0 for none.
        """
        place = _PLACE.pack(*key, tick)
        size = FLAG_BYTES + (0 if report is None else report_bytes(self._total))
        flags = np.zeros(size // 8, _WORD)
        drawn = np.frombuffer(entropy.draw(size), _WORD)
        if missing:
            flags += drawn
        else:
            flags[1] = drawn[1] if speaks else 0
            if report:
                byte, bit = divmod(REPORT_BITS * self._device, 8)
                flags.view(np.uint8)[FLAG_BYTES + byte] = report << bit
        partners = [partner for partner in self._keys if partner not in out]
        masks = b"".join([_mask(self._keys[partner], place, size) for partner in partners])
        words = np.frombuffer(masks, _WORD).reshape(-1, size // 8)
        before = bisect_left(partners, self._device)  # of these two, the other one adds
        added = np.add.reduce(words[before:]) - np.add.reduce(words[:before])
        share: bytes = (flags + added).tobytes()
        return share


def _mask(pair_key: bytes, place: bytes, size: int) -> bytes:
    """Return so many bytes that only two devices know, of one place."""
    return b"".join(
        [
            blake2b(
                place,
                digest_size=min(64, size - start),
                key=pair_key,
                salt=(start // 64).to_bytes(16, "little"),
                person=b"lumos flags",
            ).digest()
            for start in range(0, size, 64)
        ]
    )


REPORT_BITS = 2
"""Bits of a device's word among those that are gathered; all bits 0: it has none."""


def report_bytes(total: int) -> int:
    """Return the bytes of the words of all devices, a multiple of 8."""
    return -(-REPORT_BITS * total // 64) * 8


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
        self._numbers = [0] * (GATHERED + 1)
        self._sent: Outbox | None = None
        self._key: RoundKey | None = None
        self.running = RunningProgram(self.program, self.endpoint)

    def advance(self, now: float) -> bool:
        """Go on as far as what has arrived allows; return whether the program has finished."""
        while not self.running.finished:
            inbox = self._round(now)
            if inbox is None:
                return False
            key = self.key
            if self.record is not None:  # what arrived is on disk
                self.mailbox.forget_round(key)
            self._sent = self._key = None
            self._numbers[key.channel] += 1
            self.running.resume(inbox)
        return True

    @property
    def _outbox(self) -> Outbox:
        return self.running.outbox if self._sent is None else self._sent

    @property
    def _channel(self) -> int:
        outbox = self._outbox
        part = outbox.topic.coordinator
        if not part:
            return LOCAL if outbox.local else BETWEEN_DEVICES
        return {"both": OF_BOTH, "gathers": GATHERED}.get(part, WITH_COORDINATOR)

    @property
    def key(self) -> RoundKey:
        """The present round."""
        if self._key is None:
            self._key = self._next(self._channel)
        return self._key

    def _next(self, channel: int) -> RoundKey:
        """Return the first round of a channel that is not over."""
        return RoundKey(*self.phase, channel, self._numbers[channel])

    def _round(self, now: float) -> Inbox | None:
        raise NotImplementedError

    def _over(
        self, key: RoundKey, envelopes: dict[int, Data], *, durable: bool = True
    ) -> dict[int, Data]:
        """Return the envelopes of a round that is over: the recorded ones, if it is replayed."""
        if key not in self.recorded:
            if self.record is None:
                return envelopes
            self.record(key, envelopes, durable=durable)
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
        nothing = Data(key, outbox.topic.name, 0, b"", quiet=quiet)
        spoken_to = set(batch.receiver.tolist())
        for receiver in receivers:
            data = nothing
            if receiver in spoken_to:
                rows = np.flatnonzero(batch.receiver == receiver)
                data = data_of(key, outbox.topic, batch, rows, quiet=quiet)
            self.mailbox.post(receiver, data, now)

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
    prompt: bool = False
    """In this phase messages of the coordinator are handled as they come, and need not be on the
    disk before anything follows from them."""

    def __post_init__(self) -> None:
        self._closed: dict[RoundKey, bool] = {}
        self._receivers: set[int] = set()
        self._awaited: set[int] = set()
        self._began = 0
        """The tick before which the present round began."""
        self._shares: dict[int, bytes] = {}
        """By tick."""
        self._in_stage = False
        """From the first round of a stage until its words are gathered."""
        super().__post_init__()

    def close(self, closed: Closed) -> None:
        """Note that the coordinator has closed a round."""
        if len(self._closed) < MAX_CLOSED:
            self._closed.setdefault(closed.key, closed.quiet)

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "receives":
            if outbox.awaits is None:
                self._post(outbox, [COORDINATOR], now, quiet=False)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "sends":
            return self._from_coordinator(topic, key)
        if topic.coordinator == "gathers" or outbox.local == "stage":
            self._begin_stage(now)
        if topic.coordinator == "gathers":
            return self._reported(topic, key)
        if first:
            self._begin_between(outbox, now)
        if outbox.local:
            return self._local(outbox, key)
        if self.masks is None:
            return self._of_two(outbox, key)
        return self._between(outbox, key)

    def _from_coordinator(self, topic: Topic, key: RoundKey) -> Inbox | None:
        arrived = self._arrived([COORDINATOR], key)
        if not arrived and key not in self.recorded:
            return None
        data = self._over(key, arrived, durable=not self.prompt)[COORDINATOR]
        # What the coordinator sends is not dropped: without it there is no round.
        return Inbox(batch_of(data, topic, COORDINATOR, self.me), quiet=data.quiet)

    def _begin_between(self, outbox: Outbox, now: float) -> None:
        """Send the envelopes of a round between devices."""
        if outbox.awaits is None:
            self._receivers = set(self.neighbours.tolist()) | set(outbox.batch.receiver.tolist())
        else:
            self._receivers = set(np.asarray(outbox.addresses).tolist())
            self._awaited = set(np.asarray(outbox.awaits).tolist()) - {self.me}
        self._receivers -= {self.me}
        self._post(outbox, self._receivers, now, quiet=False)
        if not outbox.local:
            self._began, self._shares = tick_before(now, self.tick), {}

    def _begin_stage(self, now: float) -> None:
        """Begin a stage, if it has not begun."""
        if not self._in_stage:
            self._in_stage = True
            self._began, self._shares = tick_before(now, self.tick), {}

    def _local(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        """Go on once all that are awaited have sent.

        What they sent follows from their secrets and from earlier rounds: they send the same again
        after a loss of power.
        """
        spoken: dict[int, Data] = {}
        if not self._awaited:
            return Inbox(outbox.topic.no_messages, quiet=False)
        if key not in self.recorded:
            arrived = self._arrived(self._awaited, key)
            if len(arrived) < len(self._awaited):
                self._refuse_haste()
                return None
            spoken = {sender: data for sender, data in arrived.items() if data.count}
        envelopes = self._over(key, spoken, durable=False)
        self.recorded.pop(key, None)  # it is not asked for again
        return Inbox(self._read(outbox, envelopes, key), quiet=False)

    def _refuse_haste(self) -> None:
        """Stop where the coordinator has gone on, though this device has not: it lies.

        A device that waited, and then went on, would have shown that it waited.
        """
        hasty = self._next(GATHERED) in self._closed or self._arrived(
            [COORDINATOR], self._next(WITH_COORDINATOR)
        )
        if self._in_stage and hasty and not self.came_back:
            raise ProtocolError(
                "the coordinator went on although messages between devices were missing"
            )

    def _reported(self, topic: Topic, key: RoundKey) -> Inbox | None:
        """Wait until the words of all devices are gathered."""
        if key not in self.recorded:
            if key not in self._closed:
                return None
            del self._closed[key]
        self._over(key, {}, durable=False)
        self.recorded.pop(key, None)
        self._in_stage = False
        return Inbox(topic.no_messages, quiet=False)

    def _of_two(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        """Wait for the other one."""
        arrived = self._arrived(self._awaited, key)
        if self._awaited - set(arrived) - self.out:
            return None
        return Inbox(self._read(outbox, self._over(key, arrived), key), quiet=False)

    def _between(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        """Wait until the coordinator closes the round."""
        if not self._is_closed(key):
            if outbox.awaits is not None and key not in self.recorded:
                arrived = self._arrived(self._awaited, key)
                if not self._awaited - set(arrived) - self.out:
                    self._over(key, arrived)  # before the flag says that nothing is missing
            if key not in self._closed:
                return None
            lost = self.came_back and outbox.awaits is None and not self.mailbox.welcome()
            if lost:
                return None
            self._record_close(outbox.topic, key, quiet=self._closed.pop(key))
        return self._after_barrier(outbox, self.recorded[key], key)

    def awaited(self) -> Set[int]:
        """Return those of whom something has to come before the device goes on; none: not known."""
        if self._sent is None or self._channel in (BETWEEN_DEVICES, OF_BOTH):
            return frozenset()
        if self._channel != LOCAL:
            return _COORDINATOR_ONLY
        key = self.key
        return {other for other in self._awaited if self.mailbox.envelope(other, key) is None}

    @property
    def _sends_flags(self) -> bool:
        """True in rounds between devices that the coordinator has to close."""
        outbox = self._sent
        return self.masks is not None and (
            self._in_stage
            or (
                outbox is not None
                and not outbox.local
                and outbox.topic.coordinator not in ("receives", "sends")
            )
        )

    def next_flags(self, tick: int) -> float:
        """Return the first tick from this one on at which flags are sent; infinite without any.

        Not before the second tick after a round began, and `SETTLE` seconds after the first one:
        its envelopes may be on their way. In one that takes long, at fewer ticks, the same for all
        devices.
        """
        if not self._sends_flags:
            return math.inf
        tick = max(tick, self._began + 1 + max(1, math.ceil(SETTLE / self.tick - 1e-6)))
        for age, every in FEWER_TICKS:
            if tick > self._began + age:
                tick = -(-tick // every) * every
        return tick

    def flags(self, tick: int) -> MaskedFlags | None:
        """Return the masked flags to send at a tick; None where there are none to send.

        Those of ticks that this device has slept through are among them: otherwise the others would
        have sent theirs for nothing, and devices that rarely wake would share no tick.
        """
        outbox = self._sent
        if outbox is None or self.masks is None:
            return None
        ticks = []
        due = self.next_flags(max(tick - REPEATED, *self._shares, -1) + 1)
        while due <= tick:
            ticks.append(int(due))
            due = self.next_flags(int(due) + 1)
        if not ticks:
            return None
        key, report = self.key, None
        if self._in_stage:
            key = self._next(GATHERED)
            missing, speaks, report = self._channel != GATHERED, bool(outbox.batch.messages), 0
            if not missing and speaks:
                report = 1 + int(outbox.batch.body[0])
        elif outbox.awaits is not None:
            missing, speaks = key not in self.recorded, True
        else:
            arrived = all(self.mailbox.acknowledged(other, key) for other in self._receivers)
            missing = not arrived or not self.mailbox.welcome()
            speaks = bool(outbox.batch.messages)
        for due in ticks:
            self._shares[due] = self.masks.share(
                key, due, self.out, missing=missing, speaks=speaks, report=report
            )
        self._shares = dict(sorted(self._shares.items())[-REPEATED:])
        return MaskedFlags(key, list(self._shares), b"".join(self._shares.values()))


def reports(added: Words, devices: Iterable[int]) -> dict[int, int]:
    """Return the words of devices that have one, from the sum of all shares."""
    bits = np.unpackbits(added[FLAG_BYTES // 8 :].view(np.uint8), bitorder="little")
    words = bits.reshape(-1, REPORT_BITS) @ (1 << np.arange(REPORT_BITS))
    return {device: int(words[device]) for device in devices if words[device]}


def tick_before(now: float, seconds: float) -> int:
    """Return the number of the last tick at a time; ticks are `seconds` apart."""
    return math.floor(now / seconds + 1e-6)


@dataclass
class _OpenRound:
    """The flags of a round between devices that is not closed."""

    shares: dict[int, dict[int, Words]] = field(default_factory=dict)
    """By device and tick: words [flags …]."""
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
        between = key.channel in (BETWEEN_DEVICES, OF_BOTH, GATHERED) and key[:2] in phases
        if not between or key.number != self._open_round(key):
            return False
        size = FLAG_BYTES + (report_bytes(self.total) if key.channel == GATHERED else 0)
        if len(flags.shares) != size * len(flags.ticks):
            return False
        found = self._rounds.setdefault(key, _OpenRound())
        shares, new = found.shares.setdefault(device, {}), False
        for place, tick in enumerate(flags.ticks[:REPEATED]):
            if tick > found.added_up and tick not in shares:
                share = np.frombuffer(flags.shares, _WORD, size // 8, place * size)
                shares[tick], new = share, True
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
        added = self.added_up(key, now)
        return None if added is None else not added[1]

    def added_up(self, key: RoundKey, now: float) -> Words | None:
        """Return the sum of the words of all devices, once a round may be closed; None before.

        Words are 1 where it is closed although something is missing.
        """
        found, present = self._rounds.get(key, _OpenRound()), self.present()
        if not all(found.shares.get(device) for device in present):
            return None
        fewest = min((found.shares[device] for device in present), key=len)
        for tick in sorted(fewest):
            if all(tick in found.shares[device] for device in present):
                # A device that was left out since has its masks in the others' shares.
                words = [shares[tick] for shares in found.shares.values() if tick in shares]
                added: Words = np.add.reduce(words)
                if not added[0]:
                    return added
                found.added_up = tick
                found.since = now if found.since is None else found.since
        for device, shares in found.shares.items():
            later = {tick: flags for tick, flags in shares.items() if tick > found.added_up}
            found.shares[device] = later
        if found.since is not None and now - found.since > self.deadline:
            self.log(
                f"something was missing between devices for {self.deadline:g} s; the round ends"
            )
            return np.ones(2, _WORD)
        return None

    def without_flags(self, key: RoundKey) -> Set[int]:
        """Return the devices of which no flags of a round wait to be added up."""
        shares = self._rounds.get(key, _OpenRound()).shares
        return {device for device in self.present() if not shares.get(device)}

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

    def __post_init__(self) -> None:
        self._addressed: set[int] = set()
        """Devices that got a message since words were last gathered."""
        super().__post_init__()

    def idle(self) -> Collection[int]:
        """Return the devices that need not hear yet that there was nothing for them.

        While the coordinator waits for some that it has named, the others have nothing to do.
        """
        if self.running.finished or self._outbox.topic.coordinator != "receives":
            return ()
        if self._outbox.awaits is None:
            return ()
        return set(self.present()) - self._addressed

    def present(self) -> list[int]:
        """Return the devices that take part."""
        return self.barriers.present()

    def awaited(self) -> Set[int]:
        """Return those of whom something has to come before it goes on; none: not known."""
        if (
            self.running.finished
            or self._sent is None
            or self._channel in (BETWEEN_DEVICES, OF_BOTH)
        ):
            return frozenset()
        if self._channel == GATHERED:
            return self.barriers.without_flags(self.key)
        return self.missing()

    def missing(self) -> set[int]:
        """Return the devices that the present round waits for."""
        if self.running.finished or self._outbox.topic.coordinator == "sends":
            return set()
        awaited, key = set(self.present()), self.key
        if self._outbox.topic.coordinator != "receives":
            return awaited
        if self._outbox.awaits is not None:
            awaited &= set(self._outbox.awaits.tolist())
        return {device for device in awaited if self.mailbox.envelope(device, key) is None}

    def _round(self, now: float) -> Inbox | None:
        outbox, first = self._take()
        topic, key = outbox.topic, self.key
        if topic.coordinator == "sends":
            self._addressed.update(outbox.batch.receiver.tolist())
            self._post(outbox, self.present(), now, quiet=not outbox.batch.messages)
            return Inbox(topic.no_messages, quiet=False)
        if topic.coordinator == "receives":
            return self._from_devices(outbox, key)
        if topic.coordinator == "gathers":
            return self._gathered(outbox, key, now)
        return self._of_both(outbox, first, now)

    def _gathered(self, outbox: Outbox, key: RoundKey, now: float) -> Inbox | None:
        """Take the words of all devices, at a tick at which nothing is missing."""
        if not self._is_closed(key):
            added = self.barriers.added_up(key, now)
            if added is None:
                return None
            if added[0]:
                raise ProtocolError("messages between devices were missing for too long")
            words = {
                device: Data(key, outbox.topic.name, 1, bytes([word - 1]))
                for device, word in reports(added, self.present()).items()
            }
            # After a loss of power the coordinator could not gather them again.
            self._over(key, {**words, COORDINATOR: Data(key, "", 0, b"")})
            self.barriers.announce(key)
            self._addressed = set()
        envelopes = {**self.recorded[key]}
        del envelopes[COORDINATOR]
        batch = self._read(outbox, envelopes, key)
        return Inbox(batch, quiet=not batch.messages)

    def _from_devices(self, outbox: Outbox, key: RoundKey) -> Inbox | None:
        if key not in self.recorded and self.missing():
            return None
        # Those that are named send the same again after a loss of power.
        arrived = self._arrived(self.present(), key)
        envelopes = self._over(key, arrived, durable=outbox.awaits is None)
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
