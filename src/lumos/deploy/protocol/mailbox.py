"""Envelopes that arrive, over a network that loses, doubles and reorders packets.

An envelope is repeated, byte by byte the same, until its receiver acknowledges it. The first one
that arrives counts; any other with the same key from the same sender is dropped. After it is
acknowledged it is kept until the receiver says that it will not need it again, even if it is killed
and goes on from its last snapshot (`durable`): whoever starts again says hello, gets the envelopes
that it has lost, and is welcome once it has acknowledged them in its present start. What others may
still need is part of a sender's own snapshot. The phase `FORGOTTEN` does not survive a restart:
what is acknowledged in it is not kept.

No clock is read here and nothing is sent: `receive` takes what has arrived, `due` returns what is
to be sent now. So whole federations are tested in one process, with virtual time.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from lumos.deploy.identity import described
from lumos.deploy.protocol.frames import (
    Acknowledged,
    Data,
    Frame,
    Hello,
    RoundKey,
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
MIN_UNREAD = 4 << 20
"""Bytes of one sender in one phase that wait to be read, unless `Mailbox` gets a larger number."""
ENVELOPE, LENGTH = 256, 40
"""Bytes that count for an envelope beside its body and topic, and for each of its lengths."""
MAX_AHEAD = 2
"""Phases by which a sender may be ahead of what is on disk."""
FORGOTTEN = 1 << 30
"""The phase that a participant has forgotten when it starts again."""


@dataclass(slots=True)
class _Unacknowledged:
    frame: Data | Hello
    due: float
    wait: float = FIRST_WAIT
    """Seconds until it is sent once more."""
    times: int = 0
    """Number of times it was sent."""
    sent: float = 0.0
    """Time at which it was last sent."""


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
    welcome: Hello | None = None
    """Its hello, until it is answered."""
    frames: list[Frame] = field(default_factory=list)
    """Other frames to it, sent once."""
    delay: float = FIRST_WAIT / PATIENCE
    """Seconds that its acknowledgements take, in the mean over the last ones."""

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

    def greet(self, peers: Iterable[int], now: float) -> None:
        """Send a hello to these until they answer."""
        for participant in peers:
            peer = self._peer(participant)
            if participant not in self._left and not peer.greeted:
                peer.greeted = True
                peer.hello = _Unacknowledged(Hello(self._boot, self._durable), now)

    def post(self, receiver: int, data: Data, now: float) -> None:
        """Send an envelope, until it is acknowledged. What was posted before is not changed."""
        peer = self._peer(receiver)
        if receiver in self._left or data.key in peer.kept:
            return
        self.greet([receiver], now)
        peer.kept[data.key] = data
        peer.waiting[data.key] = _Unacknowledged(data, now)

    def tell(self, receiver: int, frame: Frame) -> None:
        """Send a frame once, with the next packet."""
        self._peer(receiver).frames.append(frame)

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
        """Forget the envelopes of a round that is over and on disk."""
        for peer in self._peers.values():
            peer.take(key)

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
            if frame.key.phase >= self._durable and frame.key not in peer.seen:
                if not self._has_room(sender, frame):
                    return True
                peer.seen.add(frame.key)
                peer.arrived[frame.key] = frame
            peer.acknowledge.append(frame.key)
        elif isinstance(frame, Acknowledged):
            if frame.boot == peer.boot:  # another start of it knows nothing of these
                peer.owed.difference_update(frame.keys)
            for key in frame.keys:
                item = peer.waiting.pop(key, None)
                if key.phase == FORGOTTEN:
                    peer.kept.pop(key, None)
                # Of one that was repeated nobody knows which is acknowledged.
                if item is not None and item.times == 1:
                    peer.delay += (now - item.sent - peer.delay) / 8
            for key in [key for key in peer.kept if key.phase < frame.durable]:
                del peer.kept[key]
                peer.waiting.pop(key, None)
        elif isinstance(frame, Hello):
            peer.welcome = frame
        elif isinstance(frame, Welcome):
            if frame.boot == self._boot:
                peer.hello = None
        else:
            return False
        return True

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

    def due(self, now: float, hold: Collection[int] = ()) -> list[tuple[int, list[Frame]]]:
        """Return the frames to send now, by receiver; none to those in `hold`."""
        packets = []
        for participant, peer in self._peers.items():
            if participant in hold:
                continue
            frames = peer.frames
            peer.frames = []
            if peer.acknowledge:
                frames.append(Acknowledged(peer.acknowledge, self._durable, self._boot))
                peer.acknowledge = []
            if peer.welcome is not None and self._has_all(peer, peer.welcome, now):
                frames.append(Welcome(peer.welcome.boot))
                peer.welcome = None
            waiting: list[_Unacknowledged] = list(peer.waiting.values())
            if peer.hello is not None:
                waiting.append(peer.hello)
            for item in waiting:
                if item.due <= now:
                    frames.append(item.frame)
                    _sent(item, peer.delay, now)
            if frames:
                packets.append((participant, frames))
        return packets

    def next_due(self, hold: Collection[int] = ()) -> float:
        """Return the time at which something is sent again; infinite while nothing waits.

        Args:
            hold: receivers that do not count.
        """
        soonest = float("inf")
        for participant, peer in self._peers.items():
            if participant in hold:
                continue
            for item in peer.waiting.values():
                soonest = min(soonest, item.due)
            if peer.hello is not None:
                soonest = min(soonest, peer.hello.due)
        return soonest

    def next_due_to(self, participant: int) -> float:
        """Return the time at which something is sent to a participant; 0 for a new frame."""
        peer = self._peer(participant)
        if peer.frames or peer.acknowledge or peer.welcome is not None:
            return 0.0
        waiting = [*peer.waiting.values(), *([peer.hello] if peer.hello else [])]
        return min((item.due for item in waiting), default=float("inf"))

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


def _sent(item: _Unacknowledged, delay: float, now: float) -> None:
    """Note that an envelope is sent, and when it is due again."""
    if not item.times:
        item.wait = min(max(PATIENCE * delay, MIN_WAIT), MAX_WAIT)
    elif item.times >= STEADY:
        item.wait = min(2 * item.wait, MAX_WAIT)
    item.times += 1
    item.sent, item.due = now, now + item.wait
