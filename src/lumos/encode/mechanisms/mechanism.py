"""The base class of every mechanism: one symbol of k under ε-LDP.

A device releases one symbol once, the same to all receivers, so ε does not grow with their number
or their collusion. Coins are whole numbers below 2^32, and probabilities are whole numbers of
coins, rounded so that the ratio for any two symbols is at most e^ε exactly.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from lumos.errors import ProtocolError
from lumos.typing import Bytes, Doubles, Ints, Words

COIN = 1 << 32
"""Values of one coin, a uniform 32-bit word."""


@dataclass(frozen=True)
class Mechanism(ABC):
    """An ε-LDP mechanism for one of k symbols; a pure function of k, ε and coins.

    In the terms of Wang et al. (2017): a message *supports* some values, the true one with
    probability p and each other one with probability q < p.
    """

    size: int
    """k, at least 2."""
    epsilon: float
    """ε of one release, above 0 and finite."""

    name: ClassVar[str]
    """The name under which the mechanism is registered."""
    values: ClassVar[tuple[str, str]] = ("the true symbol", "each other symbol")
    """What p and q are probabilities of, for tables."""

    @property
    @abstractmethod
    def truth(self) -> int:
        """p · 2^32: coins that make a message support the true value."""

    @property
    @abstractmethod
    def other(self) -> int:
        """q · 2^32: coins that make a message support one particular other value."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Bytes of one message."""

    @property
    @abstractmethod
    def coins(self) -> int:
        """Words of private coins that one release takes."""

    @property
    def alphabet(self) -> int:
        """Columns of `read`; k unless the mechanism says otherwise."""
        return self.size

    @abstractmethod
    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] what leaves. The only method that sees a true symbol.

        Args:
            symbols: [devices] in 0 … k - 1.
            coins: [devices, `coins`] uniform words, private to each device.
        """

    def read(self, messages: Bytes) -> Doubles:
        """[messages, alphabet] 1 for each value that a message supports, 0 elsewhere.

        Raises:
            ProtocolError: `release` could not have written a message.
        """
        if messages.shape[1] != self.width:
            raise ProtocolError("a released symbol has the wrong length")
        return self.decode(messages)

    @abstractmethod
    def decode(self, messages: Bytes) -> Doubles:
        """`read`, once the length of the messages is checked."""

    def unbiased(self, support: Doubles) -> Doubles:
        """[messages, k] indicators whose mean is 1 at the true symbol and 0 elsewhere.

        (support - q)/(p - q), for what `read` returned.
        """
        truth, other = self.truth / COIN, self.other / COIN
        return (support - other) / (truth - other)

    def variance(self) -> float:
        """q(1 - q)/(p - q)²: of one unbiased indicator where the symbol is another one."""
        truth, other = self.truth / COIN, self.other / COIN
        return other * (1 - other) / (truth - other) ** 2

    @abstractmethod
    def information(self) -> float:
        """Mutual information of a message and a uniform symbol, in bits; 0 where p ≤ q."""

    def parameters(self) -> dict[str, int]:
        """What else the mechanism derives from k and ε, by name, for `lumos budget`."""
        return {}


def coins_of_other(epsilon: float, others: int = 1) -> int:
    """2^32/(e^ε + others), rounded up: the fewest coins that one other value may have."""
    share = COIN / (math.exp(min(epsilon, 700.0)) + others)
    return math.floor(share * (1 + 2.0**-48)) + 1  # above it, whatever floats have rounded
