"""One digit of the symbol's number: for many symbols and a small ε.

Bassily and Smith (2015) hash many symbols to few in the same spirit.
"""

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from lumos.encode.mechanisms.krr import RandomizedResponse
from lumos.encode.mechanisms.mechanism import COIN, Mechanism
from lumos.encode.number_bytes import number_width, one_hot, write_numbers
from lumos.typing import Bytes, Doubles, Ints, Words


class Digits(Mechanism):
    """One digit of the symbol in base b, at a place drawn at random, by krr on b digits."""

    name = "digits"
    values: ClassVar[tuple[str, str]] = ("the true digit", "each other digit")

    @cached_property
    def places(self) -> int:
        """Number of digits of a symbol: the one with which a digit keeps most bits."""
        most = max(1, math.ceil(math.log2(self.size)))
        return max(range(1, most + 1), key=self._information_with)

    @cached_property
    def base(self) -> int:
        """b, the least base in which k numbers have `places` digits."""
        return _base(self.size, self.places)

    @cached_property
    def digit(self) -> RandomizedResponse:
        """The mechanism of the one digit: it has all of ε."""
        return RandomizedResponse(self.base, self.epsilon)

    @property
    def other(self) -> int:
        """q · 2^32 of a digit, given its place."""
        return self.digit.other

    @property
    def truth(self) -> int:
        """p · 2^32 of a digit, given its place."""
        return self.digit.truth

    @property
    def alphabet(self) -> int:
        """Every digit at every place."""
        return self.places * self.base

    @property
    def width(self) -> int:
        """Place and digit as one number: one byte or two."""
        return number_width(self.alphabet)

    @property
    def coins(self) -> int:
        """One word for the place, one for the digit."""
        return 2

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] place · b + digit; the place does not depend on the symbol."""
        place = (coins[:, 0].astype(np.int64) * self.places) >> 32
        digit = self.digit.randomize(symbols // self.base**place % self.base, coins[:, 1])
        return write_numbers(place * self.base + digit, self.width)

    def decode(self, messages: Bytes) -> Doubles:
        """[messages, places · b] 1 at the released digit."""
        return one_hot(messages, self.alphabet)

    def unbiased(self, support: Doubles) -> Doubles:
        """[messages, places · b] indicators whose mean is 1 at the true digit of every place."""
        truth, other = self.truth / COIN, self.other / COIN
        place = support.reshape(len(support), self.places, self.base).sum(axis=2)
        lies = other * np.repeat(place, self.base, axis=1)
        return self.places * (support - lies) / (truth - other)

    def variance(self) -> float:
        """places · q(1 - q)/(p - q)²: a place comes up once in so many releases."""
        truth, other = self.truth / COIN, self.other / COIN
        return self.places * other * (1 - other) / (truth - other) ** 2

    def information(self) -> float:
        """Bits that a digit at a random place tells of a uniform symbol."""
        return self._information_with(self.places)

    def _information_with(self, places: int) -> float:
        """`information` with that many digits; digits of a uniform symbol need not be uniform."""
        base = _base(self.size, places)
        digit = RandomizedResponse(base, self.epsilon)
        truth, other = digit.truth / COIN, digit.other / COIN
        if not other < truth:  # coins of 32 bits cannot tell so many digits apart
            return 0.0
        noise = digit.entropy()
        total, numbers = 0.0, np.arange(self.size)
        for place in range(places):
            shares = np.bincount(numbers // base**place % base, minlength=base) / self.size
            released = other + (truth - other) * shares
            total += max(0.0, float(-(released * np.log2(released)).sum()) - noise)
        return total / places

    def parameters(self) -> dict[str, int]:
        """How a symbol is written."""
        return {"places": self.places, "base": self.base}


def _base(size: int, places: int) -> int:
    base = max(2, int(size ** (1 / places)))
    while base**places < size:
        base += 1
    return base
