"""The multi-bit mechanism (Sajadmanesh and Gatica-Perez 2021): m of d features, one bit of each.

A device draws m of its d features without replacement and releases one bit of each with ε/m; the
others are not sent. Which features are drawn does not depend on their values, so the release is
ε-LDP for the whole feature vector. The receiver rectifies:

    x'' = d/m · (b - a)/2 · (e^(ε/m) + 1)/(e^(ε/m) - 1) · x* + (a + b)/2,   x* in {-1, 0, +1}

which is unbiased: E[x''] = x. The one-bit mechanism is the case m = d.

`SharedEncoder` and `FiniteEncoder` are the bases of mechanisms of your own, for `encoder=` of the
paper profile: any mechanism, or m of d elements by a finite one whose ε is checked.
"""

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from lumos.device.randomness import PrivateRandomness
from lumos.errors import ProtocolError, UsageError
from lumos.ldp.bounds import Features, within
from lumos.ldp.one_bit import EncoderSettings, element_epsilon, recovery_scale, threshold
from lumos.ldp.wire import PART, Encoder, Messages
from lumos.typing import Bytes, Doubles, Floats, Ints, Words

PER_BIT = 2.18
"""ε at which one more bit is worth more than a surer one (Sajadmanesh and Gatica-Perez 2021,
Proposition 3.5)."""

_ROWS = 1 << 22  # randomness that are tossed at a time


def release(
    features: Features,
    epsilon: float,
    randomness: PrivateRandomness,
    *,
    low: float = 0.0,
    high: float = 1.0,
    sampled: int | None = None,
    step: int = 0,
) -> "csr_array[np.int8, tuple[int, int]]":
    """[devices, d] what leaves: +1 or -1 at the m features that each device drew, 0 elsewhere.

    The ratio of probabilities of any release, for any two feature vectors, is at most e^ε exactly.

    Args:
        features: [devices, d] dense or CSR, between `low` and `high`.
        epsilon: ε of the whole vector, finite.
        randomness: private randomness of these devices, in the same order.
        sampled: m; by default that of `sampled_features`. d gives the one-bit mechanism.
        step: number of this release: each has randomness of its own.
    """
    devices, width = features.shape
    if not 0 < epsilon < math.inf:
        raise UsageError(f"`epsilon` must be above 0 and finite, got {epsilon}")
    m = sampled_features(epsilon, width) if sampled is None else sampled
    if not 1 <= m <= width:
        raise UsageError(f"sampled: 1 … {width} features can be drawn, got {m}")
    within(features, low, high)
    each = float(element_epsilon(epsilon, np.array([m]))[0])
    indices = np.empty((devices, m), np.int32)
    signs = np.empty((devices, m), np.int8)
    batch = max(1, _ROWS // m)
    for start in range(0, devices, batch):
        rows = np.arange(start, min(start + batch, devices))
        columns = _drawn(randomness, rows, step, m, width)
        values = _at(features, rows, columns).astype(np.float64)
        coin = randomness.words(rows, "multi-bit", step, m)
        ones = coin < threshold(values, each, low, high)
        indices[rows], signs[rows] = columns, np.where(ones, 1, -1)
    offsets = np.arange(devices + 1, dtype=np.int64) * m
    return csr_array((signs.ravel(), indices.ravel(), offsets), shape=(devices, width))


def rectify_scale(
    epsilon: float, width: int, low: float, high: float, sampled: int | None = None
) -> float:
    """d/m · (b - a)/2 · (e^(ε/m) + 1)/(e^(ε/m) - 1): what ±1 stands for, from the midpoint."""
    m = sampled_features(epsilon, width) if sampled is None else sampled
    return width / m * float(recovery_scale(epsilon / m, low, high))


def _drawn(randomness: PrivateRandomness, rows: Ints, step: int, m: int, width: int) -> Ints:
    """[rows, m] distinct features of each device, ascending: every set is equally likely."""
    if m == width:
        return np.broadcast_to(np.arange(width), (len(rows), width))
    chance = randomness.uniform(rows, "multi-bit features", step, m)
    draws = np.floor(chance * draw_bounds(width, m)).astype(np.int64)
    return np.sort(distinct_columns(draws, width), axis=1)


def _at(features: Features, rows: Ints, columns: Ints) -> Floats:
    """[rows, m] the features of each row at its columns."""
    here = features[rows]
    if not issparse(here):
        return np.take_along_axis(np.asarray(here), columns, axis=1)
    matrix = csr_array(here)
    if columns.shape[1] == matrix.shape[1]:
        return np.asarray(matrix.toarray())
    local = np.repeat(np.arange(len(rows)), columns.shape[1])
    chosen: Any = matrix[local, columns.ravel()]  # an array, or a sparse one: scipy has had both
    dense = getattr(chosen, "toarray", lambda: chosen)()
    return np.asarray(dense).reshape(columns.shape)


# m of d coordinates without replacement.


def sampled_features(epsilon: float, width: int) -> int:
    """m = max(1, min(d, ⌊ε/2.18⌋)): the number of coordinates that keeps the variance least."""
    return max(1, min(width, math.floor(min(epsilon, PER_BIT * width) / PER_BIT)))


def draw_bounds(width: int, sampled: int) -> Ints:
    """[m] d - m + 1 … d: what each draw of `distinct_columns` must lie below."""
    return np.arange(width - sampled + 1, width + 1)


def distinct_columns(draws: Ints, width: int) -> Ints:
    """[rows, m] distinct columns below `width`: every set of m is equally likely.

    Robert Floyd's algorithm: for j = d - m … d - 1 draw t from 0 … j, and take j where t is taken.

    Args:
        draws: [rows, m] t, uniform below `draw_bounds(width, m)`.
        width: d.
    """
    sampled = draws.shape[1]
    chosen = np.empty(draws.shape, np.int64)
    for place, last in enumerate(range(width - sampled, width)):
        taken = (chosen[:, :place] == draws[:, place, None]).any(axis=1)
        chosen[:, place] = np.where(taken, last, draws[:, place])
    return chosen


# Mechanisms of your own: one release of a device, the same to all receivers.

MAX_TABLE = 1 << 22
"""Most entries of the table of a finite mechanism."""


class SharedEncoder(Encoder):
    """Base of any mechanism; its ε is what it declares, and nobody checks it.

    Features are mapped to [0, 1] by the public bounds before `release`, and back after `recover`.
    """

    @abstractmethod
    def size(self, width: int, epsilon: float) -> int:
        """Bytes of one message about d features."""

    @abstractmethod
    def words(self, width: int, epsilon: float) -> int:
        """Words of private randomness that one release takes."""

    @abstractmethod
    def release(self, features: Doubles, words: Words, epsilon: float) -> Bytes:
        """[devices, size] what leaves, under ε-LDP for the whole vector.

        Args:
            features: [devices, d] in [0, 1].
            words: [devices, words] uniform 32-bit words, private to each device.
        """

    @abstractmethod
    def recover(self, messages: Bytes, width: int, epsilon: float) -> Any:
        """[messages, d] estimates of x - 1/2, dense or CSR; 0 where nothing is known."""

    def rounds(self, width: int, settings: EncoderSettings) -> int:
        """As many as `size` needs."""
        return max(1, -(-self.size(width, settings.epsilon) // PART))

    def encode(
        self,
        features: Features,
        receivers: Ints,
        settings: EncoderSettings,
        randomness: PrivateRandomness,
        step: int,
    ) -> tuple[Messages, Doubles]:
        """One release of each device that has receivers, repeated for each of them."""
        width, epsilon = features.shape[1], settings.epsilon
        within(features, settings.low, settings.high)
        size, count = self.size(width, epsilon), self.words(width, epsilon)
        senders = np.flatnonzero(receivers > 0)
        released = np.empty((len(senders), size), np.uint8)
        batch = max(1, _ROWS // max(width, count, 1))
        for start in range(0, len(senders), batch):
            some = senders[start : start + batch]
            here = features[some]
            dense = np.asarray(here.toarray() if issparse(here) else here, np.float64)
            unit = (dense - settings.low) / (settings.high - settings.low)
            words = randomness.words(some, "encoder", step, count)
            released[start : start + batch] = self.release(unit, words, epsilon)
        repeated = np.repeat(released, receivers[senders], axis=0)
        offsets = np.arange(len(repeated) + 1, dtype=np.int64) * size
        return Messages(offsets=offsets, data=repeated.ravel()), np.full(len(repeated), epsilon)

    def decode(self, messages: Messages, width: int, settings: EncoderSettings) -> Any:
        """The estimates of `recover` between the public bounds, less the midpoint."""
        size, span = self.size(width, settings.epsilon), settings.high - settings.low
        if (messages.lengths != size).any():
            raise ProtocolError(f"a release of features is not {size} bytes")
        found = self.recover(messages.data.reshape(-1, size), width, settings.epsilon)
        rows: Any = found if issparse(found) else np.asarray(found)
        return (rows * span).astype(np.float32)


class FiniteEncoder(SharedEncoder):
    """Base of mechanisms that release m of d elements, each by a finite mechanism with ε/m.

    `table` is the whole mechanism of an element: the output for each of `levels` values and each of
    `seeds` equally likely random numbers. Its ε is checked by enumeration when it is first used,
    and releases are read from the same table.
    """

    checked = True
    levels: int = 2
    """Values to which an element is rounded: 0, 1/(levels - 1), …, 1."""
    outputs: int = 2
    """Values that are released, at most 256."""
    seeds: int = 1 << 16
    """Equally likely random numbers; a power of two."""

    @abstractmethod
    def table(self, epsilon: float) -> Ints:
        """[levels, seeds] the output for each value and random number, under ε of one element."""

    def elements(self, width: int, epsilon: float) -> int:
        """m, the number of elements that a device releases."""
        return sampled_features(epsilon, width)

    def counts(self, epsilon: float) -> Ints:
        """[levels, outputs] random numbers of each output: its probability, times `seeds`.

        Raises:
            UsageError: the table is none.
        """
        table, name = self._table(epsilon), type(self).__name__
        shape = (self.levels, self.seeds)
        if self.seeds & (self.seeds - 1) or not 2 <= self.outputs <= 256 or self.levels < 2:
            raise UsageError(
                f"encoder {name}: `seeds` must be a power of two, `outputs` 2 to 256, and `levels` "
                "2 or more"
            )
        if table.shape != shape or table.min() < 0 or table.max() >= self.outputs:
            raise UsageError(
                f"encoder {name}: its table must be {list(shape)} outputs below {self.outputs}"
            )
        rows = [np.bincount(row, minlength=self.outputs) for row in table]
        return np.stack(rows)

    def check(self, epsilon: float) -> float:
        """Return ε of one element by enumeration of all values and random numbers.

        Raises:
            UsageError: it is more than declared.
        """
        counts = self.counts(epsilon).astype(np.float64)
        used = counts[:, counts.any(axis=0)]
        with np.errstate(divide="ignore"):
            found = float((np.log(used.max(axis=0)) - np.log(used.min(axis=0))).max())
        if found > epsilon * (1 + 1e-12):
            raise UsageError(
                f"encoder {type(self).__name__}: declares ε = {epsilon:g} for one element, and "
                f"enumeration of {self.levels} values and {self.seeds:,} random numbers finds "
                f"{found:.4g}; correct its table"
            )
        return found

    def check_declared(self, width: int, settings: EncoderSettings) -> None:
        """Enumerate the mechanism of one element, with its share of ε."""
        self._checked(settings.epsilon / self.elements(width, settings.epsilon))

    def size(self, width: int, epsilon: float) -> int:
        """A number of 4 bytes and an output for each element."""
        return 5 * self.elements(width, epsilon)

    def words(self, width: int, epsilon: float) -> int:
        """One word for the place of each element, one for its random number."""
        return 2 * self.elements(width, epsilon)

    def release(self, features: Doubles, words: Words, epsilon: float) -> Bytes:
        """[devices, size] drawn from the checked table."""
        width = features.shape[1]
        m = self.elements(width, epsilon)
        table = self._checked(epsilon / m)
        draws = (words[:, :m].astype(np.uint64) * draw_bounds(width, m).astype(np.uint64)) >> 32
        place = np.sort(distinct_columns(draws.astype(np.int64), width), axis=1)
        level = np.rint(np.take_along_axis(features, place, axis=1) * (self.levels - 1))
        output = table[level.astype(np.int64), words[:, m:] & np.uint32(self.seeds - 1)]
        places = place.astype("<u4").view(np.uint8).reshape(len(place), 4 * m)
        return np.concatenate([places, output.astype(np.uint8)], axis=1)

    def recover(self, messages: Bytes, width: int, epsilon: float) -> Any:
        """[messages, d] estimates at the elements that came, 0 elsewhere."""
        m = self.elements(width, epsilon)
        place = np.ascontiguousarray(messages[:, : 4 * m]).view("<u4").astype(np.int64)
        output = messages[:, 4 * m :]
        rising = (np.diff(place, axis=1) > 0).all()
        if len(messages) and (place.max() >= width or output.max() >= self.outputs or not rising):
            raise ProtocolError("a release of features names an element or output that is none")
        values = self.estimates(epsilon / m)[output]
        offsets = np.arange(len(messages) + 1) * m
        return csr_array((values.ravel(), place.ravel(), offsets), shape=(len(messages), width))

    def estimates(self, epsilon: float) -> Doubles:
        """[outputs] estimates of x - 1/2: unbiased at every level, as far as least squares can."""
        chances = self.counts(epsilon) / self.seeds
        values = np.linspace(-0.5, 0.5, self.levels)
        return np.asarray(np.linalg.lstsq(chances, values, rcond=None)[0], np.float64)

    def _checked(self, epsilon: float) -> Ints:
        known: dict[float, Ints] = self.__dict__.setdefault("_tables", {})
        if epsilon not in known:
            self.check(epsilon)
            known[epsilon] = self._table(epsilon)
        return known[epsilon]

    def _table(self, epsilon: float) -> Ints:
        if self.levels * self.seeds > MAX_TABLE:
            raise UsageError(
                f"encoder {type(self).__name__}: {self.levels} values and {self.seeds:,} random "
                f"numbers are more than {MAX_TABLE:,} entries; use fewer, or a SharedEncoder"
            )
        return np.asarray(self.table(epsilon), np.int64)
