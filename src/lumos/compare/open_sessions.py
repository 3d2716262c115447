"""Which pairs have an open session. Both ends keep the same record, without a message."""

import numpy as np

from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.errors import BudgetExceeded
from lumos.exchange.ledger import Ledger
from lumos.exchange.revealed_bits import ANSWER_BITS
from lumos.session.pairs import ComparedPairs, count_answers
from lumos.typing import Flags


class Sessions:
    """Open sessions of the hosted devices, and what they may still reveal.

    Args:
        budget: most bits that the answers of one pair may reveal, or None.
        group: of the points that they send.
    """

    def __init__(self, shard: Shard, ledger: Ledger, budget: float | None, group: Group) -> None:
        self._ledger = ledger
        self._group = group.name
        self._budget = budget
        self._near = np.zeros(len(shard.neighbours), np.bool_)
        self._closed = len(shard.neighbours)  # neighbours without a session
        self._far: set[tuple[int, int]] = set()

    def open(self, pairs: ComparedPairs, bits: int, ways: int) -> Flags:
        """Open a session for each pair that has none; True where it was opened just now.

        Counts the answers that the pairs are about to learn, and raises `BudgetExceeded`,
        before anything is sent, if that were too many for one of them.
        """
        if len(pairs):
            self._ledger.lengths.add(bits)
            self._ledger.groups.add(self._group)
        self._reveal(pairs, ways)
        if pairs.near:
            if not self._closed:
                return np.zeros(len(pairs), np.bool_)
            fresh = ~self._near[pairs.slots]
            self._near[pairs.slots] = True
            self._closed -= int(fresh.sum())
            return fresh
        fresh = np.zeros(len(pairs), np.bool_)
        of_pairs = zip(pairs.rows.tolist(), pairs.peers.tolist(), pairs.slots.tolist(), strict=True)
        for index, (row, peer, slot) in enumerate(of_pairs):
            if slot >= 0:
                fresh[index] = not self._near[slot]
                self._closed -= int(fresh[index])
                self._near[slot] = True
            elif (row, peer) not in self._far:
                fresh[index] = True
                self._far.add((row, peer))
        return fresh

    def _reveal(self, pairs: ComparedPairs, ways: int) -> None:
        ledger = self._ledger
        if self._budget is not None and len(pairs):
            bits = ledger.pair_bits(pairs.rows, pairs.slots, pairs.peers) + ANSWER_BITS[ways]
            most = float(bits.max())
            if most > self._budget + 1e-9:
                # Who compares with whom is private: the pair is not named.
                raise BudgetExceeded(
                    f"two devices would reveal {most:.1f} comparison bits to each other; the "
                    f"budget is {self._budget:g}. Raise `comparison_budget` or use a balancer that "
                    "asks less"
                )
        count_answers(ledger, pairs, ways)
