"""The endpoint: the only way from a shard to a transport. It checks and counts every message.

It trusts nobody: neither the program behind it nor the transport in front of it. Doors, ε and
releases that must be the same for all receivers are checked on the way out; ids, the form of
bodies and counts both ways. Everything is read from the arrays that travel, nothing from what their
sender claims about them. No message of an error carries a body.

First come programs and the endpoint, then the loops that advance a program, then the checks.
"""

from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from lumos.device.shard import COORDINATOR, Shard, within
from lumos.errors import DoorClosed, NotHosted, ProtocolError
from lumos.exchange.counts import nondecreasing
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import PUBLIC_ID, TOPICS, Batch, Door, Inbox, Outbox, Topic
from lumos.typing import Bytes, Ints

Result = TypeVar("Result")

Program = Generator[Outbox, Inbox, Result]
"""A program: it yields what its devices send in a round and is resumed with what they receive.

It cannot tell which transport moves its messages, and no transport looks inside it.
"""

EVERY_DOOR = frozenset(Door)


def idle_program() -> Program[None]:
    """The program of a coordinator that neither sends nor receives anything."""
    yield from ()


class Connection(Protocol):
    """The connection to a transport of a participant that lives in a process of its own."""

    def swap(self, outbox: Outbox) -> Inbox:
        """Send this participant's messages, wait for the end of the round, return what arrived."""
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
            return outbox.carrying(topic.no_messages)
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
        return outbox.carrying(batch)

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
        """Rows of the hosted participants with these ids; raises for anybody else."""
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


class RunningProgram(Generic[Result]):
    """A running program, its endpoint, and the outbox it waits with."""

    def __init__(self, program: Program[Result], endpoint: Endpoint) -> None:
        self._program = program
        self._endpoint = endpoint
        self.finished = False
        self.result: Result
        self.outbox: Outbox
        self._advance(None)

    def take(self) -> Outbox:
        """The outbox, to be carried; it is not kept here while the answer is worked on."""
        outbox, self.outbox = self.outbox, self.outbox.topic.nothing()
        return outbox

    def resume(self, inbox: Inbox) -> None:
        """Deliver an inbox and run until the next outbox."""
        self._advance(self._endpoint.check_incoming(self.outbox.topic, inbox))

    def _advance(self, inbox: Inbox | None) -> None:
        step = advance(self._program, inbox)
        if isinstance(step, Finished):
            self.finished = True
            self.result = step.result
        else:
            self.outbox = self._endpoint.check_outgoing(step)


@dataclass(frozen=True)
class Finished(Generic[Result]):
    """The end of a program."""

    result: Result


def advance(program: Program[Result], inbox: Inbox | None) -> Outbox | Finished[Result]:
    """Resume a program until its next outbox or its end; `inbox` is None at its start."""
    try:
        return next(program) if inbox is None else program.send(inbox)
    except StopIteration as stop:
        return Finished(stop.value)


def run_alone(program: Program[Result], answer: Callable[[Outbox], Inbox]) -> Result:
    """Run a program to its end; every round is answered at once."""
    step = advance(program, None)
    while not isinstance(step, Finished):
        step = advance(program, answer(step))
    return step.result


def played(
    program: Program[Result],
    play: Callable[[Outbox], Program[Inbox]],
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Program[Result]:
    """Return a program whose rounds another one plays.

    Args:
        play: from an outbox to a program of any rounds that returns the inbox.
        within: makes the context in which the program runs from one round to the next.
    """
    with within():
        step = advance(program, None)
    while not isinstance(step, Finished):
        inbox = yield from play(step)
        with within():
            step = advance(program, inbox)
    return step.result


def unchanged(outbox: Outbox) -> Program[Inbox]:
    """Play a round as it is."""
    return (yield outbox)


def changed(program: Program[Result], change: Callable[[Outbox], Outbox]) -> Program[Result]:
    """Return the same program with other outboxes."""
    return played(program, lambda outbox: unchanged(change(outbox)))


# The form of messages: types, shapes, words, ε, and no padding.

_INT64 = np.dtype(np.int64)
_FLOAT64 = np.dtype(np.float64)
_HANDFUL = 8
_ROWS = 1 << 18  # messages compared at a time


def check_form(topic: Topic, batch: Batch, *, arriving: bool = False) -> None:
    """Check that a batch with at least one message has the form that its topic declares.

    Args:
        arriving: on the way in, ε may be missing: it is the sender's account, and need not travel.
    """
    if TOPICS.get(topic.name) is not topic:
        raise ProtocolError(f"topic {topic.name!r} is not the declared topic of that name")
    sender, receiver, body, lengths = batch.sender, batch.receiver, batch.body, batch.lengths
    one_each = (batch.messages,)
    if not (
        type(sender) is type(receiver) is np.ndarray
        and sender.dtype == receiver.dtype == _INT64
        and sender.shape == receiver.shape == one_each
    ):
        raise ProtocolError(f"topic {topic.name!r}: sender and receiver are one int64 id a message")
    if type(body) is not np.ndarray:
        raise ProtocolError(f"topic {topic.name!r}: a message body is not a plain array")
    # A message of any length is a row of bytes, however wide.
    shape = topic.shape if topic.shape is not None else (body.shape[-1],)
    if body.dtype != topic.element or body.shape != one_each + shape:
        raise ProtocolError(
            f"topic {topic.name!r}: a message body is {body.dtype}{list(body.shape[1:])}, "
            f"not {topic.element}{list(topic.shape) if topic.shape is not None else '[any]'}"
        )
    words = topic.vocabulary
    if words and words is not PUBLIC_ID and _largest(body) >= len(words):
        raise ProtocolError(f"topic {topic.name!r}: a word outside its vocabulary")
    if topic.shape is None or lengths is not None:
        _check_lengths(topic, batch)
    if batch.epsilon is not None or (topic.door is Door.RELEASE and not arriving):
        _check_epsilon(topic, batch)


def _largest(words: Bytes) -> int:
    if words.size <= _HANDFUL:  # three times as fast as a call of numpy
        return max(words.ravel().tolist(), default=0)
    return int(np.maximum.reduce(words, axis=None))


def _check_lengths(topic: Topic, batch: Batch) -> None:
    lengths = batch.lengths
    if topic.shape is not None or lengths is None:
        raise ProtocolError(
            f"topic {topic.name!r}: messages of any length state their `lengths`, others do not"
        )
    if (
        type(lengths) is not np.ndarray
        or lengths.dtype != _INT64
        or lengths.shape != (batch.messages,)
        or lengths.min() < 0
        or lengths.max() > batch.body.shape[1]
    ):
        raise ProtocolError(f"topic {topic.name!r}: `lengths` are not those of its messages")


def _check_epsilon(topic: Topic, batch: Batch) -> None:
    epsilon = batch.epsilon
    if (topic.door is Door.RELEASE) != (epsilon is not None):
        raise ProtocolError(f"topic {topic.name!r}: a release, and only a release, states its ε")
    if epsilon is None:
        return
    if (
        type(epsilon) is not np.ndarray
        or epsilon.dtype != _FLOAT64
        or epsilon.shape != (batch.messages,)
    ):
        raise ProtocolError(f"topic {topic.name!r}: `epsilon` is not one float64 per message")
    if not epsilon.min() >= 0:  # nor is NaN
        raise ProtocolError(f"topic {topic.name!r}: ε must be at least 0 for every message")


def check_no_padding(topic: Topic, batch: Batch) -> None:
    """Check that nothing travelled beside the messages."""
    if batch.packed() is not batch:
        raise ProtocolError(f"topic {topic.name!r}: bytes arrived that belong to no message")


def check_common(topic: Topic, rows: Ints, batch: Batch) -> None:
    """Check that each sender sends the same to all its receivers of the round, at the same ε.

    Args:
        rows: [messages] positions of the senders.
    """
    if not nondecreasing(rows):
        order = np.argsort(rows, kind="stable")
        rows, batch = rows[order], batch.take(order)
    # Equal neighbours all along the messages of a sender make all of them equal.
    of_one = rows[1:] == rows[:-1]
    for values in (batch.body, batch.lengths, batch.epsilon):
        if values is None or not values.size or values.strides[0] == 0:
            continue  # one value for all messages
        for start in range(0, len(of_one), _ROWS):
            contents = _as_bits(values[start : start + _ROWS + 1])
            differs = contents[1:] != contents[:-1]
            differs = differs if differs.ndim == 1 else differs.any(axis=1)
            if np.count_nonzero(differs & of_one[start : start + _ROWS]):
                raise ProtocolError(
                    f"topic {topic.name!r}: a release that is common to its receivers differs "
                    "between them"
                )


def _as_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[messages] or [messages, bytes]: as numbers, 0.0 and -0.0 would be equal, and no NaN."""
    if values.ndim == 1:
        return np.ascontiguousarray(values).view(f"u{values.itemsize}")
    return np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
