"""Messages of a round: batches, outboxes, inboxes, and the topics and doors that declare them.

A `Batch` is arrays, never one object per message. A participant sends an `Outbox` and receives an
`Inbox`. Every message belongs to a `Topic`, which names its door, the shape of one message, and in
words who learns what from it. Nothing can be sent without a topic, so the list of topics is the
list of everything that leaves a device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import ProtocolError
from lumos.typing import Bytes, Doubles, Ints

_MANY = 1 << 14  # from so many messages on, counting ids is cheaper than sorting keys …
_SPARSE = 4  # … unless there are more than so many ids a message
_ROWS = 4096  # messages at a time: a mask of all of them would be as large as the bodies


class Batch:
    """Messages of one topic and one round.

    Args:
        sender: [messages] id of the sending participant.
        receiver: [messages] id of the receiving participant.
        body: [messages, …] what is sent.
        epsilon: [messages] privacy spent by the sender, for topics of the door `release`.
        lengths: [messages] for topics of any width: how many bytes of each row are the message;
            the rest is padding, which `packed` removes before anything travels.
    """

    __slots__ = ("body", "epsilon", "lengths", "messages", "receiver", "sender")

    def __init__(
        self,
        sender: Ints,
        receiver: Ints,
        body: npt.NDArray[Any],
        epsilon: Doubles | None = None,
        lengths: Ints | None = None,
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.body = body
        self.epsilon = epsilon
        self.lengths = lengths
        self.messages = sender.size

    def __repr__(self) -> str:
        return f"Batch(messages={self.messages})"  # bodies are private

    def take(self, rows: npt.NDArray[Any]) -> "Batch":
        """The messages at `rows` (indices or a mask)."""
        sender = self.sender[rows]
        return Batch(
            sender,
            self.receiver[rows],
            _taken(self.body, rows, len(sender)),
            None if self.epsilon is None else _taken(self.epsilon, rows, len(sender)),
            None if self.lengths is None else _taken(self.lengths, rows, len(sender)),
        )

    def in_order(self) -> "Batch":
        """Sorted by receiver, then sender; messages of one pair keep their order.

        The order is the same however devices are spread over shards.
        """
        if self.messages < 2:
            return self
        step_up = self.receiver[1:] > self.receiver[:-1]
        step_up |= (self.receiver[1:] == self.receiver[:-1]) & (self.sender[1:] >= self.sender[:-1])
        if step_up.all():
            return self
        return self.take(_order(self.receiver, self.sender))

    def packed(self) -> "Batch":
        """Without padding: cut to the longest message, and zero behind each one.

        The batch itself, where there is nothing to remove.
        """
        if self.lengths is None:
            return self
        body = _without_padding(self.body, self.lengths)
        if body is self.body:
            return self
        return Batch(self.sender, self.receiver, body, self.epsilon, self.lengths)

    @staticmethod
    def joined(batches: "list[Batch]") -> "Batch":
        """Several batches as one."""
        if len(batches) == 1:
            return batches[0]
        epsilons = [batch.epsilon for batch in batches if batch.epsilon is not None]
        lengths = [batch.lengths for batch in batches if batch.lengths is not None]
        return Batch(
            np.concatenate([batch.sender for batch in batches]),
            np.concatenate([batch.receiver for batch in batches]),
            _stacked([batch.body for batch in batches]),
            _end_to_end(epsilons) if epsilons else None,
            _end_to_end(lengths) if lengths else None,
        )


def _taken(values: npt.NDArray[Any], rows: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """`values[rows]`, which are `count`; one value for all messages is not copied for each."""
    if values.strides[0] == 0:
        return np.broadcast_to(values[:1], (count, *values.shape[1:]))
    taken: npt.NDArray[Any] = values[rows]
    return taken


def _order(receiver: Ints, sender: Ints) -> Ints:
    """[messages] positions by receiver, then sender; those of one pair keep their order."""
    ids = int(max(receiver.max(), sender.max())) + 2
    least = min(receiver.min(), sender.min())
    if len(receiver) < _MANY or ids > _SPARSE * len(receiver) or least < -1:
        # Ids are below 2^31 (so many devices fit no machine), so a pair is one key.
        keys: Ints = (receiver << 32) + sender
        return keys.argsort(kind="stable")
    if np.count_nonzero(sender[1:] < sender[:-1]) == 0:
        return _counting_order(receiver, ids)
    by_sender = _counting_order(sender, ids)
    return by_sender[_counting_order(receiver[by_sender], ids)]


def _counting_order(party: Ints, ids: int) -> Ints:
    """[messages] positions by participant, equal ones in their order: O(messages + ids)."""
    rows = np.arange(len(party) + 1, dtype=np.int32)
    columns = (party + 1).astype(np.int32)  # the coordinator is -1
    ones = np.ones(len(party), np.bool_)
    # Compressed columns of a matrix with one entry a row are the rows, sorted by column.
    by_column: Any = csr_array((ones, columns, rows), shape=(len(party), ids)).tocsc()
    order: Ints = by_column.indices
    return order


def _without_padding(body: Bytes, lengths: Ints) -> Bytes:
    """`body` itself, or a copy of its messages and nothing else."""
    longest = int(lengths.max(initial=0))
    packed = body if longest == body.shape[1] else body[:, :longest].copy()
    if not len(lengths) or lengths.min() == longest:
        return packed
    columns = np.arange(longest)
    for start in range(0, len(packed), _ROWS):
        rows = slice(start, start + _ROWS)
        behind = columns >= lengths[rows, None]
        if np.count_nonzero(packed[rows][behind]):
            if packed is body:
                packed = body.copy()
            packed[rows][behind] = 0
    return packed


def _end_to_end(values: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One after the other; one value for all messages is not copied for each."""
    known = [some for some in values if len(some)]
    if known and all(some.strides[0] == 0 and some[0] == known[0][0] for some in known):
        return np.broadcast_to(known[0][:1], sum(map(len, known)))
    return np.concatenate(values)


def _stacked(bodies: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Bodies one below the other; those of any width are padded to the widest."""
    widths = {body.shape[1:] for body in bodies}
    if len(widths) > 1:
        widest = max(body.shape[1] for body in bodies)
        bodies = [np.pad(body, ((0, 0), (0, widest - body.shape[1]))) for body in bodies]
    return np.concatenate(bodies)


CheckMessages = Callable[[Batch], None]
"""Raises `ProtocolError` unless these messages are what a program reads."""

MAX_GATHERED = 3
"""Words of a topic that the coordinator gathers; with none, two bits."""
Local = Literal["", "stage", "known"]
"""How a round between devices ends, see `Outbox`."""


class Outbox:
    """The messages that one participant sends in one round.

    Args:
        batch: the messages.
        awaits: ids of those who may send to a hosted device in this round, known beforehand and
            mutual: whoever is awaited awaits the other one. A transport that has it needs no
            barrier to know when the round is complete. None: anybody may send.
            For a topic that the coordinator receives: the coordinator, or nobody where it knows
            that the device sends nothing; at the coordinator, those that send.
        check: raises `ProtocolError` for messages that the program would refuse in this round,
            beyond what the topic declares. A transport may drop those of one sender before they
            stop the program. None: there is no such check.
        local: with `awaits`, and devices that are apart: ``""`` if the coordinator closes the
            round for all at once. Otherwise a device goes on once those in `awaits` have sent:
            in a ``stage`` nothing reaches the coordinator before it gathers from all devices; in a
            ``known`` round it has named the pairs itself, so when they end tells it nothing else.
        addresses: ids of those to whom a hosted device sends in this round, something or nothing,
            where they are others than in `awaits`: whoever is awaited has the awaiting device here.
    """

    __slots__ = ("addresses", "awaits", "batch", "check", "local", "topic")

    def __init__(
        self,
        topic: "Topic",
        batch: Batch,
        awaits: Ints | None = None,
        check: CheckMessages | None = None,
        local: Local = "",
        addresses: Ints | None = None,
    ) -> None:
        self.topic = topic
        self.batch = batch
        self.awaits = awaits
        self.check = check
        self.local = local
        self.addresses = awaits if addresses is None else addresses

    def carrying(self, batch: Batch) -> "Outbox":
        """Return the same outbox with other messages."""
        return Outbox(self.topic, batch, self.awaits, self.check, self.local, self.addresses)


class Inbox:
    """The messages that one participant receives in one round, by receiver, then sender.

    Args:
        batch: the messages; `sender`, `receiver` and `body` are its arrays.
        quiet: True when nobody in the whole federation sent anything in this round. A synchronous
            transport knows this when it closes a round; it is public, one bit per round.
    """

    __slots__ = ("batch", "body", "quiet", "receiver", "sender")

    def __init__(self, batch: Batch, quiet: bool) -> None:
        self.batch = batch
        self.sender = batch.sender
        self.receiver = batch.receiver
        self.body = batch.body
        self.quiet = quiet


# Topics and doors.


class Door(StrEnum):
    """The ways out of a device."""

    COMPARE = "compare"
    """Messages of a two-party comparison or score: each side learns the declared outcome."""
    RELEASE = "release"
    """Output of a local-differential-privacy mechanism: ε is counted."""
    AGGREGATE = "aggregate"
    """A masked value: only the sum over devices becomes visible."""
    CONTROL = "control"
    """A word of a finite vocabulary, or a public id: its bits are counted."""
    OPEN = "open"
    """No protection at all: only the `paper` profile may use it."""


PUBLIC_ID = ("a public device id",)
"""Vocabulary of control topics whose body is an id that everybody may know."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Topic:
    """One kind of message.

    Args:
        name: unique name, as the ledger prints it.
        door: the door it leaves through.
        dtype: element type of the body.
        shape: shape of one message's body; () for a single element, None for bytes of any number.
        learns: who learns what, in one sentence.
        vocabulary: for control topics, the words that codes 0, 1, … stand for, or `PUBLIC_ID`.
        coordinator: the coordinator's part in rounds of this topic: it `receives` from devices,
            `gathers` a word of each or nothing, all at once, `sends` to them, or `both`, beside
            messages between devices; empty: it has none.
        common: release topics only: a device sends the same to all receivers, so that those who
            collude learn no more than each of them.
        about_edges: release topics only: the message is a function of what the device received and
            of nothing of its own, so its ε is about edges and degrees, and counted apart.
    """

    name: str
    door: Door
    dtype: type[np.generic] = np.uint8
    shape: tuple[int, ...] | None = ()
    learns: str
    vocabulary: tuple[str, ...] = ()
    coordinator: Literal["", "receives", "gathers", "sends", "both"] = ""
    common: bool = False
    about_edges: bool = False

    def __post_init__(self) -> None:
        if self.name in TOPICS:
            raise ValueError(f"topic {self.name!r} is declared twice")
        if (self.door is Door.CONTROL) != bool(self.vocabulary):
            raise ValueError(
                f"topic {self.name!r}: control topics, and only they, have a vocabulary"
            )
        if self.vocabulary and self.dtype is not (
            np.int64 if self.vocabulary is PUBLIC_ID else np.uint8
        ):
            raise ValueError(f"topic {self.name!r}: words are uint8, public ids int64")
        if self.coordinator == "gathers" and not 0 < len(self.vocabulary) <= MAX_GATHERED:
            raise ValueError(f"topic {self.name!r}: one of {MAX_GATHERED} words is gathered")
        if self.common and self.door is not Door.RELEASE:
            raise ValueError(f"topic {self.name!r}: only a release is common to its receivers")
        if self.about_edges and self.door is not Door.RELEASE:
            raise ValueError(f"topic {self.name!r}: only a release has an ε")
        if self.shape is None and self.dtype is not np.uint8:
            raise ValueError(f"topic {self.name!r}: messages of any length are bytes")
        TOPICS[self.name] = self

    @cached_property
    def element(self) -> np.dtype[Any]:
        """Type of one element of the body."""
        return np.dtype(self.dtype)

    @property
    def size(self) -> int:
        """Bytes of one message's body, where all have the same size."""
        if self.shape is None:
            raise ValueError(f"topic {self.name!r}: its messages differ in length")
        return self.element.itemsize * math.prod(self.shape)

    def send(
        self,
        sender: Ints,
        receiver: Ints,
        body: npt.NDArray[Any] | int,
        *,
        epsilon: Doubles | None = None,
        lengths: Ints | None = None,
        awaits: Ints | None = None,
        check: CheckMessages | None = None,
        local: Local = "",
        addresses: Ints | None = None,
    ) -> Outbox:
        """Return an outbox of this topic. An integer body is one word for all messages.

        Args:
            lengths: [messages] bytes of each, for a topic of any width.
            awaits, check, local, addresses: see `Outbox`.
        """
        if not isinstance(body, int):
            batch = Batch(sender, receiver, body, epsilon, lengths)
            return Outbox(self, batch, awaits, check, local, addresses)
        words = () if self.vocabulary is PUBLIC_ID else self.vocabulary
        if not 0 <= body < len(words):
            raise ProtocolError(f"topic {self.name!r}: a word outside its vocabulary")
        repeated = np.empty((len(sender), *(self.shape or ())), self.dtype)
        repeated.fill(body)
        batch = Batch(sender, receiver, repeated, epsilon, lengths)
        return Outbox(self, batch, awaits, check, local, addresses)

    def along(
        self, shard: Shard, slots: Ints, body: npt.NDArray[Any] | int, *, local: Local = ""
    ) -> Outbox:
        """An outbox with a message over each of the slots: from a device to its neighbour.

        In a round that is `local`, all neighbours are awaited.
        """
        rows = shard.owner[slots]
        awaits = shard.neighbours if local else None
        return self.send(
            shard.ids_of(rows), shard.neighbours[slots], body, awaits=awaits, local=local
        )

    def to_coordinator(
        self,
        shard: Shard,
        rows: Ints,
        body: npt.NDArray[Any] | int,
        *,
        lengths: Ints | None = None,
        awaited: bool = True,
    ) -> Outbox:
        """Return an outbox with a message from each hosted device of `rows` to the coordinator.

        Args:
            lengths: [rows] bytes of each, for a topic of any width; whole rows by default.
            awaited: False where the coordinator knows that no hosted device sends anything.
        """
        if not self.coordinator:
            raise ProtocolError(f"topic {self.name!r}: the coordinator takes no part")
        lengths = self.whole_rows(body) if lengths is None else lengths
        to = _coordinator(len(rows))
        awaits = None if awaited else _coordinator(0)
        return self.send(shard.ids_of(rows), to, body, lengths=lengths, awaits=awaits)

    def from_coordinator(self, receiver: Ints, body: npt.NDArray[Any] | int) -> Outbox:
        """Return the coordinator's outbox, with a message to each of `receiver`, a whole row."""
        lengths = self.whole_rows(body)
        return self.send(_coordinator(len(receiver)), receiver, body, lengths=lengths)

    def whole_rows(self, body: npt.NDArray[Any] | int) -> Ints | None:
        """Return [messages] the bytes of rows without padding; None for a topic of one size."""
        if self.shape is not None or isinstance(body, int):
            return None
        return np.full(len(body), body.shape[1])

    def nothing(self, *, awaits: Ints | None = None) -> Outbox:
        """Return an outbox without messages: this participant sends nothing in this round."""
        return self._nothing if awaits is None else Outbox(self, self.no_messages, awaits)

    @cached_property
    def _nothing(self) -> Outbox:
        return Outbox(self, self.no_messages)

    @cached_property
    def silence(self) -> Inbox:
        """The inbox of everybody when nobody sent anything."""
        return Inbox(self.no_messages, quiet=True)

    @cached_property
    def no_messages(self) -> Batch:
        """A batch without messages."""
        none = np.empty(0, np.int64)
        if self.shape is None:
            return Batch(none, none, np.empty((0, 0), self.dtype), lengths=none)
        return Batch(none, none, np.empty((0, *self.shape), self.dtype))


def _coordinator(count: int) -> Ints:
    """[count] the coordinator's id. `np.full` takes three times as long for a few."""
    ids = np.empty(count, np.int64)
    ids.fill(COORDINATOR)
    return ids


TOPICS: dict[str, Topic] = {}
"""Every topic that exists, by name."""
