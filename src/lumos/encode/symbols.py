"""One symbol of k under ε-LDP: k-ary randomized response and optimised unary encoding.

Pure functions of ε, k and coins. A device releases one symbol once, the same to all receivers, so ε
does not grow with their number or their collusion. Which mechanism keeps more is a function of k
and ε alone (Wang et al. 2017): randomized response for k < 3e^ε + 2, unary encoding above.

    krr    the symbol itself with probability e^ε/(e^ε + k - 1), each other with 1/(e^ε + k - 1)
    oue    k bits: the symbol's own is 1 with probability 1/2, each other with 1/(e^ε + 1)

Coins are whole numbers below 2^32, and probabilities are rounded so that the ratio for any two
symbols is at most e^ε exactly.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lumos.errors import ProtocolError, UsageError

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

Mechanism = Literal["krr", "oue"]

COIN = 1 << 32
LARGEST = 1 << 16
"""Most symbols: one of them fits two bytes."""


@dataclass(frozen=True)
class Symbols:
    """A mechanism for one of `size` symbols."""

    size: int
    """k, at least 2."""
    epsilon: float
    mechanism: Mechanism

    @staticmethod
    def of(size: int, epsilon: float, mechanism: str = "auto") -> "Symbols":
        """The mechanism that keeps more of the signal, or the one that is named."""
        if size < 2:
            raise UsageError(f"a release needs at least 2 symbols, got {size}")
        if size > LARGEST:
            raise UsageError(f"a release has at most {LARGEST:,} symbols, got {size:,}")
        if not 0 < epsilon < float("inf"):
            raise UsageError(f"--epsilon must be above 0 and finite, got {epsilon}")
        best: Mechanism = "krr" if size < 3 * math.exp(min(epsilon, 50.0)) + 2 else "oue"
        if mechanism not in ("auto", "krr", "oue"):
            raise UsageError(f"--mechanism must be auto, krr or oue, got {mechanism!r}")
        if mechanism != "auto":
            best = "krr" if mechanism == "krr" else "oue"
        found = Symbols(size, epsilon, best)
        if not found.other <= found.truth:
            raise UsageError(
                f"--epsilon {epsilon:g} for {size:,} symbols is too little for coins of 32 bits"
            )
        return found

    @property
    def other(self) -> int:
        """How many of the 2^32 coins give one certain other symbol (krr), or a bit (oue)."""
        rest = self.size - 1 if self.mechanism == "krr" else 1
        return math.ceil(COIN / (math.exp(min(self.epsilon, 700.0)) + rest))

    @property
    def truth(self) -> int:
        """How many of the 2^32 coins give the true symbol (krr), or its bit (oue)."""
        return COIN - (self.size - 1) * self.other if self.mechanism == "krr" else COIN // 2

    @property
    def width(self) -> int:
        """Bytes of one message: the symbol, or a bit for each."""
        return (1 if self.size <= 256 else 2) if self.mechanism == "krr" else -(-self.size // 8)

    @property
    def coins(self) -> int:
        """Words of private coins that one release takes."""
        return 1 if self.mechanism == "krr" else self.size

    def release(self, symbols: Ints, coins: Words) -> Bits:
        """[devices, width] what leaves. The only function here that sees a true symbol.

        Args:
            symbols: [devices] in 0 … k - 1.
            coins: [devices, `coins`] uniform words, private to each device.
        """
        if self.mechanism == "krr":
            coin = coins[:, 0].astype(np.int64)
            step = coin // self.other  # which of the others, if any
            lies = step < self.size - 1
            said = np.where(lies, (symbols + 1 + step) % self.size, symbols)
            return _as_bytes(said, self.width)
        limit = np.full((len(symbols), self.size), self.other, np.int64)
        limit[np.arange(len(symbols)), symbols] = self.truth
        return np.packbits(coins.astype(np.int64) < limit, axis=1, bitorder="little")

    def read(self, messages: Bits) -> Doubles:
        """[messages, k] what was said: 1 for the symbol (krr) or for each set bit (oue).

        Raises:
            ProtocolError: a message is no symbol.
        """
        if messages.shape[1] != self.width:
            raise ProtocolError("a released symbol has the wrong length")
        if self.mechanism == "oue":
            bits = np.unpackbits(messages, axis=1, count=self.size, bitorder="little")
            return bits.astype(np.float64)
        said = _as_numbers(messages)
        if len(said) and said.max() >= self.size:
            raise ProtocolError("a released symbol is out of range")
        ones = np.zeros((len(said), self.size))
        ones[np.arange(len(said)), said] = 1
        return ones

    def unbiased(self, said: Doubles) -> Doubles:
        """[messages, k] indicators whose mean is 1 at the true symbol and 0 elsewhere."""
        truth, other = self.truth / COIN, self.other / COIN
        return (said - other) / (truth - other)

    def variance(self) -> float:
        """Variance of one unbiased indicator where the symbol is another one."""
        truth, other = self.truth / COIN, self.other / COIN
        return other * (1 - other) / (truth - other) ** 2

    def information(self) -> float:
        """Bits that one release tells of a symbol that is uniform before it."""
        truth, other, k = self.truth / COIN, self.other / COIN, self.size
        if self.mechanism == "krr":
            noise = -truth * math.log2(truth) - (k - 1) * other * math.log2(other)
            return max(0.0, math.log2(k) - noise)
        # Bits are independent given the symbol; the number of ones decides, with or without its.
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
    if not 0 <= hits <= tries:
        return 0.0
    log = math.lgamma(tries + 1) - math.lgamma(hits + 1) - math.lgamma(tries - hits + 1)
    return math.exp(log + hits * math.log(chance) + (tries - hits) * math.log1p(-chance))


def _as_bytes(numbers: Ints, width: int) -> Bits:
    return np.stack([(numbers >> (8 * place)) & 0xFF for place in range(width)], axis=1).astype(
        np.uint8
    )


def _as_numbers(messages: Bits) -> Ints:
    total = np.zeros(len(messages), np.int64)
    for place in range(messages.shape[1]):
        total |= messages[:, place].astype(np.int64) << (8 * place)
    return total
