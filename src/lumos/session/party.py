"""A party of a session, sender or receiver: turns, message numbers, check, closing on any error."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lumos.crypto.in_memory import InMemoryOnly
from lumos.errors import UsageError, WrongLength
from lumos.session.errors import BadValue, CheckFailed, OutOfOrder, Replay, SessionClosed
from lumos.session.message_list import Message
from lumos.session.transcript_check import crc8


class BatchTask(Protocol):
    """One comparison or score of a batch, as one party sees it."""

    @property
    def digits(self) -> int:
        """Points that R sends: as many indices are used up."""
        ...

    def is_checked(self, position: int) -> bool:
        """Whether its part of this message asks for a check behind the message."""
        ...

    def result(self) -> int | None:
        """What this party learned, or None if it may not learn."""
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
        """Who sends how many bytes."""
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

    def __init__(self, me: int, peer: int, rules: Rules[SpecT, ValueT, TaskT], point: int) -> None:
        limit = 1 << 63
        if not (-limit <= me < limit and -limit <= peer < limit):
            raise UsageError("ids of devices are integers of 64 bits")
        self._me = me
        self._peer = peer
        self._rules = rules
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
        self._answered: dict[int, tuple[bytes, bytes | None]] = {}
        # Parties that disagree about who they are find out at the first check.
        self._check = crc8(0, rules.version + f"{self._sender_id} {self._receiver_id}".encode())

    def begin(self, items: Sequence[tuple[SpecT, ValueT]]) -> None:
        """Start a batch of (spec, own value), in an order that both parties know."""
        self._guard()
        try:
            self._begin(items)
        except BaseException:
            self.close()
            raise

    def step(self, incoming: bytes | None = None, *, number: int | None = None) -> bytes | None:
        """Take the message that is due and return the next one, if it is ours to send.

        ``number`` is the incoming message's place in the session, counted from 0 over both
        directions. A carrier that may deliver twice or out of order passes it; one that
        delivers each message once and in order need not.
        """
        self._guard()
        try:
            if incoming is None:
                return self._send_first()
            if not isinstance(incoming, bytes):
                raise BadValue("a message is bytes")
            if number is not None and number < self._number:
                return self._again(incoming, number)
            if number is not None and number > self._number:
                raise OutOfOrder("a message came before the one that is due")
            return self._reply(incoming)
        except BaseException:
            self.close()
            raise

    @property
    def finished(self) -> bool:
        """Whether the batch has ended here: nothing more to send or to receive."""
        return self._open and self._turn == len(self._script)

    @property
    def results(self) -> list[int | None]:
        """Per item of the batch: what this party learned, or None if it may not learn."""
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
        self._answered = {}

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"{type(self).__name__}(me={self._me}, peer={self._peer}, {state})"

    def _guard(self) -> None:
        if self._open and os.getpid() != self._process:
            # Two copies of a session would answer the same index twice.
            self.close()
        if not self._open:
            raise SessionClosed("the session is closed; open a new one")

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
        self._answered = {}

    def _mine(self) -> bool:
        return self._script[self._turn].to_sender is not self._is_sender

    def _send_first(self) -> bytes:
        if not self._script or self._turn or not self._mine():
            raise OutOfOrder("a message of the peer is due")
        return self._send()

    def _again(self, incoming: bytes, number: int) -> bytes | None:
        if number not in self._answered:
            raise Replay("a message of an earlier batch came again")
        known, answer = self._answered[number]
        if incoming != known:
            raise Replay("what was answered is asked again with another message")
        return answer

    def _reply(self, incoming: bytes) -> bytes | None:
        if self.finished or self._mine():
            raise OutOfOrder("a message came when none was due")
        expected = self._script[self._turn].length
        if len(incoming) != expected:
            raise WrongLength(f"a message has {len(incoming)} bytes instead of {expected}")
        number = self._number
        self._receive(incoming)
        answer = None if self._advance() else self._send()
        self._answered[number] = (incoming, answer)
        return answer

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
