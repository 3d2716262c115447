"""Answers of secret comparisons: how much each device and each pair has revealed."""

import math
from collections import Counter

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.tally import Tally
from lumos.typing import Doubles, Ints

ANSWER_BITS = {2: 1.0, 3: math.log2(3)}
"""What one answer can reveal, by the number of possible answers."""


class AnswerCounts:
    """Answers that the devices of one shard learned and revealed.

    Args:
        shard: the hosted devices; None for the coordinator, which compares nothing.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        hosted, slots = (0, 0) if shard is None else (len(shard), len(shard.neighbours))
        self._of_device = {ways: Tally(hosted) for ways in ANSWER_BITS}
        self._of_slot = {ways: Tally(slots) for ways in ANSWER_BITS}
        self._of_strangers: dict[int, Counter[tuple[int, int]]] = {
            ways: Counter() for ways in ANSWER_BITS
        }

    def add(self, rows: Ints, slots: Ints, ways: int) -> None:
        """Count answers between neighbours. `rows`, `slots`: [answers]; `ways`: 2 or 3."""
        self._of_device[ways].add(rows)
        self._of_slot[ways].add(slots)

    def add_strangers(self, rows: Ints, peers: Ints, ways: int) -> None:
        """Count answers between devices that are no neighbours. `peers`: [answers] ids."""
        self._of_device[ways].add(rows)
        self._of_strangers[ways].update(zip(rows.tolist(), peers.tolist(), strict=True))

    def pair_bits(self, rows: Ints, slots: Ints, peers: Ints) -> Doubles:
        """[pairs] bits that each pair has revealed so far; slot -1 for a stranger."""
        bits = np.zeros(len(rows))
        for ways, tally in self._of_slot.items():
            if tally.size:
                bits += ANSWER_BITS[ways] * tally.counts()[slots]
        for index in np.flatnonzero(slots < 0).tolist():
            bits[index] = self._stranger_bits((int(rows[index]), int(peers[index])))
        return bits

    def totals(self) -> dict[int, int]:
        """Answers of all hosted devices, by the number of possible answers."""
        return {ways: int(tally.counts().sum()) for ways, tally in self._of_device.items()}

    def device_bits(self) -> Doubles:
        """[hosted] bits that each device has revealed, over all its peers."""
        bits = np.zeros(0 if self._shard is None else len(self._shard))
        for ways, tally in self._of_device.items():
            bits += tally.counts() * ANSWER_BITS[ways]
        return bits

    def pairs(self) -> tuple[Ints, Doubles]:
        """[pairs, 2] ids, the smaller first and hosted here, and [pairs] their bits."""
        shard = self._shard
        if shard is None:
            return np.empty((0, 2), np.int64), np.empty(0)
        slot_bits = np.zeros(len(shard.neighbours))
        for ways, tally in self._of_slot.items():
            slot_bits += ANSWER_BITS[ways] * tally.counts()
        device = shard.devices[shard.owner]
        # Each pair once, at the end with the smaller id.
        once = np.flatnonzero((device < shard.neighbours) & (slot_bits > 0))
        pairs = [np.stack([device[once], shard.neighbours[once]], axis=1)]
        bits = [slot_bits[once]]
        for row, peer in set().union(*self._of_strangers.values()):
            if shard.devices[row] < peer:
                pairs.append(np.array([[shard.devices[row], peer]]))
                bits.append(np.array([self._stranger_bits((row, peer))]))
        return np.concatenate(pairs), np.concatenate(bits)

    def _stranger_bits(self, pair: tuple[int, int]) -> float:
        counts = self._of_strangers
        return sum(ANSWER_BITS[ways] * count[pair] for ways, count in counts.items())
