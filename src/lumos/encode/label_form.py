"""How a label is written as one value, and how likely each value is at each level of noise.

    krr     the label itself: places = 1, base = k
    digits  one digit of the label in base b, at a place drawn at random: place · b + digit

Both are randomized response on one of b digits, at one of `places` places. The form does not depend
on ε, so draws of one label at several ε can be compared, and derived from one another.
"""

import math
from dataclasses import dataclass

import numpy as np

from lumos.encode.mechanisms import COIN, Digits, Mechanism, coins_of_other
from lumos.encode.number_bytes import number_width, read_numbers, write_numbers
from lumos.errors import UsageError
from lumos.typing import Bytes, Doubles, Flags, Ints


@dataclass(frozen=True)
class LabelForm:
    """The values that stand for a label of k classes: place · b + digit, below `alphabet`.

    Levels of noise are written as ε; ε = ∞ is the true digit, at a random place.
    """

    size: int
    """k, the number of classes."""
    places: int
    """Number of digits of a class's number; 1 for krr."""
    base: int
    """b, the number of values of a digit; k for krr."""

    @staticmethod
    def of(mechanism: Mechanism) -> "LabelForm":
        """Return the form in which a mechanism releases a symbol."""
        if isinstance(mechanism, Digits):
            return LabelForm(mechanism.size, mechanism.places, mechanism.base)
        return LabelForm(mechanism.size, 1, mechanism.size)

    @property
    def name(self) -> str:
        """The form as text, e.g. `krr 4` or `digits 100 2x10`."""
        if self.places == 1:
            return f"krr {self.size}"
        return f"digits {self.size} {self.places}x{self.base}"

    @property
    def alphabet(self) -> int:
        """Number of values: every digit at every place."""
        return self.places * self.base

    @property
    def width(self) -> int:
        """Bytes of one message."""
        return number_width(self.alphabet)

    def messages(self, values: Ints) -> Bytes:
        """[devices, width] the bytes of each value, as the mechanism would have written them."""
        return write_numbers(values, self.width)

    def values(self, messages: Bytes) -> Ints:
        """[devices] the value that each message names.

        Raises:
            ProtocolError: a message names none.
        """
        return read_numbers(messages, self.alphabet)

    def at(self, labels: Ints, places: Ints) -> Ints:
        """[devices] the values without noise: the true digits at these places."""
        return places * self.base + self._digits(labels, places)

    def agrees(self, classes: Ints, values: Ints) -> Flags:
        """Whether a class has the digit that a value names; shapes broadcast.

        R[c, s] has two values in each column s: the larger one where c agrees with s.
        """
        return np.equal(self._digits(classes, values // self.base), values % self.base)

    def other(self, epsilon: float) -> int:
        """q · 2^32 of a digit: whole coins, the mechanism's own; 0 for ε = ∞.

        Raises:
            UsageError: ε is not above 0, or too small for coins of 32 bits.
        """
        if not epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0, got {epsilon}")
        if math.isinf(epsilon):
            return 0
        other = coins_of_other(epsilon, self.base - 1)
        if self.base * other >= COIN:
            raise UsageError(
                f"`epsilon={epsilon:g}` for {self.base:,} values is too little for coins of 32 bits"
            )
        return other

    def strength(self, epsilon: float) -> float:
        """r = p - q = 1 - b·q of a digit; 1 for ε = ∞."""
        return 1 - self.base * self.other(epsilon) / COIN

    def table(self, epsilon: float) -> Doubles:
        """[k, alphabet] R[y, s] = (q + r · [y agrees with s])/places: probability of s given y."""
        agrees = self.agrees(np.arange(self.size)[:, None], np.arange(self.alphabet))
        return (self.other(epsilon) / COIN + self.strength(epsilon) * agrees) / self.places

    def _digits(self, classes: Ints, places: Ints) -> Ints:
        return classes // self.base**places % self.base


def merged(form: LabelForm, epsilon: float, values: Ints, groups: Ints) -> tuple[Ints, Doubles]:
    """Draws and their table after classes were merged by a public map; costs no further ε.

    R'[c', s'] = |s'|·q + [c' = s']·(p - q), where |s'| counts the classes that s' was merged from.

    Args:
        values: [devices] draws of labels, at this ε.
        groups: [k] the new class of each class, in 0 … k' - 1.

    Returns:
        [devices] the draws' new classes, and [k', k'] R'.

    Raises:
        UsageError: a draw is a digit: it stands for classes that are not merged together.
    """
    if form.places > 1:
        raise UsageError(
            "classes of labels drawn by digits cannot be merged; draw the merged labels anew"
        )
    if groups.shape != (form.size,) or groups.min() < 0:
        raise UsageError(f"groups must be {form.size} numbers, 0 or more")
    sizes = np.bincount(groups)
    table = np.tile(sizes * (form.other(epsilon) / COIN), (len(sizes), 1))
    return groups[values], table + form.strength(epsilon) * np.eye(len(sizes))
