"""A mechanism as another package would write and register it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from lumos.encode.mechanisms import MECHANISMS
from lumos.encode.mechanisms import RandomizedResponse
from lumos.typing import Bytes, Ints, Words


class Loud(RandomizedResponse):
    """Randomized response in three bytes, of which the last two are 0."""

    name = "loud"

    @property
    def width(self) -> int:
        """Three."""
        return 3

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, 3] the symbol, and two bytes of 0."""
        messages = np.zeros((len(symbols), 3), np.uint8)
        messages[:, 0] = self.randomize(symbols, coins[:, 0])
        return messages


@contextmanager
def registered() -> Iterator[None]:
    """`loud` is a mechanism in this block."""
    MECHANISMS.register("loud", Loud)
    try:
        yield
    finally:
        MECHANISMS.remove("loud")
