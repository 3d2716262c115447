"""Mechanisms that release one label of k under ε-LDP.

    krr     randomized response: the label itself, or any other one
    digits  randomized response on one digit of the label's number, at a random place

A device releases one label once, the same to all receivers, so ε does not grow with their number
or their collusion. Random words are whole numbers below 2^32, and probabilities are whole multiples
of 2^-32, rounded so that the ratio for any two labels is at most e^ε exactly.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from lumos.errors import ProtocolError, UsageError, one_of
from lumos.typing import Bytes, Doubles, Ints, Words

AUTO = "auto"
"""krr, or digits where they keep more bits."""
BETTER = 1.05
"""The multiple of the bits of krr from which `auto` takes digits."""
LARGEST = 1 << 16
"""Most labels: one of them fits two bytes."""
COIN = 1 << 32
"""Number of values of one random word of 32 bits."""


@dataclass(frozen=True)
class Mechanism(ABC):
    """An ε-LDP mechanism for one of k labels; a pure function of k, ε and randomness.

    In the terms of Wang et al. (2017): a message *supports* some values, the true one with
    probability p and each other one with probability q < p.
    """

    size: int
    """k, at least 2."""
    epsilon: float
    """ε of one release, above 0 and finite."""

    name: ClassVar[str]
    """As in `MECHANISMS`."""
    values: ClassVar[tuple[str, str]] = ("the true class", "each other class")
    """Names of the events with probabilities p and q, for tables."""

    @property
    @abstractmethod
    def truth(self) -> int:
        """p · 2^32: values of a word that make a message support the true value."""

    @property
    @abstractmethod
    def other(self) -> int:
        """q · 2^32: values of a word that make a message support one particular other value."""

    @property
    @abstractmethod
    def randomness(self) -> int:
        """Words of private randomness that one release takes."""

    @property
    def alphabet(self) -> int:
        """Columns of `read`; k unless the mechanism has others."""
        return self.size

    @property
    def width(self) -> int:
        """Bytes of one message: the number of a value, one byte or two."""
        return number_width(self.alphabet)

    @abstractmethod
    def release(self, labels: Ints, randomness: Words) -> Bytes:
        """[devices, width] what leaves. The only method that sees a true label.

        Args:
            labels: [devices] in 0 … k - 1.
            randomness: [devices, `randomness`] uniform words, private to each device.
        """

    def read(self, messages: Bytes) -> Doubles:
        """Return [messages, alphabet] 1 for the value that a message names, 0 elsewhere.

        Raises:
            ProtocolError: `release` could not have written a message.
        """
        if messages.shape[1] != self.width:
            raise ProtocolError("a released label has the wrong length")
        return one_hot(messages, self.alphabet)

    def unbiased(self, support: Doubles) -> Doubles:
        """[messages, k] indicators whose mean is 1 at the true label and 0 elsewhere.

        (support - q)/(p - q), for what `read` returned.
        """
        truth, other = self.truth / COIN, self.other / COIN
        return (support - other) / (truth - other)

    def variance(self) -> float:
        """q(1 - q)/(p - q)²: of one unbiased indicator where the label is another one."""
        truth, other = self.truth / COIN, self.other / COIN
        return other * (1 - other) / (truth - other) ** 2

    @abstractmethod
    def information(self) -> float:
        """Mutual information of a message and a uniform label, in bits; 0 where p ≤ q."""

    def parameters(self) -> dict[str, int]:
        """Return further numbers that follow from k and ε, by name, for `lumos budget`."""
        return {}


def randomness_of_other(epsilon: float, others: int = 1) -> int:
    """Return 2^32/(e^ε + others), rounded up: the fewest words that one other value may have."""
    share = COIN / (math.exp(min(epsilon, 700.0)) + others)
    return math.floor(share * (1 + 2.0**-48)) + 1  # above it, whatever floats have rounded


class RandomizedResponse(Mechanism):
    """The true label with p = e^ε/(e^ε + k - 1), each other one with q = 1/(e^ε + k - 1)."""

    name = "krr"

    @property
    def other(self) -> int:
        """q · 2^32."""
        return randomness_of_other(self.epsilon, self.size - 1)

    @property
    def truth(self) -> int:
        """p · 2^32: all words that no other label has."""
        return COIN - (self.size - 1) * self.other

    @property
    def randomness(self) -> int:
        """One word decides."""
        return 1

    def release(self, labels: Ints, randomness: Words) -> Bytes:
        """[devices, width] a label of each."""
        return write_numbers(self.randomize(labels, randomness[:, 0]), self.width)

    def randomize(self, labels: Ints, randomness: Words) -> Ints:
        """Return [devices] the labels that leave, for words [devices]."""
        step = randomness.astype(np.int64) // self.other  # which of the others, if any
        lies = step < self.size - 1
        return np.where(lies, (labels + 1 + step) % self.size, labels)

    def information(self) -> float:
        """log2 k - H(message | label)."""
        if not self.other < self.truth:
            return 0.0
        return max(0.0, math.log2(self.size) - self.entropy())

    def entropy(self) -> float:
        """H(message | label), in bits."""
        truth, other = self.truth / COIN, self.other / COIN
        return -truth * math.log2(truth) - (self.size - 1) * other * math.log2(other)


class Digits(Mechanism):
    """One digit of the label in base b, at a place drawn at random, by krr on b digits."""

    name = "digits"
    values: ClassVar[tuple[str, str]] = ("the true digit", "each other digit")

    @cached_property
    def places(self) -> int:
        """Number of digits of a label: the one with which a digit keeps most bits."""
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
    def randomness(self) -> int:
        """One word for the place, one for the digit."""
        return 2

    def release(self, labels: Ints, randomness: Words) -> Bytes:
        """[devices, width] place · b + digit; the place does not depend on the label."""
        place = (randomness[:, 0].astype(np.int64) * self.places) >> 32
        digit = self.digit.randomize(labels // self.base**place % self.base, randomness[:, 1])
        return write_numbers(place * self.base + digit, self.width)

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
        """Return the bits that a digit at a random place reveals of a uniform label."""
        return self._information_with(self.places)

    def _information_with(self, places: int) -> float:
        """`information` with that many digits; digits of a uniform label need not be uniform."""
        base = _base(self.size, places)
        digit = RandomizedResponse(base, self.epsilon)
        truth, other = digit.truth / COIN, digit.other / COIN
        if not other < truth:  # words of 32 bits cannot tell so many digits apart
            return 0.0
        noise = digit.entropy()
        total, numbers = 0.0, np.arange(self.size)
        for place in range(places):
            shares = np.bincount(numbers // base**place % base, minlength=base) / self.size
            released = other + (truth - other) * shares
            total += max(0.0, float(-(released * np.log2(released)).sum()) - noise)
        return total / places

    def parameters(self) -> dict[str, int]:
        """Return the number of digits of a label, and their base."""
        return {"places": self.places, "base": self.base}


def _base(size: int, places: int) -> int:
    base = max(2, int(size ** (1 / places)))
    while base**places < size:
        base += 1
    return base


MECHANISMS: dict[str, type[Mechanism]] = {"krr": RandomizedResponse, "digits": Digits}


def check_name(name: str) -> None:
    """Raise `UsageError` unless `name` is `auto` or that of a mechanism."""
    one_of("mechanism", name, (AUTO, *MECHANISMS))


def make_mechanism(size: int, epsilon: float, name: str = AUTO) -> Mechanism:
    """Return the mechanism of this name, or the one that keeps more of the signal.

    Args:
        size: k, the number of labels.
        epsilon: ε of one release.
        name: a name in `MECHANISMS`, or `auto`: a function of k and ε alone.

    Raises:
        UsageError: there is no such mechanism, or it cannot release one of k labels with this ε.
    """
    if size < 2:
        raise UsageError(f"a release needs at least 2 labels, got {size}")
    if size > LARGEST:
        raise UsageError(f"a release has at most {LARGEST:,} labels, got {size:,}")
    if not 0 < epsilon < float("inf"):
        raise UsageError(f"`epsilon` must be above 0 and finite, got {epsilon}")
    check_name(name)
    made = _best(size, epsilon) if name == AUTO else MECHANISMS[name](size, epsilon)
    if not made.other < made.truth:
        raise UsageError(
            f"`epsilon={epsilon:g}` for {size:,} labels is too little for randomness of 32 bits"
        )
    return made


def _best(size: int, epsilon: float) -> Mechanism:
    """Return the mechanism that keeps most bits."""
    krr, digits = RandomizedResponse(size, epsilon), Digits(size, epsilon)
    return digits if digits.information() > BETTER * krr.information() else krr


# Messages that carry one number below a public limit, little-endian in one byte or two.


def number_width(limit: int) -> int:
    """Bytes of a number below `limit`, which is at most 2^16."""
    return 1 if limit <= 256 else 2


def write_numbers(numbers: Ints, width: int) -> Bytes:
    """[messages, width] the bytes of each number."""
    columns = [(numbers >> (8 * place)) & 0xFF for place in range(width)]
    return np.stack(columns, axis=1).astype(np.uint8)


def read_numbers(messages: Bytes, limit: int) -> Ints:
    """[messages] the number that each message carries.

    Raises:
        ProtocolError: it is not below `limit`.
    """
    numbers = np.zeros(len(messages), np.int64)
    for place in range(messages.shape[1]):
        numbers |= messages[:, place].astype(np.int64) << (8 * place)
    if len(numbers) and numbers.max() >= limit:
        raise ProtocolError("a released label is out of range")
    return numbers


def one_hot(messages: Bytes, limit: int) -> Doubles:
    """[messages, limit] 1 in the column that each message names.

    Raises:
        ProtocolError: a message names none.
    """
    numbers = read_numbers(messages, limit)
    rows = np.zeros((len(numbers), limit))
    rows[np.arange(len(numbers)), numbers] = 1
    return rows
