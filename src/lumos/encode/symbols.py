"""One symbol of k under ε-LDP: randomized response, optimised unary encoding, multi-bit.

Pure functions of ε, k and coins. A device releases one symbol once, the same to all receivers, so ε
does not grow with their number or their collusion. Which mechanism keeps more is a function of k
and ε alone (Wang et al. 2017): randomized response for k < 3e^ε + 2, unary encoding above.

    krr       the symbol itself with probability e^ε/(e^ε + k - 1), each other 1/(e^ε + k - 1)
    oue       k bits: the symbol's own is 1 with probability 1/2, each other with 1/(e^ε + 1)
    multibit  m of k coordinates of the one-hot symbol, drawn at random, and a bit of each with ε/m
              (`multi_bit`): for comparison, it never keeps more

Coins are whole numbers below 2^32, and probabilities are rounded so that the ratio for any two
symbols is at most e^ε exactly.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lumos.encode.multi_bit import sampled_features
from lumos.errors import ProtocolError, UsageError

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

Mechanism = Literal["krr", "oue", "multibit"]

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
        known: dict[str, Mechanism] = {"krr": "krr", "oue": "oue", "multibit": "multibit"}
        if mechanism not in ("auto", *known):
            raise UsageError(f"--mechanism must be auto, krr, oue or multibit, got {mechanism!r}")
        found = Symbols(size, epsilon, known.get(mechanism, best))
        if not found.other <= found.truth:
            raise UsageError(
                f"--epsilon {epsilon:g} for {size:,} symbols is too little for coins of 32 bits"
            )
        return found

    @property
    def sampled(self) -> int:
        """m, how many coordinates are told (multibit)."""
        return sampled_features(self.epsilon, self.size)

    @property
    def other(self) -> int:
        """How many of the 2^32 coins give one certain other symbol (krr), or another's bit."""
        rest = self.size - 1 if self.mechanism == "krr" else 1
        epsilon = self.epsilon / self.sampled if self.mechanism == "multibit" else self.epsilon
        return math.ceil(COIN / (math.exp(min(epsilon, 700.0)) + rest))

    @property
    def truth(self) -> int:
        """How many of the 2^32 coins give the true symbol (krr), or its bit."""
        if self.mechanism == "multibit":
            return COIN - self.other
        return COIN - (self.size - 1) * self.other if self.mechanism == "krr" else COIN // 2

    @property
    def alphabet(self) -> int:
        """Columns of what is read: a symbol or bit each; for multibit, yes and no for each."""
        return 2 * self.size if self.mechanism == "multibit" else self.size

    @property
    def width(self) -> int:
        """Bytes of one message: the symbol, or a bit for each letter of the alphabet."""
        if self.mechanism == "krr":
            return 1 if self.size <= 256 else 2
        return -(-self.alphabet // 8)

    @property
    def coins(self) -> int:
        """Words of private coins that one release takes."""
        return {"krr": 1, "oue": self.size, "multibit": 2 * self.sampled}[self.mechanism]

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
        if self.mechanism == "multibit":
            return self._some_bits(symbols, coins)
        limit = np.full((len(symbols), self.size), self.other, np.int64)
        limit[np.arange(len(symbols)), symbols] = self.truth
        return np.packbits(coins.astype(np.int64) < limit, axis=1, bitorder="little")

    def _some_bits(self, symbols: Ints, coins: Words) -> Bits:
        """Which coordinates are told does not depend on the symbol; each bit has ε/m."""
        m, k = self.sampled, self.size
        here = np.arange(len(symbols))
        said = np.zeros((len(symbols), 2, k), np.bool_)
        chosen = np.empty((len(symbols), m), np.int64)
        for place, last in enumerate(range(k - m, k)):  # Floyd's way, as in `multi_bit`
            drawn = (coins[:, place].astype(np.int64) * (last + 1)) >> 32
            taken = (chosen[:, :place] == drawn[:, None]).any(axis=1)
            chosen[:, place] = np.where(taken, last, drawn)
            column = chosen[:, place]
            limit = np.where(column == symbols, self.truth, self.other)
            yes = coins[:, m + place].astype(np.int64) < limit
            said[here, np.where(yes, 0, 1), column] = True
        return np.packbits(said.reshape(len(symbols), -1), axis=1, bitorder="little")

    def read(self, messages: Bits) -> Doubles:
        """[messages, alphabet] what was said: 1 for the symbol (krr) or for each set bit.

        Raises:
            ProtocolError: a message is no symbol.
        """
        if messages.shape[1] != self.width:
            raise ProtocolError("a released symbol has the wrong length")
        if self.mechanism != "krr":
            bits = np.unpackbits(messages, axis=1, count=self.alphabet, bitorder="little")
            if self.mechanism == "multibit":
                yes, no = bits[:, : self.size], bits[:, self.size :]
                if (bits.sum(axis=1) != self.sampled).any() or (yes & no).any():
                    raise ProtocolError("a released symbol does not tell as many bits as it should")
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
        if self.mechanism == "multibit":
            sign = said[:, : self.size] - said[:, self.size :]
            return self._scale * sign + 0.5
        return (said - other) / (truth - other)

    @property
    def _scale(self) -> float:
        """What ±1 stands for, from the midpoint (multibit)."""
        return self.size / self.sampled / 2 / (1 - 2 * self.other / COIN)

    def variance(self) -> float:
        """Variance of one unbiased indicator where the symbol is another one."""
        truth, other = self.truth / COIN, self.other / COIN
        if self.mechanism == "multibit":
            return self.sampled / self.size * self._scale**2 - 0.25
        return other * (1 - other) / (truth - other) ** 2

    def information(self) -> float:
        """Bits that one release tells of a symbol that is uniform before it."""
        truth, other, k = self.truth / COIN, self.other / COIN, self.size
        if self.mechanism == "krr":
            noise = -truth * math.log2(truth) - (k - 1) * other * math.log2(other)
            return max(0.0, math.log2(k) - noise)
        if self.mechanism == "multibit":
            return self._information_of_some_bits(truth, other)
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

    def _information_of_some_bits(self, truth: float, other: float) -> float:
        """The symbol is at a told bit that is set, at one that is not, or is not told at all."""
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
