"""Sessions of two ends over bytes: the public list of messages, the check, turns and numbers.

The list of messages, who sends how many bytes, is fixed before the first is sent. `Party` is one
end of a session; `LookupSender` and `LookupReceiver` are the two ends of one that looks up tables.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519, Group
from lumos.errors import (
    BadValue,
    CheckFailed,
    OutOfOrder,
    SessionClosed,
    UsageError,
    WrongLength,
)
from lumos.twoparty.lookup import ReceiverKeys, SenderKeys, session_id

NONCE = 16
"""Bytes of each end's nonce."""
CHECK = 1
"""Bytes of the check behind a message that carries one."""


class Message(NamedTuple):
    """One message of the public list."""

    to_sender: bool
    length: int


# The check that both parties have seen the same bytes, and the code of an answer.
#
# The check is CRC-8 with polynomial x^8 + x^2 + x + 1 over all public bytes of a session in order.
# An answer is a code word XOR the check. Up to four values: words at a Hamming distance of at least
# 5, so that up to four flipped bits never turn one answer into another. Up to eight values:
# distance 4 (no code of 8 bits has more), three flipped bits.

FOUR_WORDS = (0x00, 0x1F, 0xE3, 0xFC)
EIGHT_WORDS = (0x00, 0x0F, 0x33, 0x3C, 0x55, 0x5A, 0x66, 0x69)


def words_for(values: int) -> tuple[int, ...]:
    """One code word for each of so many values, at most eight."""
    return (FOUR_WORDS if values <= len(FOUR_WORDS) else EIGHT_WORDS)[:values]


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state << 1 ^ (0x107 if state & 0x80 else 0)
        table.append(state)
    return tuple(table)


_TABLE = _table()


def crc8(state: int, data: bytes) -> int:
    """The check after more bytes."""
    table = _TABLE
    for byte in data:
        state = table[state ^ byte]
    return state


def encode_answer(value: int, check: int, words: Sequence[int] = FOUR_WORDS) -> bytes:
    """The byte of an answer: the value's code word XOR the check."""
    return bytes([words[value] ^ check])


def decode_answer(byte: int, check: int, words: Sequence[int]) -> int:
    """The value that the byte encodes; raises `BadValue` for anything but one of `words`."""
    word = byte ^ check
    if word not in words:
        raise BadValue("an answer is not a word of its code")
    return words.index(word)


# One end of a session, sender or receiver.


_CLOSED = "the session is closed; open a new one"


class BatchTask(Protocol):
    """One comparison or score of a batch, as one party sees it."""

    @property
    def digits(self) -> int:
        """Points that R sends: as many indices are used up."""
        ...

    def is_checked(self, position: int) -> bool:
        """Return whether its part of this message asks for a check behind the message."""
        ...

    def result(self) -> int | None:
        """Return what this end learned, or None if it has learned nothing yet."""
        ...


class CodedSpec(Protocol):
    """A spec: public, and named by a code in every pad and in the check."""

    @property
    def code(self) -> bytes:
        """Bytes that no other spec of the protocol has."""
        ...


AnySpec = TypeVar("AnySpec", bound=CodedSpec, contravariant=True)
SpecT = TypeVar("SpecT", bound=CodedSpec)
ValueT = TypeVar("ValueT")
TaskT = TypeVar("TaskT", bound=BatchTask)


class ListMessages(Protocol[AnySpec]):
    """The public list of messages of a batch.

    ``first`` if it opens the session; ``point``: bytes of a point of its group.
    """

    def __call__(self, specs: Sequence[AnySpec], *, first: bool, point: int) -> tuple[Message, ...]:
        """List the messages: sender and bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Rules(Generic[SpecT, ValueT, TaskT]):
    """A protocol on sessions.

    Args:
        version: its name, the first bytes of every check.
        messages: the public list of a batch's messages.
        task: `(spec, own value, idx)`: one item of a batch; raises `BadValue`.
    """

    version: bytes
    messages: ListMessages[SpecT]
    task: Callable[[SpecT, ValueT, int], TaskT]


class Party(InMemoryOnly, Generic[SpecT, ValueT, TaskT]):
    """One end of a session with one peer, as a stepper over bytes."""

    _is_sender: bool
    _rules: Rules[SpecT, ValueT, TaskT]

    def __init__(self, me: int, peer: int, point: int) -> None:
        limit = 1 << 63
        if not (-limit <= me < limit and -limit <= peer < limit):
            raise UsageError("ids of devices are integers of 64 bits")
        self._me = me
        self._peer = peer
        self._point = point
        self._sender_id, self._receiver_id = (me, peer) if self._is_sender else (peer, me)
        self._process = os.getpid()
        self._open = True
        self._tasks: list[TaskT] = []
        self._results: list[int | None] = []
        self._script: tuple[Message, ...] = ()
        self._opening = 1
        self._turn = 0
        self._number = 0
        self._idx = 0
        # Parties that disagree about who they are find out at the first check.
        roles = f"{self._sender_id} {self._receiver_id}".encode()
        self._check = crc8(0, self._rules.version + roles)

    def begin(self, items: Sequence[tuple[SpecT, ValueT]]) -> None:
        """Start a batch of (spec, own value), in an order that both parties know."""
        self._guard()
        try:
            self._begin(items)
        except BaseException:
            self.close()
            raise

    def step(self, incoming: bytes | None = None) -> bytes | None:
        """Take the message that is due and return the next one, if it is ours to send.

        The transport delivers each message once and in order.
        """
        self._guard()
        try:
            if incoming is None:
                return self._send_first()
            if not isinstance(incoming, bytes):
                raise BadValue("a message is bytes")
            return self._reply(incoming)
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """True once the session answers nothing any more: after an error, or `close`."""
        return not self._open

    @property
    def finished(self) -> bool:
        """True once the batch has ended here: nothing more to send or to receive."""
        return self._open and self._turn == len(self._script)

    @property
    def results(self) -> list[int | None]:
        """What this party learned, for each item of the batch."""
        self._guard()
        if not self.finished:
            raise OutOfOrder("the batch has not ended")
        return list(self._results)

    @property
    def number(self) -> int:
        """The number of the session's next message, counted over both directions."""
        return self._number

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        self._open = False
        self._tasks = []
        self._results = []

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"{type(self).__name__}(me={self._me}, peer={self._peer}, {state})"

    def _guard(self) -> None:
        if self._open and os.getpid() != self._process:
            # Two copies of a session would answer the same index twice.
            self.close()
        if not self._open:
            raise SessionClosed(_CLOSED)

    def _begin(self, items: Sequence[tuple[SpecT, ValueT]]) -> None:
        if self._turn < len(self._script):
            raise OutOfOrder("the batch before this one has not ended")
        if not items:
            raise UsageError("a batch has at least one item")
        self._tasks = []
        encoded = b""
        for spec, value in items:
            task = self._rules.task(spec, value, self._idx)
            self._idx += task.digits
            self._tasks.append(task)
            encoded += spec.code
        self._check = crc8(self._check, encoded)
        first = self._number == 0
        specs = [spec for spec, _ in items]
        self._script = self._rules.messages(specs, first=first, point=self._point)
        self._opening = int(first)
        self._turn = 0

    def _mine(self) -> bool:
        return self._script[self._turn].to_sender is not self._is_sender

    def _send_first(self) -> bytes:
        if not self._script or self._turn or not self._mine():
            raise OutOfOrder("a message of the peer is due")
        return self._send()

    def _reply(self, incoming: bytes) -> bytes | None:
        if self.finished or self._mine():
            raise OutOfOrder("a message came when none was due")
        expected = self._script[self._turn].length
        if len(incoming) != expected:
            raise WrongLength(f"a message has {len(incoming)} bytes instead of {expected}")
        self._receive(incoming)
        return None if self._advance() else self._send()

    def _advance(self) -> bool:
        self._turn += 1
        self._number += 1
        if self._turn < len(self._script):
            return False
        # What is left of the batch is its results.
        self._results = [task.result() for task in self._tasks]
        self._tasks = []
        return True

    def _position(self) -> int:
        return self._turn - self._opening

    def _checked(self, position: int) -> bool:
        return position > 0 and any(task.is_checked(position) for task in self._tasks)

    def _send(self) -> bytes:
        position = self._position()
        message = self._compose(position)
        self._check = crc8(self._check, message)
        if self._checked(position):
            message += bytes([self._check])
        self._advance()
        return message

    def _receive(self, message: bytes) -> None:
        position = self._position()
        before = self._check
        if self._checked(position):
            *_, check = message
            message = message[:-1]
            self._check = crc8(before, message)
            if check != self._check:
                raise CheckFailed("the two parties have not seen the same messages")
        else:
            self._check = crc8(before, message)
        self._take(position, message, before)

    def _compose(self, position: int) -> bytes:
        """Our message at this position; the opening is at -1."""
        raise NotImplementedError

    def _take(self, position: int, message: bytes, check: int) -> None:
        """Take the peer's message, without its check. `check`: that before the message."""
        raise NotImplementedError

    def _compose_tasks(self, position: int) -> bytes:
        """Our message at this position, without what opens the session."""
        raise NotImplementedError

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        """Take the peer's message, without what opens the session."""
        raise NotImplementedError


# The two ends of a session of table look-ups: keys, nonces, and the messages that open it.
#
# S opens the session with nonce ‖ A; R's nonce stands in front of its first message. What follows
# is the protocol's own: `_compose_tasks` and `_take_tasks`.


class LookupSender(Party[SpecT, ValueT, TaskT]):
    """S: it has the tables and answers every digit of R."""

    _is_sender = True

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, group.point_bytes)
        self._nonce = entropy.draw(NONCE)
        self._keys: SenderKeys | None = SenderKeys(group)
        self._points = b""
        """The points that R sent last."""

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys, self._points = None, b""

    def _live(self) -> SenderKeys:
        return _open_keys(self._keys)

    def _compose(self, position: int) -> bytes:
        if position < 0:
            return self._nonce + self._live().A
        return self._compose_tasks(position)

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position == 0 and self._opening:
            keys, nonce = self._live(), message[:NONCE]
            opening = self._nonce + keys.A
            keys.bind(session_id(self._sender_id, self._receiver_id, opening, nonce))
            message = message[NONCE:]
        self._take_tasks(position, message, check)


class LookupReceiver(Party[SpecT, ValueT, TaskT]):
    """R: it asks for one entry per table and reads no other."""

    _is_sender = False

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, group.point_bytes)
        self._group = group
        self._nonce = entropy.draw(NONCE)
        self._keys: ReceiverKeys | None = None

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys = None

    def _live(self) -> ReceiverKeys:
        return _open_keys(self._keys)

    def _compose(self, position: int) -> bytes:
        message = self._compose_tasks(position)
        return self._nonce + message if position == 0 and self._opening else message

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position < 0:
            sid = session_id(self._sender_id, self._receiver_id, message, self._nonce)
            self._keys = ReceiverKeys(message[NONCE:], sid, self._group)
        else:
            self._take_tasks(position, message, check)


_Keys = TypeVar("_Keys")


def _open_keys(keys: _Keys | None) -> _Keys:
    if keys is None:
        raise SessionClosed(_CLOSED)
    return keys
