"""ε that the devices of one shard spent, by receiver."""

import numpy as np

from lumos.typing import Doubles, Ints

Spent = tuple[Ints, Ints, Doubles]
"""Positions of senders, ids of receivers, ε of each message."""


class Spending:
    """ε of every release, per hosted device and receiver.

    Args:
        size: number of hosted devices.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._spent: dict[bool, list[Spent]] = {False: [], True: []}

    def add(self, rows: Ints, receivers: Ints, epsilon: Doubles, *, common: bool) -> None:
        """Count the ε of messages. The arrays are copied: the sender may reuse its own.

        Args:
            rows: [messages] positions of the senders.
            receivers: [messages] ids.
            epsilon: [messages].
            common: whether each sender tells all its receivers the same.
        """
        self._spent[common].append((rows.copy(), receivers.copy(), epsilon.copy()))

    def totals(self) -> tuple[Doubles, Doubles]:
        """[hosted] largest ε that each device spent on one receiver, and on all together.

        A release that is common to all receivers counts once for all of them.
        """
        largest, together = np.zeros(self._size), np.zeros(self._size)
        by_kind = {common: _by_pair(spent) for common, spent in self._spent.items()}
        rows, _, spent = _by_pair(list(by_kind.values()))
        np.maximum.at(largest, rows, spent)
        for common, (rows, _, spent) in by_kind.items():
            if common:
                most = np.zeros(self._size)
                np.maximum.at(most, rows, spent)
                together += most
            else:
                np.add.at(together, rows, spent)
        return largest, together


def _by_pair(spent: list[Spent]) -> Spent:
    """ε of each pair of sender and receiver, added up."""
    if not spent:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    rows, receivers, epsilon = (np.concatenate(parts) for parts in zip(*spent, strict=True))
    pairs: Ints
    pairs, which = np.unique((rows << 32) + receivers, return_inverse=True)
    totals = np.zeros(len(pairs))
    np.add.at(totals, which, epsilon)
    return pairs >> 32, pairs & 0xFFFFFFFF, totals
