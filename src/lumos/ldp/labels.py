"""Labels as one released value: its form, and draws at several levels of noise.

    krr     the label itself: places = 1, base = k
    digits  one digit of the label in base b, at a place drawn at random: place · b + digit

Both are randomized response on one of b digits, at one of `places` places. The form does not depend
on ε, so draws of one label at several ε can be compared, and derived from one another.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lumos.device.randomness import PrivateRandomness
from lumos.errors import InputError, UsageError
from lumos.ldp.mechanisms import (
    COIN,
    Digits,
    Mechanism,
    number_width,
    randomness_of_other,
    read_numbers,
    write_numbers,
)
from lumos.typing import Bytes, Doubles, Flags, Ints, Words


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
        """Return the form in which a mechanism releases a label."""
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
        """Return whether a class has the digit that a value names; shapes broadcast.

        R[c, s] has two values in each column s: the larger one where c agrees with s.
        """
        return np.equal(self._digits(classes, values // self.base), values % self.base)

    def other(self, epsilon: float) -> int:
        """Return q · 2^32 of a digit, a whole number, as the mechanism has it; 0 for ε = ∞.

        Raises:
            UsageError: ε is not above 0, or too small for randomness of 32 bits.
        """
        if not epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0, got {epsilon}")
        if math.isinf(epsilon):
            return 0
        other = randomness_of_other(epsilon, self.base - 1)
        if self.base * other >= COIN:
            raise UsageError(
                f"`epsilon={epsilon:g}` for {self.base:,} values is too little for randomness of "
                f"32 bits"
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


# One label, several levels of noise, one guarantee: draws that form one Markov chain.
#
# A device draws its label ỹ once at each level ε that it is ever asked for, and keeps every draw.
# The draws form a chain, in whatever order the levels were asked for:
#
#     y → ỹ(ε_max) → … → ỹ(ε_min)
#
# A step from a level a to a lower one b keeps the digit with probability r(b)/r(a), r = p - q, and
# otherwise takes a uniform one. Each ỹ(ε) alone is then randomized response at ε. A place (of
# `digits`) is drawn once, independently of the label, and is the same at all levels. A new draw x
# between the next larger level (or the label) and the next smaller one has
#
#     P(x | above, below) ∝ K(above → x) · K(x → below)
#
# which is a first draw, a degradation, a refinement whose degradation the earlier draw is, or a
# level in between. What it must never be is an earlier random word with another threshold: where
# two such draws differ, the second one *is* the label (a test shows it).
#
# Guarantee: whoever sees all draws of a label, at all levels, in all runs, and chose the levels one
# after another from what was seen before, learns no more than from ỹ(ε_max). For any two labels the
# probabilities of everything seen differ by a factor of at most e^ε_max: pure ε_max. A changed
# label, another number of classes or another form is drawn independently, and its ε is added.
# *When* a label changed is not protected: two different draws at one level prove it. Adversary:
# everybody but the device itself, with any knowledge beside the device's secret randomness, which
# is the only assumption (see `lumos.device.randomness`).
#
# Exactness: probabilities are ratios of whole numbers, rounded to multiples of 2^-128. None that is
# above 0 is below 2^-64, so a draw that reads the label is off by a factor of at most 1 ± 2^-63.
# The probabilities of one level are rounded so that p/q ≤ e^ε/(1 + 2^-49) (`randomness_of_other`),
# which covers 2,048 increases of ε_max: up to there the bound e^ε_max holds exactly. Other draws do
# not read the label, so their rounding costs nothing.

WORDS = 8
"""Words of randomness that `draw` takes for each device: four decide the case, four the other
value."""
_WHOLE = 1 << 128
"""Values of four words together."""


def draw(
    form: LabelForm,
    epsilon: float,
    randomness: Words,
    *,
    above: Ints,
    above_epsilon: float = math.inf,
    below: Ints | None = None,
    below_epsilon: float = 0.0,
) -> Ints:
    """[devices] values at level ε, given those at the next larger and the next smaller level.

    Args:
        randomness: [devices, `WORDS`] uniform words, private to each device, used for nothing else.
        above: [devices] values of the next larger level; if there is none, `LabelForm.at`, the true
            digits, with ε = ∞.
        below: [devices] values of the next smaller level, if there is one.

    Raises:
        UsageError: `epsilon` is not between the two levels.
        InputError: values of two levels contradict each other.
    """
    if not below_epsilon < epsilon < above_epsilon:
        raise UsageError(
            f"`epsilon` must be between {below_epsilon:g} and {above_epsilon:g}, got {epsilon:g}"
        )
    base, digit = form.base, above % form.base
    # From the digit above to the one below, where they differ; b where they do not.
    distance = np.full(len(above), base)
    if below is not None:
        if (above // base != below // base).any():
            raise InputError("draws of a label at two levels name different places")
        apart = (below - above) % base
        distance[apart > 0] = apart[apart > 0]
    levels = (form, epsilon, above_epsilon, 0.0 if below is None else below_epsilon)
    keep, follow = np.zeros((2, len(above)), np.bool_)
    for differ in (False, True):
        these = np.flatnonzero((distance < base) == differ)
        if len(these):
            kept, followed, others = _weights(*levels, differ=differ)
            total = kept + followed + others
            if not total:
                raise InputError("draws of a label at two levels contradict each other")
            keep[these] = _under(randomness[these, :4], kept, total)
            follow[these] = _under(randomness[these, :4], kept + followed, total)
    step = 1 + _share(randomness[:, 4:8], np.where(distance < base, base - 2, base - 1))
    step += step >= distance  # neither the digit above nor the one below
    step = np.where(keep, 0, np.where(follow, distance, step))
    return above - digit + (digit + step) % base


def check_levels(form: LabelForm, epsilons: Sequence[float]) -> None:
    """Raise `UsageError` unless there are levels, and labels can be drawn at each."""
    if not epsilons:
        raise UsageError("labels are drawn at one level or more, got none")
    for epsilon in epsilons:
        if not 0 < epsilon < math.inf:
            raise UsageError(f"`epsilon` must be above 0 and finite, got {epsilon}")
        form.other(epsilon)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelDraws:
    """The labels of some devices, and their draws at all levels so far.

    A label is read only for a level above all earlier ones. Randomness has a name of its own for
    each level and each label that a device ever had, so none is used twice, whatever its secret.
    """

    form: LabelForm
    labels: Ints = field(repr=False)
    """[devices] true labels, 0 … k - 1."""
    randomness: PrivateRandomness
    rows: Ints = field(repr=False)
    """[devices] their rows in `randomness`."""
    changes: Ints = field(repr=False)
    """[devices] how many labels each had before this one."""
    levels: dict[float, Ints] = field(default_factory=dict, repr=False)
    """Earlier draws by ε: [devices] values, -1 where a device has none. `at` adds to it."""
    classes: str = ""
    """A text that names these classes among others of the same number, e.g. a digest of names."""

    @staticmethod
    def first(
        form: LabelForm, labels: Ints, randomness: PrivateRandomness, rows: Ints
    ) -> "LabelDraws":
        """Return the draws of devices that have drawn nothing yet."""
        return LabelDraws(
            form=form, labels=labels, randomness=randomness, rows=rows, changes=np.zeros_like(rows)
        )

    def __post_init__(self) -> None:
        if ((self.labels < 0) | (self.labels >= self.form.size)).any():
            raise UsageError(f"labels must be in 0 … {self.form.size - 1}")

    def at(self, *epsilons: float) -> Ints:
        """[levels, devices] the draws at these levels; those that are missing are made."""
        check_levels(self.form, epsilons)
        for epsilon in sorted(epsilons, reverse=True):
            self._complete(epsilon)
        return np.stack([self.levels[epsilon] for epsilon in epsilons])

    def has(self, *epsilons: float) -> bool:
        """Return whether all devices have drawn at these levels."""
        nothing = np.full(len(self.labels), -1)
        return all((self.levels.get(epsilon, nothing) >= 0).all() for epsilon in epsilons)

    def _complete(self, epsilon: float) -> None:
        drawn = self.levels.setdefault(epsilon, np.full(len(self.labels), -1))
        missing = np.flatnonzero(drawn < 0)
        if not len(missing):
            return
        randomness = self._words(missing, epsilon)
        limits = self._neighbours(epsilon)[missing]
        for larger, smaller in np.unique(limits, axis=0):
            here = np.flatnonzero((limits == (larger, smaller)).all(axis=1))
            devices, words = missing[here], randomness[here]
            below = self.levels[smaller][devices] if smaller else None
            if math.isinf(larger):
                place = (
                    below // self.form.base
                    if below is not None
                    else _share(words[:, WORDS:], np.array(self.form.places))
                )
                above = self.form.at(self.labels[devices], place)
            else:
                above = self.levels[larger][devices]
            drawn[devices] = draw(
                self.form,
                epsilon,
                words[:, :WORDS],
                above=above,
                above_epsilon=float(larger),
                below=below,
                below_epsilon=float(smaller),
            )

    def _neighbours(self, epsilon: float) -> Doubles:
        """[devices, 2] next larger and next smaller level of each device; ∞ and 0 for none."""
        limits = np.tile([math.inf, 0.0], (len(self.labels), 1))
        for level, values in self.levels.items():
            has = values >= 0
            if level > epsilon:
                limits[has, 0] = np.minimum(limits[has, 0], level)
            elif level < epsilon:
                limits[has, 1] = np.maximum(limits[has, 1], level)
        return limits

    def _words(self, devices: Ints, epsilon: float) -> Words:
        """[devices, `WORDS` + 4] randomness of one level; the last four choose a place."""
        purpose = f"label {self.form.name} {self.classes} {float(epsilon)!r}"
        randomness = np.empty((len(devices), WORDS + 4), np.uint32)
        for changes in np.unique(self.changes[devices]):
            here = np.flatnonzero(self.changes[devices] == changes)
            rows = self.rows[devices[here]]
            randomness[here] = self.randomness.words(rows, purpose, int(changes), WORDS + 4)
        return randomness


def _weights(
    form: LabelForm, epsilon: float, above: float, below: float, *, differ: bool
) -> tuple[int, int, int]:
    """Weights of: the digit above, the one below (where they differ), all others together.

    K(a → b) is r_a + (b - 1)·r_b where the digit stays and r_a - r_b for each other one, over
    b·r_a; r in randomness of 2^32. No level below is r = 0: a uniform digit, whatever x is.
    """
    base = form.base
    larger, own = COIN - base * form.other(above), COIN - base * form.other(epsilon)
    smaller = COIN - base * form.other(below) if below else 0
    own, smaller = min(own, larger), min(smaller, own, larger)
    stay, leave = larger + (base - 1) * own, larger - own
    then_stay, then_leave = own + (base - 1) * smaller, own - smaller
    if differ:
        return stay * then_leave, leave * then_stay, (base - 2) * leave * then_leave
    return stay * then_stay, 0, (base - 1) * leave * then_leave


def _under(randomness: Words, part: int, total: int) -> Flags:
    """[devices] true with probability part/total, rounded to a multiple of 2^-128."""
    limit = (2 * part * _WHOLE + total) // (2 * total)
    if not limit:
        return np.zeros(len(randomness), np.bool_)
    most = [np.uint64((limit - 1) >> 64), np.uint64((limit - 1) & 0xFFFF_FFFF_FFFF_FFFF)]
    words = randomness.astype(np.uint64)
    high, low = (words[:, place] << np.uint64(32) | words[:, place + 1] for place in (0, 2))
    under: Flags = (high < most[0]) | ((high == most[0]) & (low <= most[1]))
    return under


def _share(randomness: Words, many: Ints) -> Ints:
    """[devices] uniform numbers below `many`, at most 2^16: words · many / 2^128, rounded down."""
    carry = np.zeros(len(randomness), np.int64)
    for word in (3, 2, 1, 0):
        carry = (randomness[:, word].astype(np.int64) * many + carry) >> 32
    return carry
