"""Messages over some of a device's slots: to neighbours, who need not all send something."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.batch import Batch
from lumos.exchange.endpoint import Program
from lumos.exchange.tally import nondecreasing
from lumos.exchange.topic import Topic
from lumos.typing import Bytes, Ints


class ReceivedMessages(NamedTuple):
    """Messages from neighbours."""

    receiver: Ints
    """[messages] position of the hosted device that received it."""
    body: Bytes
    """[messages, bytes]"""


def send_over(
    topic: Topic,
    shard: Shard,
    slots: Ints | None,
    bodies: Bytes,
    epsilon: float,
    read: Callable[[Bytes], object],
) -> Program[ReceivedMessages]:
    """Send one message over each of some slots; return what the hosted devices received.

    Args:
        slots: from a hosted device to one of its neighbours; None for all of them.
        bodies: [slots, bytes].
        epsilon: spent by each message.
        read: raises `ProtocolError` for bodies that nobody can have sent who keeps the rules.

    Raises:
        ProtocolError: a stranger sent a message, a neighbour sent two, or one has another length;
            or messages are not in the order of their receivers.
    """
    width = bodies.shape[1]

    def check(batch: Batch) -> None:
        if batch.messages:
            if batch.lengths is None or (batch.lengths != width).any():
                raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
            read(batch.body[:, :width])

    rows = shard.owner if slots is None else shard.owner[slots]
    inbox = yield topic.send(
        shard.ids_of(rows),
        shard.neighbours if slots is None else shard.neighbours[slots],
        bodies,
        # One number for all messages, in the memory of one.
        epsilon=np.broadcast_to(np.float64(epsilon), len(rows)),
        lengths=np.broadcast_to(np.int64(width), len(rows)),
        awaits=shard.neighbours,
        check=check,
    )
    receiver = shard.local(inbox.receiver)
    if not nondecreasing(receiver):
        raise ProtocolError(f"topic {topic.name!r}: messages arrived out of order")
    if not _one_each(shard, receiver, inbox.sender):
        raise ProtocolError(f"topic {topic.name!r}: a stranger sent a message, or one came twice")
    lengths = inbox.batch.lengths
    if len(receiver) and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    body = inbox.body[:, :width] if len(receiver) else np.empty((0, width), np.uint8)
    return ReceivedMessages(receiver, body)


def _one_each(shard: Shard, receiver: Ints, sender: Ints) -> bool:
    """Whether messages came from neighbours, at most one from each."""
    if np.array_equal(sender, shard.neighbours) and np.array_equal(receiver, shard.owner):
        return True  # from every neighbour, in the order of the slots
    slots = shard.slots_or_none(receiver, sender)
    if np.count_nonzero(slots < 0):
        return False
    came = np.zeros(len(shard.neighbours), np.bool_)
    came[slots] = True
    return int(np.count_nonzero(came)) == len(slots)
