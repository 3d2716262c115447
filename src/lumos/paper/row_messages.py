"""Rows of float32 as message bodies and back."""

import numpy as np
import torch
from torch import Tensor

from lumos.errors import ProtocolError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.topic import Topic
from lumos.typing import Ints


def send_rows(topic: Topic, sender: Ints, receiver: Ints, rows: Tensor) -> Outbox:
    """An outbox of one row of numbers for each message, little-endian float32.

    Args:
        sender, receiver: [messages] ids.
        rows: [messages, width] to send; the caller must not use the array afterwards.
    """
    body = np.ascontiguousarray(rows.detach().numpy(), "<f4").view(np.uint8)
    return topic.send(sender, receiver, body, lengths=np.full(len(sender), body.shape[1]))


def rows_of(topic: Topic, inbox: Inbox, width: int) -> Tensor:
    """[messages, width] the received rows.

    Raises:
        ProtocolError: a message is not `width` finite numbers.
    """
    if not inbox.batch.messages:
        return torch.empty(0, width)
    lengths = inbox.batch.lengths
    if inbox.body.shape[1] != 4 * width or lengths is None or (lengths != 4 * width).any():
        raise ProtocolError(f"topic {topic.name!r}: a message is not {width} numbers")
    rows = np.require(np.ascontiguousarray(inbox.body).view("<f4"), np.float32, ["C", "W"])
    if not np.isfinite(rows).all():
        raise ProtocolError(f"topic {topic.name!r}: a message has a number that is not finite")
    return torch.from_numpy(rows)
