"""Which pairs have an open session: both ends know it, so neither has to be told."""

import numpy as np

from lumos.compare.rounds import Flags, Pairs
from lumos.device.shard import Shard


class Sessions:
    """Open sessions of the hosted devices."""

    def __init__(self, shard: Shard) -> None:
        self._near = np.zeros(len(shard.neighbours), np.bool_)
        self._far: set[tuple[int, int]] = set()

    def open(self, pairs: Pairs) -> Flags:
        """Open a session for each pair that has none; True where it was opened just now."""
        near = pairs.slots >= 0
        slots = pairs.slots[near]
        fresh = np.zeros(len(pairs), np.bool_)
        fresh[near] = ~self._near[slots]
        self._near[slots] = True
        for index in np.flatnonzero(~near).tolist():
            key = (int(pairs.rows[index]), int(pairs.peers[index]))
            fresh[index] = key not in self._far
            self._far.add(key)
        return fresh
