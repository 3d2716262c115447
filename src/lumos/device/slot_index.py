"""Find slots by key in constant time: a hash table of integers, vectorised.

A binary search over hundreds of thousands of keys touches a cold cache line at every step, and
that is most of the time of the small requests of one step of a balancer. Here every key lies in
one of two places (cuckoo hashing), so that a look-up is one comparison, for a few keys two.
"""

import numpy as np

from lumos.typing import Ints

# Odd multipliers of two hash functions: 2^64 divided by the golden ratio, and a prime of xxHash.
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_PATIENCE = 100  # rounds until a larger table is tried; at most a third full, it takes about 20


class SlotIndex:
    """Positions of distinct keys that are not negative.

    Args:
        keys: [slots] the keys; the value of a key is its position.
    """

    def __init__(self, keys: Ints) -> None:
        self._keys = keys if len(keys) else np.array([-1])  # one that nobody looks for
        bits = max(4, (3 * len(keys)).bit_length())
        while not self._build(bits):
            bits += 1

    def _build(self, bits: int) -> bool:
        """Give every key one of its two places; False when that takes too long."""
        self._shift = np.uint64(64 - bits)
        table = np.full(1 << bits, -1, np.int64)
        places = np.stack([self._place(self._keys, which) for which in (0, 1)])
        which = np.zeros(len(self._keys), np.int64)
        waiting = np.arange(len(self._keys))
        for _ in range(_PATIENCE):
            if not len(waiting):
                break
            wanted = places[which[waiting], waiting]
            evicted = table[wanted]
            table[wanted] = waiting  # of several, one stays
            lost = waiting[table[wanted] != waiting]
            waiting = np.unique(np.concatenate([lost, evicted[evicted >= 0]]))
            which[waiting] ^= 1  # who has to go tries its other place
        # A free place names some slot: whoever looks there compares keys in any case.
        self._table = np.maximum(table, 0)
        return not len(waiting)

    def find(self, keys: Ints) -> Ints:
        """[keys] position of each key, or -1."""
        slots: Ints = self._table[self._place(keys, 0)]
        missed = (self._keys[slots] != keys).nonzero()[0]
        if missed.size:
            keys = keys[missed]
            other = self._table[self._place(keys, 1)]
            slots[missed] = np.where(self._keys[other] == keys, other, -1)
        return slots

    def _place(self, keys: Ints, which: int) -> Ints:
        place: Ints = ((keys.view(np.uint64) * _FACTORS[which]) >> self._shift).view(np.int64)
        return place
