"""Strangers: devices that are neither oneself nor a neighbour, drawn with private coins."""

import numpy as np

from lumos.device.shard import Shard
from lumos.typing import Ints


class Strangers:
    """Draws devices that are neither oneself nor a neighbour, uniformly, with private coins."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._free = shard.total - 1 - shard.degree
        # The r-th stranger of a device is r plus the members m_0 < m_1 < … (neighbours and itself)
        # with m_i - i ≤ r. All devices are searched at once: keys rise from device to device.
        me = np.arange(len(shard))
        owner = np.concatenate([shard.owner, me])
        member = np.concatenate([shard.neighbours, shard.devices])
        order = np.lexsort((member, owner))
        owner, member = owner[order], member[order]
        self._start = shard.offsets[:-1] + me
        rank = np.arange(len(member)) - self._start[owner]
        self._keys = owner * shard.total + (member - rank)

    def draw(self, counts: Ints, purpose: str, step: int) -> tuple[Ints, Ints]:
        """For each hosted device so many strangers; none where there are none.

        Returns:
            positions of the devices, not decreasing, and ids of the strangers.
        """
        shard = self._shard
        counts = np.where(self._free > 0, counts, 0)
        chance = shard.coins.uniform_each(counts, purpose, step)
        rows = np.repeat(np.arange(len(shard)), counts)
        place = np.floor(chance * self._free[rows]).astype(np.int64)
        before = np.searchsorted(self._keys, rows * shard.total + place, side="right")
        return rows, place + before - self._start[rows]
