"""Symbols on their way: to all neighbours, and, with a relay, further.

What a relay tells of features costs no ε: it passes on what was released. But a relayed symbol is a
hint at who else is there. The rules keep the hint small: one draw for each neighbour and hop, made
once per run; never what the receiver itself sent in the hop before; every pool holds `PADS` made-up
symbols, so the only neighbour of a device gets nothing else from it; and a symbol is nobody's name.
`benchmarks/bench_relay.py` measures what the best possible attacker makes of the rest.
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


def tell_neighbours(topic: Topic, shard: Shard, said: Bytes, epsilon: Doubles) -> Program[Bytes]:
    """Send one message over every slot, and return what came over every slot.

    Args:
        said: [slots, bytes].
        epsilon: [slots] spent by each message.

    Raises:
        ProtocolError: a message is missing, unexpected, or of another length.
    """
    slots, width = said.shape
    inbox = yield topic.send(
        shard.ids_of(shard.owner),
        shard.neighbours,
        said,
        epsilon=epsilon,
        lengths=np.full(slots, width),
    )
    # By receiver, then sender: the order of the slots.
    if not np.array_equal(shard.local(inbox.receiver), shard.owner) or not np.array_equal(
        inbox.sender, shard.neighbours
    ):
        raise ProtocolError(f"topic {topic.name!r}: one is missing, or one came from a stranger")
    lengths = inbox.batch.lengths
    if slots and (lengths is None or (lengths != width).any()):
        raise ProtocolError(f"topic {topic.name!r}: a message has the wrong length")
    return inbox.body[:, :width] if slots else said


def pads(shard: Shard, symbols: Mechanism, hop: int) -> Bytes:
    """[hosted, PADS, bytes] made-up symbols: releases of symbols that are drawn uniformly."""
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


def relayed(shard: Shard, said: Bytes, made: Bytes, hop: int, purpose: str = "relay") -> Bytes:
    """[slots, bytes] for each neighbour, one draw from what the others said and the pads.

    Args:
        said: [slots, bytes] what came over each slot; made: [hosted, PADS, bytes].
        purpose: names the coins, with the hop.
    """
    owner = shard.owner
    chance = shard.coins.uniform_each(shard.degree, purpose, hop)
    others = shard.degree[owner] - 1
    draw = np.floor(chance * (others + PADS)).astype(np.int64)
    real = draw < others
    # The draw-th of the device's slots, leaving out the receiver's own.
    start = shard.offsets[:-1][owner]
    place = start + draw
    place += place >= np.arange(len(owner))
    chosen = said[np.where(real, place, 0)] if len(said) else said
    padded = made[owner, np.where(real, 0, draw - others)]
    return np.where(real[:, None], chosen, padded)
