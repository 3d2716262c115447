"""Answers of comparisons and scores: how much each device and each pair has revealed."""

import math
from collections import Counter

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.tally import Tally
from lumos.typing import Arrays, Doubles, Ints

ANSWER_BITS = {ways: math.log2(ways) for ways in range(2, 9)}
"""What one answer can reveal, by the number of possible answers."""


class AnswerCounts:
    """Answers that the devices of one shard learned and revealed.

    Args:
        shard: the hosted devices; None for the coordinator, which compares nothing.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._hosted, self._slots = (0, 0) if shard is None else (len(shard), len(shard.neighbours))
        # By the number of possible answers, made when the first such answer is counted.
        self._of_device: dict[int, Tally] = {}
        self._of_slot: dict[int, Tally] = {}
        self._of_strangers: dict[int, Counter[tuple[int, int]]] = {}

    def add(self, rows: Ints, slots: Ints, ways: int) -> None:
        """Count answers between neighbours. `rows`, `slots`: [answers]; `ways`: 2 to 8."""
        self._begin(ways)
        self._of_device[ways].add(rows)
        self._of_slot[ways].add(slots)

    def add_strangers(self, rows: Ints, peers: Ints, ways: int) -> None:
        """Count answers between devices that are no neighbours. `peers`: [answers] ids."""
        self._begin(ways)
        self._of_device[ways].add(rows)
        self._of_strangers[ways].update(zip(rows.tolist(), peers.tolist(), strict=True))

    def _begin(self, ways: int) -> None:
        if ways not in self._of_device:
            if ways not in ANSWER_BITS:
                raise ValueError(f"an answer is one of 2 to {max(ANSWER_BITS)}, not of {ways}")
            self._of_device[ways] = Tally(self._hosted)
            self._of_slot[ways] = Tally(self._slots)
            self._of_strangers[ways] = Counter()

    def state_dict(self) -> Arrays:
        """All counts, by the number of possible answers, for a party that may be restarted."""
        arrays: Arrays = {}
        for ways in self._of_device:
            met = [(*pair, count) for pair, count in sorted(self._of_strangers[ways].items())]
            arrays |= {
                f"{ways}/device": self._of_device[ways].counts(),
                f"{ways}/slot": self._of_slot[ways].counts(),
                f"{ways}/strangers": np.array(met, np.int64).reshape(-1, 3),
            }
        return arrays

    def load_state_dict(self, arrays: Arrays) -> None:
        """Go on from these counts."""
        for ways in sorted({int(name.split("/")[0]) for name in arrays}):
            self._begin(ways)
            for tally, kind in ((self._of_device, "device"), (self._of_slot, "slot")):
                counts = arrays[f"{ways}/{kind}"]
                tally[ways].add(np.repeat(np.arange(len(counts)), counts))
            for row, peer, count in arrays[f"{ways}/strangers"].tolist():
                self._of_strangers[ways][row, peer] += count

    def pair_bits(self, rows: Ints, slots: Ints, peers: Ints) -> Doubles:
        """[pairs] bits that each pair has revealed so far; slot -1 for a stranger."""
        bits = np.zeros(len(rows))
        for ways, tally in sorted(self._of_slot.items()):
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
        bits = np.zeros(self._hosted)
        for ways, tally in sorted(self._of_device.items()):
            bits += tally.counts() * ANSWER_BITS[ways]
        return bits

    def pairs(self) -> tuple[Ints, Doubles]:
        """[pairs, 2] ids, the smaller first and hosted here, and [pairs] their bits."""
        shard = self._shard
        if shard is None or not self._of_device:
            return np.empty((0, 2), np.int64), np.empty(0)
        slot_bits = np.zeros(self._slots)
        for ways, tally in sorted(self._of_slot.items()):
            slot_bits += ANSWER_BITS[ways] * tally.counts()
        device = shard.devices[shard.owner]
        # Each pair once, at the end with the smaller id.
        once = np.flatnonzero((device < shard.neighbours) & (slot_bits > 0))
        near = np.stack([device[once], shard.neighbours[once]], axis=1)
        of_shard = shard.devices.tolist()
        met: set[tuple[int, int]] = set().union(*self._of_strangers.values())
        strangers = [(row, peer) for row, peer in met if of_shard[row] < peer]
        far = np.array([(of_shard[row], peer) for row, peer in strangers], np.int64)
        far_bits = np.array([self._stranger_bits(pair) for pair in strangers])
        return np.concatenate([near, far.reshape(-1, 2)]), np.concatenate(
            [slot_bits[once], far_bits]
        )

    def _stranger_bits(self, pair: tuple[int, int]) -> float:
        counts = sorted(self._of_strangers.items())
        return sum(ANSWER_BITS[ways] * count[pair] for ways, count in counts)


def most_pair_bits(state: Arrays) -> float:
    """The most bits that one pair has revealed, by what `AnswerCounts.state` gave of a device."""
    slots, strangers = np.zeros(1), Counter[int]()
    for ways in sorted({int(name.split("/")[0]) for name in state}):
        slots = slots + ANSWER_BITS[ways] * state[f"{ways}/slot"]
        for _, peer, count in state[f"{ways}/strangers"].tolist():
            strangers[peer] += ANSWER_BITS[ways] * count
    return max(float(slots.max(initial=0.0)), max(strangers.values(), default=0.0))
