"""LPGNN's multi-bit mechanism on the one-hot symbol: for comparison, it never keeps more bits.

`lumos.encode.multibit_features` is the same mechanism for whole feature vectors.
"""

import math
from typing import ClassVar

import numpy as np

from lumos.encode.mechanisms.mechanism import COIN, Mechanism, coins_of_other
from lumos.encode.sampling import distinct_columns, draw_bounds, sampled_features
from lumos.errors import ProtocolError
from lumos.typing import Bytes, Doubles, Ints, Words


class MultiBit(Mechanism):
    """m of k coordinates of the one-hot symbol, drawn at random, and a bit of each with ε/m."""

    name = "multibit"
    values: ClassVar[tuple[str, str]] = ("the true symbol's bit", "each other bit")

    @property
    def sampled(self) -> int:
        """m, the number of coordinates that are released."""
        return sampled_features(self.epsilon, self.size)

    @property
    def other(self) -> int:
        """q · 2^32 with q = 1/(e^(ε/m) + 1), for a coordinate that is released."""
        return coins_of_other(self.epsilon / self.sampled)

    @property
    def truth(self) -> int:
        """p · 2^32 with p = 1 - q, for a coordinate that is released."""
        return COIN - self.other

    @property
    def alphabet(self) -> int:
        """Yes for each coordinate, then no for each."""
        return 2 * self.size

    @property
    def width(self) -> int:
        """A bit for each column of `alphabet`."""
        return -(-self.alphabet // 8)

    @property
    def coins(self) -> int:
        """m words choose coordinates, m decide their bits."""
        return 2 * self.sampled

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] a bit set for each released coordinate: its yes, or its no."""
        m, k = self.sampled, self.size
        draws = (coins[:, :m].astype(np.int64) * draw_bounds(k, m)) >> 32
        columns = distinct_columns(draws, k)
        limit = np.where(columns == symbols[:, None], self.truth, self.other)
        yes = coins[:, m : 2 * m].astype(np.int64) < limit
        bits = np.zeros((len(symbols), 2, k), np.bool_)
        bits[np.arange(len(symbols))[:, None], np.where(yes, 0, 1), columns] = True
        return np.packbits(bits.reshape(len(symbols), 2 * k), axis=1, bitorder="little")

    def decode(self, messages: Bytes) -> Doubles:
        """[messages, 2k] the bits."""
        bits = np.unpackbits(messages, axis=1, count=self.alphabet, bitorder="little")
        yes, no = bits[:, : self.size], bits[:, self.size :]
        if (bits.sum(axis=1) != self.sampled).any() or (yes & no).any():
            raise ProtocolError("a released symbol does not tell as many bits as it should")
        return bits.astype(np.float64)

    @property
    def _scale(self) -> float:
        """What ±1 stands for, from the midpoint."""
        return self.size / self.sampled / 2 / (1 - 2 * self.other / COIN)

    def unbiased(self, support: Doubles) -> Doubles:
        """[messages, k] scale · (yes - no) + 1/2."""
        sign = support[:, : self.size] - support[:, self.size :]
        return self._scale * sign + 0.5

    def variance(self) -> float:
        """m/k · scale² - 1/4."""
        return self.sampled / self.size * self._scale**2 - 0.25

    def information(self) -> float:
        """Summed over the number of yes bits, for a symbol at a yes, at a no, or not released."""
        if not self.other < self.truth:
            return 0.0
        truth, other = self.truth / COIN, self.other / COIN
        m, k, total = self.sampled, self.size, 0.0
        for ones in range(m + 1):
            lies = other**ones * (1 - other) ** (m - ones)
            cases = (
                (ones, lies * truth / other),
                (m - ones, lies * (1 - truth) / (1 - other)),
                (k - m, lies),
            )
            chance = sum(many * part for many, part in cases) / k
            for many, part in cases:
                if many and part > 0:
                    total += math.comb(m, ones) * many / k * part * math.log2(part / chance)
        return max(0.0, total)
