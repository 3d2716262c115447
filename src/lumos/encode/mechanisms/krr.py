"""Randomized response: the symbol itself, or any other one with the same small probability."""

import math

import numpy as np

from lumos.encode.mechanisms.mechanism import COIN, Mechanism, coins_of_other
from lumos.encode.number_bytes import number_width, one_hot, write_numbers
from lumos.typing import Bytes, Doubles, Ints, Words


class RandomizedResponse(Mechanism):
    """The true symbol with p = e^ε/(e^ε + k - 1), each other one with q = 1/(e^ε + k - 1)."""

    name = "krr"

    @property
    def other(self) -> int:
        """q · 2^32."""
        return coins_of_other(self.epsilon, self.size - 1)

    @property
    def truth(self) -> int:
        """p · 2^32: all coins that no other symbol has."""
        return COIN - (self.size - 1) * self.other

    @property
    def width(self) -> int:
        """The symbol: one byte or two."""
        return number_width(self.alphabet)

    @property
    def coins(self) -> int:
        """One word decides."""
        return 1

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] a symbol of each."""
        return write_numbers(self.randomize(symbols, coins[:, 0]), self.width)

    def randomize(self, symbols: Ints, coins: Words) -> Ints:
        """[devices] the symbols that leave, for coins [devices]."""
        step = coins.astype(np.int64) // self.other  # which of the others, if any
        lies = step < self.size - 1
        return np.where(lies, (symbols + 1 + step) % self.size, symbols)

    def decode(self, messages: Bytes) -> Doubles:
        """[messages, k] 1 at the released symbol."""
        return one_hot(messages, self.alphabet)

    def information(self) -> float:
        """log2 k - H(message | symbol)."""
        if not self.other < self.truth:
            return 0.0
        return max(0.0, math.log2(self.size) - self.entropy())

    def entropy(self) -> float:
        """H(message | symbol), in bits."""
        truth, other = self.truth / COIN, self.other / COIN
        return -truth * math.log2(truth) - (self.size - 1) * other * math.log2(other)
