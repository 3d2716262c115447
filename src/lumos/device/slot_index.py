"""Find slots by key in constant time: a hash table of integers, vectorised.

A binary search over hundreds of thousands of keys touches a cold cache line at every step, and
that is most of the time of the small requests of one step of a balancer. Here every key lies within
eight places of its home, one cache line, so that a look-up is one comparison of eight numbers.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio
_WINDOW = 8
_FREE = -1


class SlotIndex:
    """Positions of distinct keys that are not negative.

    Args:
        keys: [slots] the keys; the value of a key is its position.
    """

    def __init__(self, keys: Ints) -> None:
        bits = max(4, (4 * len(keys)).bit_length())
        while not self._build(keys, bits):
            bits += 1

    def _build(self, keys: Ints, bits: int) -> bool:
        """Place every key within the window behind its home; False when one does not fit."""
        self._shift = np.uint64(64 - bits)
        self._keys = np.full((1 << bits) + _WINDOW, _FREE, np.int64)
        self._slots = np.full(len(self._keys), _FREE, np.int32)
        waiting, places = np.arange(len(keys)), self._home(keys)
        for _ in range(_WINDOW):
            free = self._slots[places] == _FREE
            self._slots[places[free]] = waiting[free]  # of several, one stays
            won = self._slots[places] == waiting
            self._keys[places[won]] = keys[waiting[won]]
            waiting, places = waiting[~won], places[~won] + 1
        return not len(waiting)

    def find(self, keys: Ints) -> Ints:
        """[keys] position of each key, or -1."""
        home = self._home(keys)
        same = self._keys[home[:, None] + np.arange(_WINDOW)] == keys[:, None]
        place = same.argmax(axis=1)
        found: Ints = self._slots[home + place].astype(np.int64)
        found[~same[np.arange(len(keys)), place]] = -1
        return found

    def _home(self, keys: Ints) -> Ints:
        home: Ints = ((keys.view(np.uint64) * _GOLDEN) >> self._shift).view(np.int64)
        return home
