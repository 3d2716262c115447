"""Envelopes that arrive, over a network that loses, doubles and reorders packets.

An envelope is repeated, byte by byte the same, until its receiver acknowledges it. The first one
that arrives counts; any other with the same key from the same sender is dropped. After it is
acknowledged it is kept until the receiver says that it will not need it again, even if it is killed
and goes on from its last snapshot (`durable`): whoever starts again says hello, gets the envelopes
that it has lost, and is welcome once it has acknowledged them in its present start. What others may
still need is part of a sender's own snapshot. The phase `FORGOTTEN` does not survive a restart:
what is acknowledged in it is not kept.

A large envelope is not repeated on suspicion: packets between two participants keep their order, so
its receiver is asked whether it has arrived, and sends that it wants it again if not. A receiver
that is only slow, or behind a slow link, is not sent the same kilobytes time and again.

Where many short rounds follow each other (`unhurried`), acknowledgements ride with the next packet,
and nobody asks or answers.

No clock is read here and nothing is sent: `receive` takes what has arrived, `due` returns what is
to be sent now. So whole federations are tested in one process, with virtual time.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from lumos.deploy.identity import described
from lumos.deploy.protocol.frames import (
    LOCAL,
    WITH_COORDINATOR,
    Acknowledged,
    Asked,
    Data,
    Frame,
    Hello,
    RoundKey,
    Wanted,
    Welcome,
)
from lumos.device.shard import COORDINATOR

FIRST_WAIT = 0.5
"""Seconds until an envelope is sent again for the first time …"""
MAX_WAIT = 4.0
"""… and at most: waits double from the `STEADY`th on."""
STEADY = 3
MIN_WAIT = 0.1
"""Smallest first wait, where acknowledgements come quickly."""
PATIENCE = 3.0
"""The first wait, as a multiple of the mean time that acknowledgements take."""
ACKNOWLEDGED_WITHIN = 0.4
"""Seconds for which an acknowledgement waits for something else that is sent, at most …"""
UNHURRIED_WAIT = 1.0
"""… and the smallest first wait where it does."""
LARGE = 4096
"""Bytes of an envelope about which its receiver is asked before it is sent again."""
MAX_ASKED = 256
"""Envelopes about which one question is answered."""
MIN_UNREAD = 4 << 20
"""Bytes of one sender in one phase that wait to be read, unless `Mailbox` gets a larger number."""
ENVELOPE, LENGTH = 256, 40
"""Bytes that count for an envelope beside its body and topic, and for each of its lengths."""
MAX_AHEAD = 2
"""Phases by which a sender may be ahead of what is on disk."""
FORGOTTEN = 1 << 30
"""The phase that a participant has forgotten when it starts again."""

_COORDINATOR_ONLY = (COORDINATOR,)


@dataclass(slots=True)
class _Unacknowledged:
    frame: Data | Hello
    due: float
    wait: float = FIRST_WAIT
    """Seconds until it is sent once more."""
    times: int = 0
    """Number of times it was sent, or asked about."""
    copies: int = 0
    """Number of times it was sent …"""
    first: float = 0.0
    """… and when for the first time."""
    is_asked: bool = False
    """Its receiver was asked about the last copy."""
    is_wanted: bool = False
    """Its receiver does not have that."""

    def due_again(self, first_wait: float, now: float) -> None:
        """Note that it is sent, or asked about, and when that is due again."""
        if not self.times:
            self.wait = min(first_wait, MAX_WAIT)
        elif self.times >= STEADY:
            self.wait = min(2 * self.wait, MAX_WAIT)
        self.times += 1
        self.due = now + self.wait

    def send(self, now: float) -> Data | Hello:
        """Return a copy."""
        if not self.copies:
            self.first = now
        self.copies += 1
        self.is_asked = self.is_wanted = False
        return self.frame


@dataclass(slots=True)
class _Peer:
    """The state of one other participant."""

    waiting: dict[RoundKey, _Unacknowledged] = field(default_factory=dict)
    """Envelopes to it that are not acknowledged."""
    kept: dict[RoundKey, Data] = field(default_factory=dict)
    """All envelopes to it that it may still need."""
    greeted: bool = False
    hello: _Unacknowledged | None = None
    boot: bytes | None = None
    """Its present start."""
    owed: set[RoundKey] = field(default_factory=set)
    """Envelopes that it may have lost when it started, and has not acknowledged since."""
    arrived: dict[RoundKey, Data] = field(default_factory=dict)
    """Envelopes from it."""
    seen: set[RoundKey] = field(default_factory=set)
    unread: dict[int, int] = field(default_factory=dict)
    """By phase: bytes that have arrived and were not read."""
    flooded: bool = False
    """It sent more than is kept."""
    acknowledge: list[RoundKey] = field(default_factory=list)
    acknowledge_at: float = float("-inf")
    """Time at which they are acknowledged, with whatever else is sent before."""
    welcome: Hello | None = None
    """Its hello, until it is answered."""
    frames: list[Frame] = field(default_factory=list)
    """Other frames to it, sent once."""
    durable: int = 0
    """Phases before this one are on its disk."""
    delay: float = FIRST_WAIT / PATIENCE
    """Seconds that its acknowledgements take, in the mean over the last ones."""
    repeated: dict[RoundKey, float] = field(default_factory=dict)
    """Seconds that it took from first sending an envelope, which was repeated, to the first
    acknowledgement. If it is acknowledged again, that was of the first copy."""
    soon: float = 0.0
    """Nothing is sent to it before this time, if nothing new comes."""

    def take(self, key: RoundKey) -> None:
        """Forget an envelope from it, as it was read or is refused."""
        data = self.arrived.pop(key, None)
        if data is not None:
            self.unread[key.phase] -= _size(data)


class Mailbox:
    """The envelopes of one participant.

    Args:
        boot: random bytes of this start.
        durable: phases before this one are on disk: nothing of them is needed again.
        unread: bytes of one sender in one phase that may wait to be read; what comes then is
            neither kept nor acknowledged.
        log: called with a line that names a sender of more.
    """

    def __init__(
        self,
        boot: bytes,
        durable: int = 0,
        unread: int = MIN_UNREAD,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._boot = boot
        self._unread, self._log = unread, log
        self._durable = durable
        self._peers: dict[int, _Peer] = {}
        self._left: set[int] = set()
        self._soon = 0.0
        """Nothing is sent to a device before this time, if nothing new comes; 0: not known. Most
        packets that arrive complete no round: looking for what is due costs more than they do."""
        self._over: dict[tuple[int, ...], int] = {}
        """By phase, attempt and channel: the first round that is not over."""
        self.unhurried = False
        """True while acknowledgements may wait for something else that is sent, except in rounds
        between devices that the coordinator closes: nothing may be missing there."""

    def greet(self, peers: Iterable[int], now: float) -> None:
        """Send a hello to these until they answer."""
        for participant in peers:
            peer = self._peer(participant)
            if participant not in self._left and not peer.greeted:
                peer.greeted, peer.soon, self._soon = True, 0.0, 0.0
                peer.hello = _Unacknowledged(Hello(self._boot, self._durable), now)

    def post(self, receiver: int, data: Data, now: float) -> None:
        """Send an envelope, until it is acknowledged. What was posted before is not changed."""
        peer = self._peer(receiver)
        if receiver in self._left or data.key in peer.kept:
            return
        self.greet([receiver], now)
        peer.kept[data.key] = data
        peer.waiting[data.key] = _Unacknowledged(data, now)
        peer.soon = self._soon = 0.0

    def tell(self, receiver: int, frame: Frame) -> None:
        """Send a frame once, with the next packet."""
        peer = self._peer(receiver)
        peer.frames.append(frame)
        peer.soon = self._soon = 0.0

    def welcome(self) -> bool:
        """Return whether all that were greeted have answered, except those that are left out.

        Then every envelope that they had sent to an earlier start of this participant is here."""
        return all(peer.hello is None for peer in self._peers.values())

    def acknowledged(self, receiver: int, key: RoundKey) -> bool:
        """Return whether an envelope has arrived, or its receiver is left out."""
        return receiver in self._left or key not in self._peer(receiver).waiting

    def envelope(self, sender: int, key: RoundKey) -> Data | None:
        """Return the envelope of a participant in a round; None while it has not arrived."""
        return self._peer(sender).arrived.get(key)

    def boot_of(self, participant: int) -> bytes | None:
        """Return the random bytes of a participant's present start; None before its hello."""
        peer = self._peer(participant)
        return peer.boot if peer.welcome is None else peer.welcome.boot

    def unread(self, sender: int) -> int:
        """Return the bytes of a sender that wait to be read."""
        return sum(map(_size, self._peer(sender).arrived.values()))

    def senders(self, key: RoundKey) -> list[int]:
        """Return the senders in a round, in the order of the ids."""
        return sorted(
            participant for participant, peer in self._peers.items() if key in peer.arrived
        )

    def drop(self, sender: int, key: RoundKey) -> None:
        """Refuse an envelope: it counts as arrived, and is not read again."""
        self._peer(sender).take(key)

    def forget_round(self, key: RoundKey) -> None:
        """Forget the envelopes of a round that is over and recorded."""
        self._over[key[:3]] = key.number + 1
        for peer in self._peers.values():
            if key in peer.seen:
                peer.take(key)
                if self.unhurried:  # thousands of rounds
                    peer.seen.discard(key)

    def refuse(self, sender: int, key: RoundKey) -> None:
        """Forget an envelope that came too early; take it when it comes again."""
        peer = self._peer(sender)
        peer.take(key)
        peer.seen.discard(key)
        peer.acknowledge = [other for other in peer.acknowledge if other != key]

    def outgoing(self) -> list[tuple[int, Data]]:
        """Return the envelopes to devices that they may still need.

        A sender that is restarted in a later phase cannot make them again. The coordinator records
        what it has read.
        """
        return [
            (participant, data)
            for participant, peer in self._peers.items()
            for data in peer.kept.values()
            if participant != COORDINATOR
        ]

    def leave_out(self, participant: int) -> None:
        """Leave a participant out for good: nothing is sent to it any more."""
        self._left.add(participant)
        peer = self._peer(participant)
        peer.waiting.clear()
        peer.kept.clear()
        peer.hello = None

    def settle(self, phase: int) -> None:
        """Forget what arrived in phases before this one: they are on disk."""
        self._durable = phase
        for peer in self._peers.values():
            peer.arrived = {key: data for key, data in peer.arrived.items() if key.phase >= phase}
            peer.seen = {key for key in peer.seen if key.phase >= phase}
            peer.unread = {at: size for at, size in peer.unread.items() if at >= phase}
        self._over = {place: first for place, first in self._over.items() if place[0] >= phase}

    def forget_attempt(self, phase: int, attempt: int) -> None:
        """Give up an attempt at a phase: its envelopes are neither sent nor read."""
        for peer in self._peers.values():
            for table in (peer.waiting, peer.kept):
                for key in [key for key in table if key[:2] == (phase, attempt)]:
                    del table[key]
            for key in [key for key in peer.arrived if key[:2] == (phase, attempt)]:
                peer.take(key)

    def receive(self, sender: int, frame: Frame, now: float) -> bool:
        """Take a frame if it is one of the mailbox's own; return whether it was."""
        peer = self._peer(sender)
        if isinstance(frame, Data):
            if self._is_new(peer, frame.key):
                if not self._has_room(sender, frame):
                    return True
                peer.seen.add(frame.key)
                peer.arrived[frame.key] = frame
            waits = self.unhurried and frame.key.channel in (LOCAL, WITH_COORDINATOR)
            self._acknowledge(peer, frame.key, now + ACKNOWLEDGED_WITHIN if waits else now)
        elif isinstance(frame, Acknowledged):
            if peer.welcome is not None:
                peer.soon = self._soon = 0.0
            if frame.boot == peer.boot:  # another start of it knows nothing of these
                peer.owed.difference_update(frame.keys)
            for key in frame.keys:
                took = self._took(peer, key, now)
                if took is not None:
                    peer.delay += (took - peer.delay) / 8
                if key.phase == FORGOTTEN:
                    peer.kept.pop(key, None)
            if frame.durable > peer.durable:
                peer.durable = frame.durable
                for key in [key for key in peer.kept if key.phase < frame.durable]:
                    del peer.kept[key]
                    peer.waiting.pop(key, None)
                    peer.repeated.pop(key, None)
        elif isinstance(frame, Asked):
            if not self.unhurried:
                self._answer(sender, frame, now)
        elif isinstance(frame, Wanted):
            for key, copies in zip(frame.keys, frame.copies, strict=False):
                item = peer.waiting.get(key)
                if item is not None and item.is_asked and item.copies == copies:
                    item.is_wanted, item.due = True, now
                    peer.soon = self._soon = 0.0
        elif isinstance(frame, Hello):
            peer.welcome, peer.soon, self._soon = frame, 0.0, 0.0
        elif isinstance(frame, Welcome):
            if frame.boot == self._boot:
                peer.hello = None
        else:
            return False
        return True

    @staticmethod
    def _took(peer: _Peer, key: RoundKey, now: float) -> float | None:
        """Return the seconds until an envelope was acknowledged; None where that is not known."""
        item = peer.waiting.pop(key, None)
        if item is None:
            return peer.repeated.pop(key, None)
        if item.copies != 1:  # nobody knows which of them is acknowledged
            peer.repeated[key] = now - item.first
            return None
        return now - item.first

    def _answer(self, sender: int, question: Asked, now: float) -> None:
        """Acknowledge what has arrived, and ask for what has not.

        The answer depends on what this sender has sent, and not on the progress of rounds: so it
        tells the coordinator nothing of others.
        """
        peer, wanted = self._peer(sender), Wanted([], [])
        asked = zip(question.keys, question.copies, strict=False)
        for key, copies in islice(asked, MAX_ASKED):
            if key.phase < self._durable or key in peer.seen:
                self._acknowledge(peer, key, now)
            else:
                wanted.keys.append(key)
                wanted.copies.append(copies)
        if wanted.keys:
            self.tell(sender, wanted)

    def _acknowledge(self, peer: _Peer, key: RoundKey, at: float) -> None:
        """Acknowledge an envelope, at this time or before."""
        peer.acknowledge_at = min(peer.acknowledge_at, at) if peer.acknowledge else at
        peer.acknowledge.append(key)
        peer.soon, self._soon = min(peer.soon, at), min(self._soon, at)

    def _is_new(self, peer: _Peer, key: RoundKey) -> bool:
        """Return whether an envelope may still be read, and has not arrived before."""
        over = key.number < self._over.get(key[:3], 0)
        return key.phase >= self._durable and not over and key not in peer.seen

    def _has_room(self, sender: int, data: Data) -> bool:
        """Count an envelope that is not read yet; return whether it is kept."""
        peer, phase = self._peer(sender), data.key.phase
        size = peer.unread.get(phase, 0) + _size(data)
        near = phase <= self._durable + MAX_AHEAD or phase == FORGOTTEN
        if near and size <= self._unread:
            peer.unread[phase] = size
            return True
        if self._log is not None and not peer.flooded:
            why = "more than is read in one phase" if near else "messages of a phase far ahead"
            self._log(f"{described(sender)} sends {why}; dropped")
        peer.flooded = True
        return False

    def due(
        self, now: float, hold: Collection[int] = (), rest: Collection[int] = ()
    ) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver.

        Args:
            hold: receivers to which nothing is sent.
            rest: receivers to which nothing is sent unless there is a frame for them (`tell`).
        """
        packets: list[tuple[int, list[Frame]]] = []
        devices_only = hold == _COORDINATOR_ONLY and not rest
        if devices_only and now < self._soon:
            return packets
        for participant, peer in self._peers.items():
            if now < peer.soon or participant in hold:
                continue
            if participant in rest and not peer.frames:
                continue
            told, frames = peer.frames, list[Frame]()
            peer.frames = []
            if peer.welcome is not None and self._has_all(peer, peer.welcome, now):
                frames.append(Welcome(peer.welcome.boot))
                peer.welcome = None
            question = Asked([], [])
            for item in (*peer.waiting.values(), peer.hello):
                if item is not None and item.due <= now:
                    frame = item.frame
                    if isinstance(frame, Data) and self._asks(item, frame):
                        question.keys.append(frame.key)
                        question.copies.append(item.copies)
                        item.is_asked = True
                    else:
                        frames.append(item.send(now))
                    least = UNHURRIED_WAIT if self.unhurried else MIN_WAIT
                    item.due_again(max(PATIENCE * peer.delay, least), now)
            if question.keys:
                frames.append(question)
            if peer.acknowledge and (told or frames or peer.acknowledge_at <= now):
                told.append(Acknowledged(peer.acknowledge, self._durable, self._boot))
                peer.acknowledge = []
            if told or frames:
                packets.append((participant, told + frames))
            peer.soon = self._next_due_to(peer)
        soon = [peer.soon for other, peer in self._peers.items() if other not in hold]
        self._soon = min(soon, default=float("inf")) if devices_only else 0.0
        return packets

    def _asks(self, item: _Unacknowledged, data: Data) -> bool:
        """Return whether to ask about an envelope that is due, in place of sending it."""
        return (
            item.copies > 0 and not item.is_wanted and not self.unhurried and _size(data) >= LARGE
        )

    def next_due(self, hold: Collection[int] = ()) -> float:
        """Return the time at which something is sent again; infinite while nothing waits.

        Args:
            hold: receivers that do not count.
        """
        return self._soon if hold == _COORDINATOR_ONLY and self._soon else self._next_due(hold)

    def _next_due(self, hold: Collection[int]) -> float:
        return min(
            (
                self._next_due_to(peer)
                for participant, peer in self._peers.items()
                if participant not in hold
            ),
            default=float("inf"),
        )

    def next_due_to(self, participant: int) -> float:
        """Return the time at which something is sent to a participant; 0 for a new frame."""
        peer = self._peer(participant)
        if peer.frames or peer.welcome is not None:
            return 0.0
        return self._next_due_to(peer)

    @staticmethod
    def _next_due_to(peer: _Peer) -> float:
        found = peer.acknowledge_at if peer.acknowledge else float("inf")
        if peer.hello is not None:
            found = min(found, peer.hello.due)
        for item in peer.waiting.values():
            found = min(found, item.due)
        return found

    def _has_all(self, peer: _Peer, hello: Hello, now: float) -> bool:
        """Send a participant that has started what it may have lost; return whether it has all.

        Not before something is due: this participant may have started itself, and post it again
        first.
        """
        if hello.boot != peer.boot:
            peer.boot = hello.boot
            peer.owed = {key for key in peer.kept if key.phase >= hello.durable}
            for key in peer.owed:
                peer.waiting[key] = _Unacknowledged(peer.kept[key], now)
        peer.owed &= peer.kept.keys()
        for key in peer.owed - peer.waiting.keys():  # its earlier start acknowledged it, late
            peer.waiting[key] = _Unacknowledged(peer.kept[key], now)
        return not peer.owed

    def _peer(self, participant: int) -> _Peer:
        found = self._peers.get(participant)
        if found is None:
            found = self._peers[participant] = _Peer()
        return found


def _size(data: Data) -> int:
    """Return the bytes that an envelope takes, or somewhat more."""
    return ENVELOPE + len(data.body) + 4 * len(data.topic) + LENGTH * len(data.lengths or ())
