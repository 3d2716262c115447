"""The order of the ring: a permutation of the ids that is evaluated where it is asked.

A device needs 2 · h places of the ring and not all n. So the order of more than `TABLE` devices is
a keyed permutation: a Feistel network over Z_a × Z_b with a = ⌈√n⌉ and b = ⌈n / a⌉ (Black, Rogaway
2002, section 5), whose even rounds are L ← L + F(R) mod a and whose odd ones R ← R + F(L) mod b.
Each round has a table of its own, filled from the seed by ChaCha20: `ROUNDS` · √n numbers in all,
100 kB for a million devices. A result in a·b that is no id is put in again until it is one (their
cycle walking; fewer than one in √n are).

*What is assumed.* `lumos.aggregate.parameters` bounds events of the ring for a uniform order. The
colluders are chosen before the seed, and whether the event happened can be read from the place of
one device and the set of the colluders' places. So its probability grows at most by the advantage
with which somebody who sees these, and not the key, tells them from uniform ones. That this is
negligible beside 2^-security_bits is assumed for a network of `ROUNDS` rounds. It is no theorem at
this size (Patarin 2010 proves it for fewer questions than there are ids). The best distinguishers
known count pairs that agree in one half, and have an advantage of about √n^(2 - ROUNDS/2) (Patarin
2001): 2^-60 at `TABLE` devices, 2^-99 at a million. Attacks on short format-preserving encryption
(Hoang, Tessaro, Trieu 2018) use few rounds and many permutations; here are 24 rounds and at most
`DRAWS` of them. *Of the whole order it would be false*: where a and b are odd, every round is an
even permutation, and so are all orders of a · b ids. That is no help here. If two colluders change
places, an even order becomes an odd one and the set stays: a uniform even order has uniform sets.
Up to `TABLE` devices, where such networks are weakest, the order is a sorted table of 64-bit words
of ChaCha20: uniform, as far as that is.
"""

from functools import cached_property

import numpy as np

from lumos.crypto import chacha
from lumos.typing import Ints, Words

TABLE = 4096
"""Devices up to which the order is a table."""
ROUNDS = 24
"""Rounds of the network."""

_NONCE = bytes(12)  # a seed is used for one order
_ROWS = 1 << 16  # ids at a time: their halves stay in the cache


class RingOrder:
    """Which id stands where on the ring.

    Args:
        total: number of devices.
        seed: 32 bytes.
    """

    def __init__(self, total: int, seed: bytes) -> None:
        self.total = total
        self._seed = seed
        self._network = KeyedPermutation(total, seed) if total > TABLE else None

    @cached_property
    def ids(self) -> Ints:
        """[total] the ids along the ring: 8 bytes for each device of the federation."""
        if self._network is None:
            return sorted_order(self.total, self._seed)
        return self._network.forward(np.arange(self.total))

    @cached_property
    def places(self) -> Ints:
        """[total] the place of each id."""
        places = np.empty(self.total, np.int64)
        places[self.ids] = np.arange(self.total)
        return places

    def id_at(self, places: Ints) -> Ints:
        """The ids at places of the ring, in the shape of `places`."""
        if self._network is None or places.size >= self.total or "ids" in vars(self):
            return self.ids[places]
        return self._network.forward(places.ravel()).reshape(places.shape)

    def place_of(self, ids: Ints) -> Ints:
        """The places of ids on the ring, in the shape of `ids`."""
        if self._network is None or ids.size >= self.total or "places" in vars(self):
            return self.places[ids]
        return self._network.backward(ids.ravel()).reshape(ids.shape)


def sorted_order(total: int, seed: bytes) -> Ints:
    """[total] the ids in a uniform order: sorted by random words of 64 bits."""
    words = chacha.blocks(_key(seed), _NONCE, -(-total // 8))
    drawn = np.ascontiguousarray(words, "<u4").view("<u8").ravel()[:total]
    return np.argsort(drawn, kind="stable")


class KeyedPermutation:
    """The Feistel network on 0 … total - 1."""

    def __init__(self, total: int, seed: bytes) -> None:
        self._total = total
        self._left = max(1, int(np.ceil(np.sqrt(total))))
        self._right = -(-total // self._left)
        sizes = [self._right, self._left] * (ROUNDS // 2)  # by round: what F looks at
        words = chacha.blocks(_key(seed), _NONCE, -(-sum(sizes) // 8))
        drawn = np.ascontiguousarray(words, "<u4").view("<u8").ravel()
        # A word modulo a half is uniform but for 2^-48.
        moduli = np.array([self._left, self._right] * (ROUNDS // 2), np.uint64)
        ends = np.cumsum(sizes)
        self._tables: list[Ints] = [
            (drawn[end - size : end] % modulus).astype(np.int64)
            for end, size, modulus in zip(ends.tolist(), sizes, moduli, strict=True)
        ]

    def forward(self, values: Ints) -> Ints:
        """π of each value, [values]."""
        return self._walk(values, self._tables, sign=1)

    def backward(self, values: Ints) -> Ints:
        """π^-1 of each value, [values]."""
        return self._walk(values, self._tables[::-1], sign=-1)

    def _walk(self, values: Ints, tables: list[Ints], sign: int) -> Ints:
        found = np.empty(len(values), np.int64)
        for start in range(0, len(values), _ROWS):
            found[start : start + _ROWS] = self._once(values[start : start + _ROWS], tables, sign)
        while (outside := np.flatnonzero(found >= self._total)).size:
            found[outside] = self._once(found[outside], tables, sign)
        return found

    def _once(self, values: Ints, tables: list[Ints], sign: int) -> Ints:
        left, right = np.divmod(values, self._right)
        for number, table in enumerate(tables):
            changes_left = (number % 2 == 0) == (sign == 1)
            size = self._left if changes_left else self._right
            changed, shift = (left, table[right]) if changes_left else (right, table[left])
            # The sum lies within one modulus of the range: cheaper than a division.
            if sign == 1:
                changed += shift
                changed -= size * (changed >= size)
            else:
                changed -= shift
                changed += size * (changed < 0)
        return left * self._right + right


def _key(seed: bytes) -> Words:
    return np.frombuffer(seed, "<u4").astype(np.uint32)[None]
