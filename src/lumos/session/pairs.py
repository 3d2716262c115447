"""Pairs of devices from the view of a shard, and the count of what they reveal to each other."""

from dataclasses import dataclass

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.ledger import Ledger
from lumos.typing import Flags, Ints


@dataclass(slots=True, eq=False, repr=False)  # who compares with whom is private
class ComparedPairs:
    """Pairs that compare or score, from the view of hosted devices.

    Sorted by (device, peer), no pair twice.

    Args:
        rows: [pairs] position of the hosted device.
        peers: [pairs] id of the peer.
        slots: [pairs] slot of the peer, or -1 where the peer is no neighbour.
        first: [pairs] True where the hosted device is S, the end with the smaller id.
        near: True when all peers are neighbours.
    """

    rows: Ints
    peers: Ints
    slots: Ints
    first: Flags
    near: bool

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def of_slots(shard: Shard, slots: Ints) -> "ComparedPairs":
        """Comparisons with neighbours; `slots` must be increasing."""
        rows = shard.owner[slots]
        peers = shard.neighbours[slots]
        return ComparedPairs(rows, peers, slots, shard.devices[rows] < peers, True)

    @staticmethod
    def of_ids(shard: Shard, devices: Ints, peers: Ints) -> "ComparedPairs":
        """Comparisons with anybody, for example between candidates; sorted by (device, peer)."""
        rows = shard.local(devices)
        slots = shard.slots_or_none(rows, peers)
        return ComparedPairs(rows, peers, slots, devices < peers, not np.count_nonzero(slots < 0))


def count_answers(ledger: Ledger, pairs: ComparedPairs, ways: int) -> None:
    """Count one answer of `ways` possible ones for each pair, to neighbours and strangers."""
    if pairs.near:
        ledger.answered(pairs.rows, pairs.slots, ways)
        return
    near = pairs.slots >= 0
    ledger.answered(pairs.rows[near], pairs.slots[near], ways)
    ledger.answered_strangers(pairs.rows[~near], pairs.peers[~near], ways)
