"""Messages over some of a device's slots: to neighbours, who need not all send something."""

from typing import NamedTuple

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Topic
from lumos.typing import Bytes, Doubles, Ints


class ReceivedMessages(NamedTuple):
    """Messages from neighbours."""

    receiver: Ints
    """[messages] position of the hosted device that received it."""
    body: Bytes
    """[messages, bytes]"""


def send_over(
    topic: Topic, shard: Shard, slots: Ints, bodies: Bytes, epsilon: Doubles
) -> Program[ReceivedMessages]:
    """Send one message over each of some slots; return what the hosted devices received.

    Args:
        slots: from a hosted device to one of its neighbours.
        bodies: [slots, bytes].
        epsilon: [slots] spent by each message.

    Raises:
        ProtocolError: a stranger sent a message, a neighbour sent two, or one has another length.
    """
    width = bodies.shape[1]
    rows = shard.owner[slots]
    inbox = yield topic.send(
        shard.ids_of(rows),
        shard.neighbours[slots],
        bodies,
        epsilon=epsilon,
        lengths=np.full(len(slots), width),
    )
    receiver = shard.local(inbox.receiver)
    places = shard.slots_or_none(receiver, inbox.sender)
    if (places < 0).any() or len(np.unique(places)) < len(places):
        raise ProtocolError(f"topic {topic.name!r}: a stranger sent a message, or one came twice")
    lengths = inbox.batch.lengths
    if len(places) and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    body = inbox.body[:, :width] if len(places) else np.empty((0, width), np.uint8)
    return ReceivedMessages(receiver, body)
