"""Batches of messages: arrays, never one object per message."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lumos.exchange.topic import Topic

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Messages of one topic and one round.

    Args:
        sender: [messages] id of the sending party.
        receiver: [messages] id of the receiving party.
        body: [messages, …] what is sent.
        epsilon: [messages] privacy spent by the sender, for topics of the door `release`.
    """

    sender: Ints
    receiver: Ints
    body: npt.NDArray[Any]
    epsilon: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.sender)

    def __repr__(self) -> str:
        return f"Batch(messages={len(self)})"  # bodies are private

    def take(self, rows: npt.NDArray[Any]) -> "Batch":
        """The messages at `rows` (indices or a mask)."""
        epsilon = None if self.epsilon is None else self.epsilon[rows]
        return Batch(self.sender[rows], self.receiver[rows], self.body[rows], epsilon)

    def in_order(self) -> "Batch":
        """Sorted by receiver, then sender; messages of one pair keep their order.

        The order is the same however devices are spread over shards.
        """
        if len(self) < 2:
            return self
        # Ids are below 2^31 (a shard of 2^31 devices does not fit a machine), so a pair is a key.
        keys = (self.receiver << 32) + self.sender
        if (keys[1:] >= keys[:-1]).all():
            return self
        return self.take(np.argsort(keys, kind="stable"))

    @staticmethod
    def joined(batches: "list[Batch]") -> "Batch":
        """Several batches as one."""
        if len(batches) == 1:
            return batches[0]
        epsilons = [batch.epsilon for batch in batches if batch.epsilon is not None]
        return Batch(
            np.concatenate([batch.sender for batch in batches]),
            np.concatenate([batch.receiver for batch in batches]),
            np.concatenate([batch.body for batch in batches]),
            np.concatenate(epsilons) if len(epsilons) == len(batches) else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Outbox:
    """What one shard hands to the exchange in one round."""

    topic: "Topic"
    batch: Batch


@dataclass(frozen=True, slots=True, eq=False)
class Inbox:
    """What one shard gets back: messages to its devices, by receiver, then sender.

    Args:
        batch: the messages.
        quiet: True when nobody in the whole federation sent anything in this round. A synchronous
            carrier knows this when it closes a round; it is public, one bit per round.
    """

    batch: Batch
    quiet: bool

    @property
    def sender(self) -> Ints:
        """[messages] id of the sender."""
        return self.batch.sender

    @property
    def receiver(self) -> Ints:
        """[messages] id of the receiver."""
        return self.batch.receiver

    @property
    def body(self) -> npt.NDArray[Any]:
        """[messages, …] what was sent."""
        return self.batch.body

    def __len__(self) -> int:
        return len(self.batch)
