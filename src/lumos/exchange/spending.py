"""ε that the devices of one shard spent, by receiver.

Most releases go to all neighbours of a device, at one ε: one number per device counts them. What
goes to some neighbours only is counted by slot, and what goes to strangers by pair.
"""

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.tally import nondecreasing
from lumos.typing import Arrays, Doubles, Ints

Spent = tuple[Ints, Ints, Doubles]
"""Positions of senders, ids of receivers, ε of each message."""


_MOST_PARTS = 256
"""Batches of messages to strangers that are kept before they are added up by pair."""


class Spending:
    """ε of every release, per hosted device and receiver.

    Args:
        shard: the hosted devices; None for the coordinator, which has no neighbours.
    """

    def __init__(self, shard: Shard | None) -> None:
        self._size = 1 if shard is None else len(shard)
        self._shard = shard
        # By whether a sender tells all its receivers the same.
        self._of_kind = {common: _PairTotals(shard) for common in (False, True)}

    def add(self, rows: Ints, receivers: Ints, epsilon: Doubles, *, common: bool) -> None:
        """Count the ε of messages. The sender may reuse its arrays.

        Args:
            rows: [messages] positions of the senders.
            receivers: [messages] ids.
            epsilon: [messages].
            common: whether each sender tells all its receivers the same.
        """
        self._of_kind[common].add(rows, receivers, epsilon)

    def state_dict(self) -> Arrays:
        """ε of every pair of sender and receiver, for a party that may be restarted."""
        names = ("rows", "receivers", "epsilon")
        return {
            f"{'common' if common else 'apart'}/{name}": np.array(column)
            for common, of_kind in self._of_kind.items()
            for name, column in zip(names, of_kind.pairs(), strict=True)
        }

    def load_state_dict(self, arrays: Arrays) -> None:
        """Go on from these."""
        for common in self._of_kind:
            kind = "common" if common else "apart"
            rows, receivers, epsilon = (
                arrays[f"{kind}/{name}"] for name in ("rows", "receivers", "epsilon")
            )
            spent = epsilon > 0
            if spent.any():
                self.add(rows[spent], receivers[spent], epsilon[spent], common=common)

    def totals(self) -> tuple[Doubles, Doubles]:
        """[hosted] largest ε that each device spent on one receiver, and on all together.

        A release that is common to all receivers counts once for all of them.
        """
        apart, common = self._of_kind[False], self._of_kind[True]
        if self._shard is not None and not apart.spent and common.alike is not None:
            most = np.where(self._shard.degree > 0, common.alike, 0.0)
            return most, most.copy()
        of_apart, of_common = apart.pairs(), common.pairs()
        largest, most, together = np.zeros((3, self._size))
        rows, _, spent = _added(of_apart, of_common)
        np.maximum.at(largest, rows, spent)
        np.maximum.at(most, of_common[0], of_common[2])
        np.add.at(together, of_apart[0], of_apart[2])
        return largest, together + most


class _PairTotals:
    """ε of each pair of sender and receiver, added up in the order of the messages."""

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._by_row: Doubles | None = None if shard is None else np.zeros(len(shard))
        """[hosted] ε spent on every neighbour alike; None once neighbours differ."""
        self._by_slot = np.empty(0)
        """[slots] ε spent on each neighbour, once they differ."""
        self._strangers: list[Spent] = []
        self.spent = False
        """Whether anything was."""

    @property
    def alike(self) -> Doubles | None:
        """[hosted] ε on every neighbour, where all have the same and no stranger has any."""
        return None if self._strangers else self._by_row

    def add(self, rows: Ints, receivers: Ints, epsilon: Doubles) -> None:
        self.spent = True
        shard = self._shard
        if shard is None:
            self._add_strangers((rows.copy(), receivers.copy(), epsilon.copy()))
            return
        if self._by_row is not None:
            counts = np.bincount(rows, minlength=len(shard))
            if _to_all_neighbours(shard, counts, rows, receivers, epsilon):
                senders = np.flatnonzero(counts)
                self._by_row[senders] += epsilon[(np.cumsum(counts) - counts)[senders]]
                return
            self._by_slot = np.repeat(self._by_row, shard.degree)
            self._by_row = None
        slots = shard.slots_or_none(rows, receivers)
        near = slots >= 0
        np.add.at(self._by_slot, slots[near], epsilon[near])
        if not near.all():
            self._add_strangers((rows[~near], receivers[~near], epsilon[~near]))

    def _add_strangers(self, spent: Spent) -> None:
        """Count ε by pair; now and then they are added up, in the same order."""
        self._strangers.append(spent)
        if len(self._strangers) > _MOST_PARTS:
            self._strangers = [_by_pair(self._strangers)]

    def pairs(self) -> Spent:
        """Every pair once, by sender and receiver; neighbours on whom nothing was spent have 0."""
        shard = self._shard
        if shard is None or not self.spent:
            return _by_pair(self._strangers)
        by_slot = self._by_slot
        if self._by_row is not None:
            by_slot = np.repeat(self._by_row, shard.degree)
        near = (shard.owner, shard.neighbours, by_slot)
        return _by_pair([near, *self._strangers]) if self._strangers else near


def _to_all_neighbours(
    shard: Shard, counts: Ints, rows: Ints, receivers: Ints, epsilon: Doubles
) -> bool:
    """Whether each sender tells all its neighbours, in the order of its slots, at one ε."""
    sending = counts > 0
    if not np.array_equal(counts[sending], shard.degree[sending]) or not nondecreasing(rows):
        return False
    everybody = len(rows) == len(shard.neighbours)
    neighbours = (
        shard.neighbours if everybody else shard.neighbours[np.repeat(sending, shard.degree)]
    )
    if not np.array_equal(receivers, neighbours):
        return False
    changes = (epsilon[1:] != epsilon[:-1]) & (rows[1:] == rows[:-1])
    return epsilon.strides[0] == 0 or not np.count_nonzero(changes)


def _added(one: Spent, other: Spent) -> Spent:
    """Both together, by pair."""
    if one[1] is other[1]:  # the neighbours of a shard
        return one[0], one[1], one[2] + other[2]
    return _by_pair([one, other])


def _by_pair(spent: list[Spent]) -> Spent:
    """ε of each pair of sender and receiver, added up."""
    if not spent:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    rows, receivers, epsilon = (np.concatenate(parts) for parts in zip(*spent, strict=True))
    pairs: Ints
    # The coordinator's id is -1.
    pairs, which = np.unique((rows << 32) + receivers + 1, return_inverse=True)
    totals = np.zeros(len(pairs))
    np.add.at(totals, which, epsilon)
    return pairs >> 32, (pairs & 0xFFFFFFFF) - 1, totals
