"""Batches of messages: arrays, never one object per message."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lumos.typing import Ints

if TYPE_CHECKING:
    from lumos.exchange.topic import Topic


class Batch:
    """Messages of one topic and one round.

    Args:
        sender: [messages] id of the sending party.
        receiver: [messages] id of the receiving party.
        body: [messages, …] what is sent.
        epsilon: [messages] privacy spent by the sender, for topics of the door `release`.
        lengths: [messages] for topics of any width: how many bytes of each row are the message;
            the rest is padding and does not travel.
    """

    __slots__ = ("body", "epsilon", "lengths", "messages", "receiver", "regular", "rows", "sender")

    def __init__(
        self,
        sender: Ints,
        receiver: Ints,
        body: npt.NDArray[Any],
        epsilon: npt.NDArray[np.float64] | None = None,
        lengths: Ints | None = None,
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.body = body
        self.epsilon = epsilon
        self.lengths = lengths
        self.messages = sender.size
        self.rows: Ints | None = None
        """Positions of the senders, where they and the receivers are right by construction."""
        self.regular = False
        """Set by `Topic.send` where the body is what the topic declares by construction."""

    def __repr__(self) -> str:
        return f"Batch(messages={self.messages})"  # bodies are private

    def take(self, rows: npt.NDArray[Any]) -> "Batch":
        """The messages at `rows` (indices or a mask)."""
        return Batch(
            self.sender[rows],
            self.receiver[rows],
            self.body[rows],
            None if self.epsilon is None else self.epsilon[rows],
            None if self.lengths is None else self.lengths[rows],
        )

    def in_order(self) -> "Batch":
        """Sorted by receiver, then sender; messages of one pair keep their order.

        The order is the same however devices are spread over shards.
        """
        if self.messages < 2:
            return self
        # Ids are below 2^31 (so many devices fit no machine), so a pair is one key.
        keys = (self.receiver << 32) + self.sender
        if not np.count_nonzero(keys[1:] < keys[:-1]):
            return self
        return self.take(keys.argsort(kind="stable"))

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
            np.concatenate(epsilons) if epsilons else None,
            np.concatenate(lengths) if lengths else None,
        )


def _stacked(bodies: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Bodies one below the other; those of any width are padded to the widest."""
    widths = {body.shape[1:] for body in bodies}
    if len(widths) > 1:
        widest = max(body.shape[1] for body in bodies)
        bodies = [np.pad(body, ((0, 0), (0, widest - body.shape[1]))) for body in bodies]
    return np.concatenate(bodies)


class Outbox:
    """What one shard hands to the exchange in one round."""

    __slots__ = ("batch", "topic")

    def __init__(self, topic: "Topic", batch: Batch) -> None:
        self.topic = topic
        self.batch = batch


class Inbox:
    """What one shard gets back: messages to its devices, by receiver, then sender.

    Args:
        batch: the messages; `sender`, `receiver` and `body` are its arrays.
        quiet: True when nobody in the whole federation sent anything in this round. A synchronous
            carrier knows this when it closes a round; it is public, one bit per round.
    """

    __slots__ = ("batch", "body", "quiet", "receiver", "sender")

    def __init__(self, batch: Batch, quiet: bool) -> None:
        self.batch = batch
        self.sender = batch.sender
        self.receiver = batch.receiver
        self.body = batch.body
        self.quiet = quiet
