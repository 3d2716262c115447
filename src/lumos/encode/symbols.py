"""One symbol of k under ε-LDP: randomized response, digits, optimised unary encoding, multi-bit.

Pure functions of ε, k and coins. A device releases one symbol once, the same to all receivers, so ε
does not grow with their number or their collusion. Which mechanism keeps more bits of a symbol is a
function of k and ε alone; `auto` takes krr, or digits where they keep more.

    krr       the symbol itself with probability e^ε/(e^ε + k - 1), each other 1/(e^ε + k - 1)
    digits    one digit of the symbol's number in base b, at a place drawn at random, by krr on b
              digits: for many symbols (Bassily and Smith 2015 hash them to few in the same spirit)
    oue       k bits: the symbol's own is 1 with probability 1/2, each other with 1/(e^ε + 1)
              (Wang et al. 2017)
    multibit  m of k coordinates of the one-hot symbol, drawn at random, and a bit of each with ε/m
              (`multi_bit`): for comparison, it never keeps more

Coins are whole numbers below 2^32, and probabilities are rounded so that the ratio for any two
symbols is at most e^ε exactly.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from lumos.encode.multi_bit import sampled_features
from lumos.errors import ProtocolError, UsageError
from lumos.typing import Bytes, Doubles, Ints, Words

Mechanism = Literal["krr", "digits", "oue", "multibit"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)

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
        if mechanism not in ("auto", *MECHANISMS):
            known = ", ".join(MECHANISMS)
            raise UsageError(f"--mechanism must be auto, {known}, got {mechanism!r}")
        named = [Symbols(size, epsilon, one) for one in MECHANISMS if one == mechanism]
        found = named[0] if named else _best(size, epsilon)
        if not found.other < found.truth:
            raise UsageError(
                f"--epsilon {epsilon:g} for {size:,} symbols is too little for coins of 32 bits"
            )
        return found

    @property
    def sampled(self) -> int:
        """m, how many coordinates are told (multibit)."""
        return sampled_features(self.epsilon, self.size)

    @cached_property
    def places(self) -> int:
        """How many digits a symbol has (digits): so many that a digit keeps most bits."""
        most = max(1, math.ceil(math.log2(self.size)))
        return max(range(1, most + 1), key=lambda places: _of_digits(self, places))

    @cached_property
    def base(self) -> int:
        """Number of values of what is randomized as one: symbols (krr), digits (digits)."""
        return _base(self.size, self.places) if self.mechanism == "digits" else self.size

    @property
    def single(self) -> bool:
        """Whether one of several values is told, not a set of bits."""
        return self.mechanism in ("krr", "digits")

    @property
    def other(self) -> int:
        """How many of the 2^32 coins give one certain other value (krr, digits), or bit."""
        rest = self.base - 1 if self.single else 1
        epsilon = self.epsilon / self.sampled if self.mechanism == "multibit" else self.epsilon
        share = COIN / (math.exp(min(epsilon, 700.0)) + rest)
        return math.floor(share * (1 + 2.0**-48)) + 1  # above it, whatever floats have rounded

    @property
    def truth(self) -> int:
        """How many of the 2^32 coins give the true value (krr, digits), or bit."""
        if self.mechanism == "multibit":
            return COIN - self.other
        return COIN - (self.base - 1) * self.other if self.single else COIN // 2

    @property
    def alphabet(self) -> int:
        """Columns of what is read: a symbol or bit each; for multibit, yes and no for each; for
        digits, every digit at every place."""
        if self.mechanism == "digits":
            return self.places * self.base
        return 2 * self.size if self.mechanism == "multibit" else self.size

    @property
    def width(self) -> int:
        """Bytes of one message: the symbol, or a bit for each letter of the alphabet."""
        if self.single:
            return 1 if self.alphabet <= 256 else 2
        return -(-self.alphabet // 8)

    @property
    def coins(self) -> int:
        """Words of private coins that one release takes."""
        many = {"krr": 1, "digits": 2, "oue": self.size, "multibit": 2 * self.sampled}
        return many[self.mechanism]

    def release(self, symbols: Ints, coins: Words) -> Bytes:
        """[devices, width] what leaves. The only function here that sees a true symbol.

        Args:
            symbols: [devices] in 0 … k - 1.
            coins: [devices, `coins`] uniform words, private to each device.
        """
        if self.mechanism == "krr":
            return _as_bytes(self._randomized(symbols, coins[:, 0]), self.width)
        if self.mechanism == "digits":
            # The place knows nothing of the symbol; given the place, the digit has all of ε.
            place = (coins[:, 0].astype(np.int64) * self.places) >> 32
            digit = self._randomized(symbols // self.base**place % self.base, coins[:, 1])
            return _as_bytes(place * self.base + digit, self.width)
        if self.mechanism == "multibit":
            return self._some_bits(symbols, coins)
        limit = np.full((len(symbols), self.size), self.other, np.int64)
        limit[np.arange(len(symbols)), symbols] = self.truth
        return np.packbits(coins.astype(np.int64) < limit, axis=1, bitorder="little")

    def _randomized(self, values: Ints, coins: Words) -> Ints:
        """Randomized response on one of `base` values."""
        step = coins.astype(np.int64) // self.other  # which of the others, if any
        lies = step < self.base - 1
        return np.where(lies, (values + 1 + step) % self.base, values)

    def _some_bits(self, symbols: Ints, coins: Words) -> Bytes:
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

    def read(self, messages: Bytes) -> Doubles:
        """[messages, alphabet] what was said: 1 for the symbol or digit, or for each set bit.

        Raises:
            ProtocolError: a message is no symbol.
        """
        if messages.shape[1] != self.width:
            raise ProtocolError("a released symbol has the wrong length")
        if not self.single:
            bits = np.unpackbits(messages, axis=1, count=self.alphabet, bitorder="little")
            if self.mechanism == "multibit":
                yes, no = bits[:, : self.size], bits[:, self.size :]
                if (bits.sum(axis=1) != self.sampled).any() or (yes & no).any():
                    raise ProtocolError("a released symbol does not tell as many bits as it should")
            return bits.astype(np.float64)
        said = _as_numbers(messages)
        if len(said) and said.max() >= self.alphabet:
            raise ProtocolError("a released symbol is out of range")
        ones = np.zeros((len(said), self.alphabet))
        ones[np.arange(len(said)), said] = 1
        return ones

    def unbiased(self, said: Doubles) -> Doubles:
        """[messages, k] indicators whose mean is 1 at the true symbol and 0 elsewhere.

        For digits [messages, alphabet]: 1 at the true digit of every place.
        """
        truth, other = self.truth / COIN, self.other / COIN
        if self.mechanism == "digits":
            told = said.reshape(len(said), self.places, self.base).sum(axis=2)
            lies = other * np.repeat(told, self.base, axis=1)
            return self.places * (said - lies) / (truth - other)
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
        return (
            (self.places if self.mechanism == "digits" else 1)
            * other
            * (1 - other)
            / (truth - other) ** 2
        )

    def information(self) -> float:
        """Bits that one release tells of a symbol that is uniform before it."""
        truth, other, k = self.truth / COIN, self.other / COIN, self.size
        if not other < truth:
            return 0.0
        if self.mechanism == "digits":
            return _of_digits(self, self.places)
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


def _base(size: int, places: int) -> int:
    """The least base in which `size` numbers have that many digits."""
    base = max(2, int(size ** (1 / places)))
    while base**places < size:
        base += 1
    return base


def _of_digits(symbols: Symbols, places: int) -> float:
    """Bits that a digit at a random place tells of a uniform symbol; digits need not be uniform."""
    base = _base(symbols.size, places)
    krr = Symbols(base, symbols.epsilon, "krr")
    truth, other = krr.truth / COIN, krr.other / COIN
    if not other < truth:  # coins of 32 bits cannot tell so many digits apart
        return 0.0
    noise = -truth * math.log2(truth) - (base - 1) * other * math.log2(other)
    total, numbers = 0.0, np.arange(symbols.size)
    for place in range(places):
        shares = np.bincount(numbers // base**place % base, minlength=base) / symbols.size
        said = other + (truth - other) * shares
        total += max(0.0, float(-(said * np.log2(said)).sum()) - noise)
    return total / places


BETTER = 1.05
"""So many times the bits, and digits are taken before whole symbols."""


def _best(size: int, epsilon: float) -> Symbols:
    """Of the two that tell one value, what keeps most bits: what it means is soon learnt.

    oue keeps at most 1.17 times as many for ε from 0.5 to 4 and k up to 400, and to learn what k
    bits mean to k classes takes k² numbers of a noisy sum.
    """
    krr, digits = Symbols(size, epsilon, "krr"), Symbols(size, epsilon, "digits")
    return digits if digits.information() > BETTER * krr.information() else krr


def _binomial(tries: int, hits: int, chance: float) -> float:
    if not 0 <= hits <= tries:
        return 0.0
    log = math.lgamma(tries + 1) - math.lgamma(hits + 1) - math.lgamma(tries - hits + 1)
    return math.exp(log + hits * math.log(chance) + (tries - hits) * math.log1p(-chance))


def _as_bytes(numbers: Ints, width: int) -> Bytes:
    return np.stack([(numbers >> (8 * place)) & 0xFF for place in range(width)], axis=1).astype(
        np.uint8
    )


def _as_numbers(messages: Bytes) -> Ints:
    total = np.zeros(len(messages), np.int64)
    for place in range(messages.shape[1]):
        total |= messages[:, place].astype(np.int64) << (8 * place)
    return total
