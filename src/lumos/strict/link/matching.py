"""A random matching of edges by proposals: every device has at most one partner.

In each of some rounds a device without a partner tosses a coin. Heads: it draws one of its places,
of which it has a least number, and proposes to the candidate there, if there is one. Tails: it
accepts one of the proposals that it receives. Every proposal gets an answer.

What it tells: a device learns that a candidate proposed to it, and a proposer whether it was
accepted: one bit each, through the door `control`. A device with few candidates would propose to
each of them more often. Empty places hide how few they are; beyond the least number of places,
proposals tell something about degrees (measured in docs/strict.md).
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.strict.messages import PROPOSAL, REPLY
from lumos.typing import Doubles, Flags, Ints

ROUNDS = 10
"""On Facebook ten rounds match 59 % of all devices."""
PLACES = 8
"""Devices with fewer neighbours propose to each of them as if they had so many. Of edges that are
held back a device has few, whatever its degree."""
NOBODY = -1


def match(
    shard: Shard,
    rows: Ints,
    peers: Ints,
    purpose: str,
    places: int = 1,
    *,
    looking: Flags | None = None,
) -> Program[Ints]:
    """Match hosted devices with one of their candidates, or with one that proposes to them.

    Args:
        rows: [candidates] positions of hosted devices, not decreasing.
        peers: [candidates] ids.
        purpose: names the coins.
        places: least number of places that a device draws from.
        looking: [hosted] who takes part, everybody by default; all others refuse.

    Returns:
        [hosted] ids of the partners, `NOBODY` where there is none.
    """
    hosted, coins = len(shard), shard.coins
    everyone = np.arange(hosted)
    counts = np.bincount(rows, minlength=hosted)
    first = np.cumsum(counts) - counts
    partner = np.full(hosted, NOBODY)
    free = np.ones(hosted, np.bool_) if looking is None else looking.copy()
    for number in range(ROUNDS):
        chance = coins.uniform(everyone, f"{purpose}/round", number, 3)
        proposing = (chance[:, 0] < 0.5) & free
        place = np.floor(chance[:, 1] * np.maximum(counts, places)).astype(np.int64)
        asking = np.flatnonzero(proposing & (place < counts))
        chosen = peers[first[asking] + place[asking]]
        inbox = yield PROPOSAL.send(shard.ids_of(asking), chosen, 0)
        accepted = _accepted(shard, inbox.receiver, ~proposing & free, chance[:, 2])
        answers = yield REPLY.send(inbox.receiver, inbox.sender, accepted.astype(np.uint8))
        taken = shard.local(inbox.receiver[accepted])
        partner[taken] = inbox.sender[accepted]
        proposers = shard.local(answers.receiver)
        if not np.array_equal(proposers, asking) or not np.array_equal(answers.sender, chosen):
            raise ProtocolError("a proposal was not answered, or an answer was not asked for")
        happy = answers.body.astype(np.bool_)
        partner[proposers[happy]] = answers.sender[happy]
        free &= partner == NOBODY
    return partner


def _accepted(shard: Shard, receiver: Ints, free: Flags, chance: Doubles) -> Flags:
    """[proposals] for each free device one of those that it received, drawn by its coin.

    Args:
        receiver: [proposals] ids, not decreasing.
        free: [hosted]
        chance: [hosted] in (0, 1).
    """
    rows = shard.local(receiver)
    counts = np.bincount(rows, minlength=len(shard))
    first = np.cumsum(counts) - counts
    place = np.arange(len(rows)) - first[rows]
    chosen: Flags = free[rows] & (place == np.floor(chance[rows] * counts[rows]).astype(np.int64))
    return chosen
