"""What the control of `classify` sends and uses instead of messages: values that depend on no data.

A random value that a sender told all its neighbours would be a mark of the sender, and so of a
community. So every receiver draws for itself what it takes each message to say.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import COIN, Mechanism
from lumos.strict.neighbour_messages import ReceivedMessages
from lumos.typing import Bytes, Ints


def drawn_symbols(shard: Shard, size: int) -> Ints:
    """[hosted] uniform values below `size`, to be sent."""
    everyone = np.arange(len(shard))
    chance = shard.coins.uniform(everyone, "control symbol", 0)[:, 0]
    return np.floor(chance * size).astype(np.int64)


def drawn_values(shard: Shard, received: ReceivedMessages, size: int, step: int = 0) -> Ints:
    """[messages] uniform values below `size`, drawn by each receiver for itself.

    Args:
        step: names the coins.
    """
    many = np.bincount(received.receiver, minlength=len(shard))
    chance = shard.coins.uniform_each(many, "control", step)
    return np.floor(chance * size).astype(np.int64)


def drawn_opinions(
    shard: Shard, received: ReceivedMessages, mechanism: Mechanism, number: int
) -> Bytes:
    """[messages, bytes] releases of uniform classes, drawn by each receiver for itself."""
    first = 100 * number
    classes = drawn_values(shard, received, mechanism.size, first)
    words = [
        drawn_values(shard, received, COIN, first + 1 + word) for word in range(mechanism.coins)
    ]
    return mechanism.release(classes, np.stack(words, axis=1).astype(np.uint32))
