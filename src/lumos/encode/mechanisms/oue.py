"""Optimised unary encoding (Wang et al. 2017): a bit for every symbol."""

import math
from typing import ClassVar

import numpy as np

from lumos.encode.mechanisms.mechanism import COIN, Mechanism, coins_of_other
from lumos.typing import Bytes, Doubles, Ints, Words


class UnaryEncoding(Mechanism):
    """k bits: the symbol's own is 1 with p = 1/2, each other with q = 1/(e^ε + 1)."""

    name = "oue"
    values: ClassVar[tuple[str, str]] = ("the true symbol's bit", "each other bit")

    @property
    def other(self) -> int:
        """q · 2^32."""
        return coins_of_other(self.epsilon)

    @property
    def truth(self) -> int:
        """p · 2^32."""
        return COIN // 2

    @property
    def width(self) -> int:
        """A bit for every symbol."""
        return -(-self.size // 8)

    @property
    def coins(self) -> int:
        """One word for every bit."""
        return self.size

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] the bits, starting at the lowest of the first byte."""
        limit = np.full((len(symbols), self.size), self.other, np.int64)
        limit[np.arange(len(symbols)), symbols] = self.truth
        return np.packbits(coins.astype(np.int64) < limit, axis=1, bitorder="little")

    def decode(self, messages: Bytes) -> Doubles:
        """[messages, k] the bits."""
        bits = np.unpackbits(messages, axis=1, count=self.size, bitorder="little")
        return bits.astype(np.float64)

    def information(self) -> float:
        """Summed over the number of ones, with and without the symbol's own bit.

        Bits are independent given the symbol, so their number decides the likelihood.
        """
        if not self.other < self.truth:
            return 0.0
        truth, other, k = self.truth / COIN, self.other / COIN, self.size
        total = 0.0
        for ones in range(k + 1):
            with_truth = truth * _binomial(k - 1, ones - 1, other)
            without = (1 - truth) * _binomial(k - 1, ones, other)
            chance = with_truth + without
            if chance > 0 and 0 < ones < k:
                # Given `ones` bits, a symbol whose bit is set is likelier than one whose is not.
                for part, many in ((with_truth, ones), (without, k - ones)):
                    if part > 0:
                        total += part * math.log2(k * part / (chance * many))
        return max(0.0, total)


def _binomial(tries: int, hits: int, chance: float) -> float:
    """Probability of so many hits."""
    if not 0 <= hits <= tries:
        return 0.0
    log = math.lgamma(tries + 1) - math.lgamma(hits + 1) - math.lgamma(tries - hits + 1)
    return math.exp(log + hits * math.log(chance) + (tries - hits) * math.log1p(-chance))
