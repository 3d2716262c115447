"""Sending symbols to all neighbours, and, with a relay, further.

A relay costs no further ε about features: it passes on symbols that are released already. But a
relayed symbol hints at the sender's other neighbours. The rules keep the hint small: one draw for
each neighbour and hop, made once per run; never the receiver's own message of the hop before; every
pool holds `PADS` made-up symbols, so the only neighbour of a device gets nothing else from it; and
a symbol identifies nobody. `benchmarks/bench_relay.py` measures what the best possible attacker
infers from the rest.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Topic
from lumos.typing import Bytes, Doubles

PADS = 2
"""Made-up symbols in every pool."""


def send_to_neighbours(
    topic: Topic, shard: Shard, messages: Bytes, epsilon: Doubles
) -> Program[Bytes]:
    """Send one message over every slot; return the messages received over every slot.

    Args:
        messages: [slots, bytes].
        epsilon: [slots] spent by each message.

    Raises:
        ProtocolError: a message is missing, unexpected, or of another length.
    """
    slots, width = messages.shape
    inbox = yield topic.send(
        shard.ids_of(shard.owner),
        shard.neighbours,
        messages,
        epsilon=epsilon,
        lengths=np.full(slots, width),
    )
    # By receiver, then sender: the order of the slots.
    if not np.array_equal(shard.local(inbox.receiver), shard.owner) or not np.array_equal(
        inbox.sender, shard.neighbours
    ):
        raise ProtocolError(f"topic {topic.name!r}: a message is missing, or a stranger sent one")
    lengths = inbox.batch.lengths
    if slots and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    return inbox.body[:, :width] if slots else messages


def pads(shard: Shard, symbols: Mechanism, hop: int) -> Bytes:
    """[hosted, PADS, bytes] made-up symbols: releases of uniformly drawn symbols."""
    everyone = np.arange(len(shard))
    chance = shard.coins.uniform(everyone, f"pads/{hop}", 0, PADS)
    drawn = np.floor(chance * symbols.size).astype(np.int64)
    made = [
        symbols.release(
            drawn[:, pad], shard.coins.words(everyone, f"pads/{hop}", 1 + pad, symbols.coins)
        )
        for pad in range(PADS)
    ]
    return np.stack(made, axis=1)


def relayed(shard: Shard, received: Bytes, made: Bytes, hop: int, purpose: str = "relay") -> Bytes:
    """[slots, bytes] for each neighbour, one draw from the other neighbours' messages and the pads.

    Args:
        received: [slots, bytes] received over each slot.
        made: [hosted, PADS, bytes] the pads.
        purpose: names the coins, with the hop.
    """
    owner = shard.owner
    chance = shard.coins.uniform_each(shard.degree, purpose, hop)
    others = shard.degree[owner] - 1
    draw = np.floor(chance * (others + PADS)).astype(np.int64)
    real = draw < others
    # The draw-th of the device's slots, skipping the receiver's own.
    start = shard.offsets[:-1][owner]
    place = start + draw
    place += place >= np.arange(len(owner))
    chosen = received[np.where(real, place, 0)] if len(received) else received
    padded = made[owner, np.where(real, 0, draw - others)]
    return np.where(real[:, None], chosen, padded)
