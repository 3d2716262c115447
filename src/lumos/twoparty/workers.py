"""Workers: they hold the parties of many sessions and step them.

A party never leaves the process that made it. `InProcess` holds all of them in this process, as a
real device does; `WorkerProcesses` spreads them over the cores. `ComparedPairs` are the pairs of a
shard, and `PartyBatch` moves their parties through one batch, message by message, over the
exchange.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from lumos.crypto.groups import GROUPS, Group
from lumos.device.shard import Shard
from lumos.errors import LumosError, ProtocolError, SessionClosed
from lumos.exchange.counts import Booking
from lumos.exchange.endpoint import Program
from lumos.exchange.ledger import Ledger
from lumos.exchange.messages import Inbox, Local, Outbox, Topic
from lumos.registry import Registry
from lumos.twoparty.session import NONCE, Message, Party
from lumos.typing import Bytes, Flags, Ints

OnSteps = Callable[[int], None]
"""Callback `(steps)`: how many steps were done since the last call."""

_CHUNK = 256  # steps between two calls of `on_steps`


class SessionProtocol(Protocol):
    """A protocol as workers serve it: they open its parties and read their inputs."""

    def open(self, me: int, peer: int, group: Group, *, sender: bool) -> Party[Any, Any, Any]:
        """A party of a new session: its sender, or its receiver."""
        ...

    def items(self, spec: bytes, values: bytes, count: int) -> Iterable[tuple[Any, Any]]:
        """(spec, own value) of each of `count` parties."""
        ...


PROTOCOLS: Registry[SessionProtocol] = Registry(
    "session_protocol",
    {
        "compare": "lumos.twoparty.comparison:PROTOCOL",
        "score": "lumos.twoparty.score:PROTOCOL",
    },
)
"""The protocols that workers serve, imported when they are first asked for."""


class Steps(msgspec.Struct, kw_only=True):
    """One request to many parties: begin a batch, take a step, or give the results.

    Args:
        protocol: name of an entry of `PROTOCOLS`.
        ends: [parties, 2] own id and peer's id, as int64.
        spec: what is computed, as the protocol encodes it.
        values: [parties, …] own inputs, as the protocol encodes them: begin a batch with them.
        senders: [parties] bytes, 1 for the sender of a session that begins now; None: the end with
            the smaller id.
        width: bytes of the longest reply: take a step. Shorter replies, and missing ones, are
            padded with zeros.
        incoming: [parties, …] received messages, padded to one width; None where there are none.
        lengths: [parties] bytes of each received message, as int64; -1 where none came, which
            closes the session.
        group: name of an entry of `GROUPS`, for the sessions that begin now.
        results: return what each party learned, as int64.
        close: with `results`: the sessions end.
    """

    def __repr__(self) -> str:
        return f"Steps(parties={len(self.ends) // 16})"  # values are private

    protocol: str
    ends: bytes
    spec: bytes = b""
    values: bytes | None = None
    senders: bytes | None = None
    width: int = 0
    incoming: bytes | None = None
    lengths: bytes | None = None
    group: str = "ed25519"
    results: bool = False
    close: bool = False


class Workers(Protocol):
    """Holds the parties and steps them."""

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """[parties, width] the replies; [parties, 8] results as int64 where those are asked."""
        ...

    def close(self) -> None:
        """Forget all sessions."""
        ...


NO_RESULT = np.iinfo(np.int64).min
"""In place of what a party learned, if its session is closed: the peer lied, or fell silent."""


class InProcess:
    """All parties in this process.

    A message that a party refuses closes its session and no other, and raises nothing. From then on
    its replies are zeros, as many as are due, so that only the peer can notice.
    """

    def __init__(self) -> None:
        self._parties: dict[tuple[str, int, int], Party[Any, Any, Any]] = {}

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """Serve one party after the other."""
        numbers = np.frombuffer(steps.ends, np.int64).reshape(-1, 2).tolist()
        ends = [(steps.protocol, me, peer) for me, peer in numbers]
        if steps.results:
            return self._results(ends, close=steps.close)
        if steps.values is not None:
            protocol = PROTOCOLS[steps.protocol]
            group = GROUPS[steps.group]
            items = protocol.items(steps.spec, steps.values, len(ends))
            senders = steps.senders or [me < peer for me, peer in numbers]
            for end, sender, item in zip(ends, senders, items, strict=True):
                if end not in self._parties:
                    self._parties[end] = protocol.open(*end[1:], group, sender=bool(sender))
                if not self._parties[end].closed:
                    self._parties[end].begin([item])
            return np.empty((len(ends), 0), np.uint8)
        received, width = steps.incoming or b"", steps.width
        stride = len(received) // len(ends)
        lengths = None if steps.lengths is None else np.frombuffer(steps.lengths, np.int64).tolist()
        replies = bytearray(len(ends) * width)
        for row, end in enumerate(ends):
            start, party = row * stride, self._parties[end]
            if lengths is not None and lengths[row] < 0:
                party.close()
            incoming = None if lengths is None else received[start : start + lengths[row]]
            reply = _reply(party, incoming)
            if reply is not None:
                replies[row * width : row * width + len(reply)] = reply
            if on_steps is not None and row % _CHUNK == _CHUNK - 1:
                on_steps(_CHUNK)
        if on_steps is not None:
            on_steps(len(ends) % _CHUNK)
        return np.frombuffer(replies, np.uint8).reshape(len(ends), width)

    def close(self) -> None:
        """Forget all sessions."""
        for party in self._parties.values():
            party.close()
        self._parties.clear()

    def _results(self, ends: list[tuple[str, int, int]], *, close: bool) -> Bytes:
        parties = [self._parties[end] for end in ends]
        learned = np.array(
            [NO_RESULT if party.closed else party.results[0] for party in parties], np.int64
        )
        if close:
            for end in ends:
                self._parties.pop(end).close()
        return learned.view(np.uint8).reshape(len(ends), 8)


def _reply(party: Party[Any, Any, Any], incoming: bytes | None) -> bytes | None:
    """The party's reply; None where it has none, or has closed its session."""
    if party.closed:
        return None
    try:
        return party.step(incoming)
    except SessionClosed:
        raise  # not by the peer: this process is a fork
    except ProtocolError:
        return None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Worker processes: parties spread over the cores, so that a simulation uses the whole machine.
#
# The two ends of a session are in different processes. A worker is a fresh interpreter, not a fork
# and not a `multiprocessing` process: it inherits no session and does not import the caller's
# script. Requests and replies are bytes (msgspec) on a `multiprocessing` connection, never pickles.
# A worker ends when its connection does, and so with the process that started it.

# -P: nothing is imported from the current folder, least of all a module named `secrets`.
_COMMAND = ("-P", "-c", "from lumos.twoparty.workers import serve; serve()")
_ENDED = "a worker process ended; start the run again"


class _Reply(msgspec.Struct):
    """A worker's message: progress, then the replies of its parties, or an error."""

    steps: int = 0
    """Steps done since the last message."""
    replies: bytes | None = None
    error: str = ""


class _Worker:
    """One worker process and our end of its connection."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        self.process = subprocess.Popen(
            [sys.executable, *_COMMAND],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            process_group=0,  # the keyboard's interrupt is the parent's, from the first moment on
        )
        theirs.close()

    def send(self, steps: Steps) -> None:
        try:
            self.connection.send_bytes(msgspec.msgpack.encode(steps))
        except OSError:
            raise ProtocolError(_ENDED) from None

    def receive(self) -> _Reply:
        try:
            return msgspec.msgpack.decode(self.connection.recv_bytes(), type=_Reply)
        except (EOFError, OSError):
            raise ProtocolError(_ENDED) from None

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


class WorkerProcesses:
    """Parties spread over `count` worker processes."""

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """Send each worker the requests to its parties, and gather the replies."""
        if not self._workers:
            raise ProtocolError("the worker processes have ended")
        try:
            return self._run(steps, on_steps)
        except BaseException:
            # Replies that were not read would be taken for those to the next request.
            self.close()
            raise

    def _run(self, steps: Steps, on_steps: OnSteps | None) -> Bytes:
        ends = np.frombuffer(steps.ends, np.int64).reshape(-1, 2)
        home = _homes(ends, len(self._workers))
        width = 8 if steps.results else steps.width
        replies = np.empty((len(ends), width), np.uint8)
        busy: dict[object, tuple[_Worker, Ints]] = {}
        for number, worker in enumerate(self._workers):
            rows = np.flatnonzero(home == number)
            if len(rows):
                worker.send(_part(steps, rows))
                busy[worker.connection] = worker, rows
        while busy:
            for ready in wait([worker.connection for worker, _ in busy.values()]):
                worker, rows = busy[ready]
                reply = worker.receive()
                if reply.error:
                    raise ProtocolError(reply.error)
                if on_steps is not None:
                    on_steps(reply.steps)
                if reply.replies is not None:
                    part = np.frombuffer(reply.replies, np.uint8)
                    replies[rows] = part.reshape(len(rows), width)
                    del busy[ready]
        return replies

    def close(self) -> None:
        """End the workers; their sessions end with them."""
        for worker in self._workers:
            worker.end()
        self._workers = []


def make_pool(count: int | None = None) -> Workers:
    """Workers for a simulation: one process per core, or this process alone for `count` 1."""
    count = count or cores()
    return InProcess() if count == 1 else WorkerProcesses(count)


def _homes(ends: Ints, count: int) -> Ints:
    """[parties] the worker of each: the two ends of a session go to neighbouring workers.

    All senders step at once, and then all receivers. So the sum of the ids is mixed first: pairs
    such as (0, 1), (2, 3), … would else have all their senders in one worker.
    """
    mixed = ends.sum(axis=1) * 0x9E3779B1 >> 16
    homes: Ints = (mixed + (ends[:, 0] < ends[:, 1])) % count
    return homes


def _part(steps: Steps, rows: Ints) -> Steps:
    """The request to the parties at `rows`."""

    count = len(steps.ends) // 16

    def cut(array: bytes | None) -> bytes | None:
        if array is None:
            return None
        width = len(array) // count
        return np.frombuffer(array, np.uint8).reshape(count, width)[rows].tobytes()

    return msgspec.structs.replace(
        steps,
        ends=cut(steps.ends),
        values=cut(steps.values),
        senders=cut(steps.senders),
        incoming=cut(steps.incoming),
        lengths=cut(steps.lengths),
    )


def serve() -> None:
    """Run a worker: serve the connection on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    connection = Connection(sys.stdin.fileno())
    parties = InProcess()

    def send(reply: _Reply) -> None:
        connection.send_bytes(msgspec.msgpack.encode(reply))

    try:
        while True:
            steps = msgspec.msgpack.decode(connection.recv_bytes(), type=Steps)
            try:
                replies = parties.run(steps, lambda count: send(_Reply(steps=count)))
            except LumosError as error:
                send(_Reply(error=f"{type(error).__name__}: {error}"))
            except OSError:
                raise
            except Exception as error:  # its text could carry a value: only its type leaves
                send(_Reply(error=f"a worker process met {type(error).__name__}"))
            else:
                send(_Reply(replies=replies.tobytes()))
    except (EOFError, OSError):
        return  # the parent closed the connection, or is gone


# Pairs of devices from the view of a shard, and the count of what they reveal to each other.


@dataclass(slots=True, eq=False, repr=False)  # who compares with whom is private
class ComparedPairs:
    """Pairs that compare or score, from the view of hosted devices.

    Sorted by (device, peer), no pair twice.

    Args:
        rows: [pairs] position of the hosted device.
        peers: [pairs] id of the peer.
        slots: [pairs] slot of the peer, or -1 where the peer is no neighbour.
        first: [pairs] True where the hosted device is S: the end with the smaller id, unless roles
            were given.
        near: True when all peers are neighbours.
        local: of the rounds in which they meet, see `Outbox`. In a `stage` a device sends to all
            its neighbours to which it has the same role, something or nothing: who carries messages
            does not see who compares.
        opened: the sessions of all pairs of the federation are open: no round opens one.
    """

    rows: Ints
    peers: Ints
    slots: Ints
    first: Flags
    near: bool
    local: Local = ""
    opened: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def of_slots(
        shard: Shard, slots: Ints, *, local: Local = "", opened: bool = False
    ) -> "ComparedPairs":
        """Comparisons with neighbours; `slots` must be increasing."""
        rows = shard.owner[slots]
        peers = shard.neighbours[slots]
        first = shard.devices[rows] < peers
        return ComparedPairs(rows, peers, slots, first, True, local, opened)

    @staticmethod
    def of_ids(
        shard: Shard, devices: Ints, peers: Ints, *, local: Local = "", first: Flags | None = None
    ) -> "ComparedPairs":
        """Comparisons with anybody, for example between candidates; sorted by (device, peer)."""
        rows = shard.local(devices)
        slots = shard.slots_or_none(rows, peers)
        near = not np.count_nonzero(slots < 0)
        first = devices < peers if first is None else first
        return ComparedPairs(rows, peers, slots, first, near, local)

    def peers_by_role(self, shard: Shard) -> tuple[Ints, Ints]:
        """Return the ids of peers to which hosted devices are S, and of those to which they are R.

        In a `stage` all neighbours, whether they compare or not.
        """
        peers, first = self.peers, self.first
        if self.local == "stage":
            peers = shard.neighbours
            first = shard.devices[shard.owner] < peers
        return peers[first], peers[~first]


def count_answers(ledger: Ledger, pairs: ComparedPairs, ways: int) -> None:
    """Count one answer of `ways` possible ones for each pair, to neighbours and non-neighbours."""
    if pairs.near:
        ledger.answers.add(pairs.rows, pairs.slots, ways)
        return
    near = pairs.slots >= 0
    ledger.answers.add(pairs.rows[near], pairs.slots[near], ways)
    ledger.answers.add_non_neighbours(pairs.rows[~near], pairs.peers[~near], ways)


# The ideal backends: inputs meet in one swap, and the ledger books the secure protocol by formula.


class BatchBooking(NamedTuple):
    """The bookings of a batch of one item: rounds, and messages at S and at R in an open session.

    opening: what is added at S where the session is new.
    """

    rounds: int
    as_sender: Booking
    as_receiver: Booking
    opening: Booking

    @staticmethod
    @cache
    def of(plan: tuple[Message, ...], point: int) -> "BatchBooking":
        """Return the bookings for the messages of an open session, and the bytes of a point."""
        down = [message.length for message in plan if not message.to_sender]
        up = [message.length for message in plan if message.to_sender]
        as_sender = Booking(len(down), len(up), sum(down), sum(up))
        # S sends the opening, and R's first message is longer by its nonce.
        opening = Booking(1, 0, NONCE + point, NONCE)
        return BatchBooking(len(plan), as_sender, _other_end(as_sender), opening)

    def book(self, ledger: Ledger, topic: Topic, pairs: ComparedPairs, fresh: Flags) -> None:
        """Book the batch of each pair. `fresh`: [pairs] True where the session is new."""
        rows, first = pairs.rows, pairs.first
        # The swap itself stood for the opening message's round, or for the first one.
        ledger.round += self.rounds - pairs.opened
        if not rows.size:
            return
        ledger.book(topic, rows[first], self.as_sender)
        ledger.book(topic, rows[~first], self.as_receiver)
        ledger.book_rounds(rows, self.rounds)
        if np.count_nonzero(fresh):
            ledger.book(topic, rows[first & fresh], self.opening)
            ledger.book(topic, rows[~first & fresh], _other_end(self.opening))
            ledger.book_rounds(rows[fresh], 1)


def _other_end(booking: Booking) -> Booking:
    return Booking(booking.received, booking.sent, booking.bytes_received, booking.bytes_sent)


def swap_in_clear(
    topic: Topic, shard: Shard, pairs: ComparedPairs, mine: Ints | Bytes
) -> Program[npt.NDArray[Any]]:
    """Exchange the inputs of both ends of each pair in the clear: [pairs, …] the peers'."""
    lengths = topic.whole_rows(mine)
    inbox = yield topic.send(shard.ids_of(pairs.rows), pairs.peers, mine, lengths=lengths)
    # Sorted as the pairs are, one each.
    if inbox.sender.size != len(pairs) or np.count_nonzero(inbox.sender != pairs.peers):
        raise ProtocolError("a peer did not send the message that is due; run again")
    return inbox.body


# One batch of a shard over the exchange.


def _from_peers(inbox: Inbox, ends: Ints) -> tuple[Bytes, Ints]:
    """[ends, bytes] the message of each one's peer, and [ends] its length.

    The length is -1 where the peer sent nothing, or more than one message. What anybody else sends
    is ignored: who compares with whom is not theirs to say.
    """
    received = np.stack([inbox.receiver, inbox.sender], axis=1)
    given = inbox.batch.lengths
    if given is not None and np.array_equal(received, ends):
        return inbox.body, given
    body = np.zeros((len(ends), inbox.body.shape[1] if given is not None else 0), np.uint8)
    lengths = np.full(len(ends), -1)
    places: dict[tuple[int, ...], list[int]] = {}
    if given is not None:
        for place, end in enumerate(received.tolist()):
            places.setdefault(tuple(end), []).append(place)
    for row, end in enumerate(ends.tolist()):
        found = places.get(tuple(end), [])
        if given is not None and len(found) == 1:
            body[row], lengths[row] = inbox.body[found[0]], given[found[0]]
    return body, lengths


class PartyBatch:
    """One batch of a shard: all its parties, one item each.

    Args:
        topic: of the messages.
        protocol: name of an entry of `lumos.twoparty.workers.PROTOCOLS`.
        group: of the sessions that it opens.
        workers: they hold the parties.
        on_steps: callback for the steps done.
        pairs: one party for each.
    """

    def __init__(
        self,
        topic: Topic,
        protocol: str,
        group: Group,
        shard: Shard,
        workers: Workers,
        on_steps: OnSteps | None,
        pairs: ComparedPairs,
    ) -> None:
        self._topic = topic
        self._protocol = protocol
        self._group = group
        self._workers = workers
        self._on_steps = on_steps
        self._pairs = pairs
        self._peers = pairs.peers_by_role(shard) if pairs.local else None
        self._ends = np.stack([shard.devices[pairs.rows], pairs.peers], axis=1)

    def begin(self, spec: bytes, values: bytes) -> None:
        """All parties take their inputs, as the protocol encodes them."""
        if len(self._ends):
            senders = self._pairs.first.astype(np.uint8).tobytes()
            self._workers.run(self._steps(self._ends, spec=spec, values=values, senders=senders))

    def step(self, rows: Ints, width: int, inbox: Inbox | None = None) -> Bytes:
        """Step the parties at `rows` with the messages for them: [rows, width] their replies."""
        ends = self._ends[rows]
        steps = self._steps(ends, width=width)
        if inbox is not None:
            incoming, lengths = _from_peers(inbox, ends)
            steps.incoming, steps.lengths = incoming.tobytes(), lengths.tobytes()
        if not len(rows):
            return np.empty((0, width), np.uint8)
        return self._workers.run(steps, self._on_steps)

    def send(
        self, rows: Ints, body: Bytes, lengths: Ints | int, meet: tuple[Ints, Ints] | None
    ) -> Outbox:
        """The messages of the parties at `rows`, as an outbox.

        Args:
            meet: ids to which devices send in this round, and of those that send to them.
        """
        ends = self._ends[rows]
        lengths = np.broadcast_to(np.asarray(lengths, np.int64), len(rows))
        addresses, awaits = (None, None) if meet is None else meet
        return self._topic.send(
            ends[:, 0],
            ends[:, 1],
            body,
            lengths=lengths,
            awaits=awaits,
            local=self._pairs.local,
            addresses=addresses,
        )

    def run(
        self, opening: Message, plan: Sequence[Message], fresh: Flags, *, close: bool = False
    ) -> Program[Ints]:
        """Move all parties through their messages: [pairs] what each learned, or `NO_RESULT`.

        Args:
            opening: the message by which S opens a session.
            plan: the messages of a batch in an open session, R's first.
            fresh: [pairs] True where the session is new.
            close: the sessions end.
        """
        if not len(self._ends):
            return (yield from self._watch(plan))
        first = self._pairs.first
        senders, receivers = np.flatnonzero(first), np.flatnonzero(~first)
        # S sends first where it opens the session; in an open one R does.
        new, answering = senders[fresh[senders]], receivers[fresh[receivers]]
        inbox: Inbox | None = None
        if not self._pairs.opened:
            meet = None
            if self._peers is not None:  # both ends know which sessions are new
                peers = self._pairs.peers
                meet = peers[new], peers[answering]
            inbox = yield self.send(new, self.step(new, opening.length), opening.length, meet)
        for number, message in enumerate(plan):
            sending = receivers if message.to_sender else senders
            # R's first message carries its nonce where the session is new.
            nonce = NONCE * fresh[sending] if number == 0 else np.zeros(len(sending), np.int64)
            width = message.length + (NONCE if number == 0 else 0)
            bodies = np.zeros((len(first), width), np.uint8)
            bodies[answering] = self.step(answering, width, inbox)
            if number == 0:
                waiting = receivers[~fresh[receivers]]
                bodies[waiting] = self.step(waiting, width)
            meet = self._peers
            if meet is not None and message.to_sender:
                meet = meet[::-1]
            inbox = yield self.send(sending, bodies[sending], message.length + nonce, meet)
            answering = senders if message.to_sender else receivers
        self.step(answering, 0, inbox)
        return self.results(close=close)

    def _watch(self, plan: Sequence[Message]) -> Program[Ints]:
        """Pass the rounds of a batch in which no hosted device has a part."""
        nothing, local, peers = self._topic.no_messages, self._pairs.local, self._peers
        if not self._pairs.opened:
            none = None if peers is None else np.empty(0, np.int64)
            yield Outbox(self._topic, nothing, none, local=local)
        for message in plan:
            addresses, awaits = peers or (None, None)
            if message.to_sender:
                addresses, awaits = awaits, addresses
            yield Outbox(self._topic, nothing, awaits, local=local, addresses=addresses)
        return np.empty(0, np.int64)

    def results(self, *, close: bool = False) -> Ints:
        """[pairs] what each party learned; `close`: the sessions end."""
        learned = self._workers.run(self._steps(self._ends, results=True, close=close))
        return learned.view(np.int64).ravel()

    def _steps(
        self,
        ends: Ints,
        *,
        spec: bytes = b"",
        values: bytes | None = None,
        senders: bytes | None = None,
        width: int = 0,
        results: bool = False,
        close: bool = False,
    ) -> Steps:
        return Steps(
            protocol=self._protocol,
            group=self._group.name,
            ends=ends.tobytes(),
            spec=spec,
            values=values,
            senders=senders,
            width=width,
            results=results,
            close=close,
        )
