"""Opinions: what a device tells its neighbours of what it received.

An opinion is the class, or the colour, that a device's evidence so far points to, randomized. It is
a function of received messages and public matrices only, so it costs no ε of any feature or label;
it tells something about the sender's edges and degree, and is randomized for that.

Guarantee: one opinion is the same for all receivers, so one edge changes at most the opinions of
its two ends: ε_m each, for any two neighbourhoods, however many receivers collude. All that follows
from an opinion is a function of what was sent. An opinion made for one receiver, without what that
receiver sent, would promise nothing (`tests/strict/test_opinions.py` breaks it).

Every device with a neighbour sends, also if it received nothing: silence would tell. Where several
classes have the same evidence, the device draws one.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.encode.mechanisms import Mechanism
from lumos.strict.short_rows import row_maxima
from lumos.typing import Bytes, Doubles, Ints

PURPOSE = "opinion"


def opinions(shard: Shard, evidence: Doubles, mechanism: Mechanism, number: int) -> Bytes:
    """[hosted, bytes] the randomized opinions of the hosted devices.

    Args:
        evidence: [hosted, k] of everything received so far.
        number: 1 for the first opinion; names the coins.
    """
    return randomized(shard, preferred(shard, evidence, number), mechanism, number)


def preferred(shard: Shard, evidence: Doubles, number: int) -> Ints:
    """[hosted] the opinions before they are randomized; arguments as in `opinions`."""
    chosen: Ints = evidence.argmax(axis=1)
    best = evidence == row_maxima(evidence)[:, None]
    tied = np.flatnonzero(np.count_nonzero(best, axis=1) > 1)
    chance = shard.coins.uniform(tied, f"{PURPOSE}/tie", number)
    chosen[tied] = most_likely(evidence[tied], chance[:, 0])
    return chosen


def randomized(shard: Shard, chosen: Ints, mechanism: Mechanism, number: int) -> Bytes:
    """[hosted, bytes] opinions as they are sent.

    Without devices that are left out, coins are others: the opinion may be another, and two of them
    with the same coins would show by how much they differ.
    """
    absent = ",".join(map(str, sorted(shard.absent)))
    purpose = f"{PURPOSE}/without {absent}" if absent else PURPOSE
    coins = shard.coins.words(np.arange(len(shard)), purpose, number, mechanism.coins)
    return mechanism.release(chosen, coins)


def most_likely(evidence: Doubles, chance: Doubles) -> Ints:
    """[hosted] the class with the most evidence; one of the best by `chance` in (0, 1) at ties."""
    best = evidence == evidence.max(axis=1, keepdims=True)
    place = np.floor(chance * best.sum(axis=1)).astype(np.int64)
    which: Ints = (np.cumsum(best, axis=1) > place[:, None]).argmax(axis=1)
    return which
