"""Topics and doors: what may leave a device, and what protects it.

Every message belongs to a topic. A topic names its door, the shape of one message, and in words
who learns what from it. Nothing can be sent without a topic, so the list of topics is the list of
everything that leaves a device.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lumos.device.shard import COORDINATOR, Shard
from lumos.errors import ProtocolError
from lumos.exchange.batch import Batch, CheckMessages, Inbox, Outbox
from lumos.typing import Doubles, Ints


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
            `sends` to them, or `both`, beside messages between devices; empty: it has none.
        common: release topics only: a device tells all receivers the same, so that those who
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
    coordinator: Literal["", "receives", "sends", "both"] = ""
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
    ) -> Outbox:
        """An outbox of this topic. An integer body is one word for all messages.

        Args:
            awaits, check: see `Outbox`.
        """
        if not isinstance(body, int):
            return Outbox(self, Batch(sender, receiver, body, epsilon, lengths), awaits, check)
        words = () if self.vocabulary is PUBLIC_ID else self.vocabulary
        if not 0 <= body < len(words):
            raise ProtocolError(f"topic {self.name!r}: a word outside its vocabulary")
        repeated = np.empty((len(sender), *(self.shape or ())), self.dtype)
        repeated.fill(body)
        return Outbox(self, Batch(sender, receiver, repeated, epsilon, lengths), awaits, check)

    def along(self, shard: Shard, slots: Ints, body: npt.NDArray[Any] | int) -> Outbox:
        """An outbox with a message over each of the slots: from a device to its neighbour."""
        rows = shard.owner[slots]
        return self.send(shard.ids_of(rows), shard.neighbours[slots], body)

    def to_coordinator(self, shard: Shard, rows: Ints, body: npt.NDArray[Any] | int) -> Outbox:
        """An outbox with a message from each of the hosted devices `rows` to the coordinator."""
        if not self.coordinator:
            raise ProtocolError(f"topic {self.name!r}: the coordinator takes no part")
        return self.send(shard.ids_of(rows), _coordinator(len(rows)), body)

    def from_coordinator(self, receiver: Ints, body: npt.NDArray[Any] | int) -> Outbox:
        """The coordinator's outbox, with a message to each of `receiver`."""
        return self.send(_coordinator(len(receiver)), receiver, body)

    def nothing(self) -> Outbox:
        """An outbox without messages: this party has nothing to say in this round."""
        return self._nothing

    @cached_property
    def _nothing(self) -> Outbox:
        return Outbox(self, self.no_messages)

    @cached_property
    def silence(self) -> Inbox:
        """What everybody gets when nobody sent anything."""
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
