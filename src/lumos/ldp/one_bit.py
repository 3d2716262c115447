"""The one-bit mechanism (section VI-A): its formulas, releases of a shard, and recovered features.

A device with d features and ρ receivers sends each element to exactly one of them. The largest bin
holds s = ⌈d/ρ⌉ elements, each is released with ε' = ε/s, so no receiver ever gets more than ε,
and all ρ together at most d·ε' ≤ ρ·ε. (The paper divides by the workload instead: errata 6.)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from lumos.device.randomness import PrivateRandomness
from lumos.errors import UsageError, one_of
from lumos.graph.arrays import spans
from lumos.ldp.bounds import Features, Sparse, within
from lumos.registry import Registry
from lumos.typing import Doubles, Flags, Floats, Ints, Words

if TYPE_CHECKING:
    from lumos.ldp.wire import Encoder

COIN = 2.0**32
"""Number of values of the random word that decides one bit."""
MIN_EPSILON = 2.0**-20
"""Least ε' of one element: below it, words of 32 bits would bias the recovery by over 1e-6."""


ONE_BIT = "one-bit"
ENCODERS: "Registry[Encoder]" = Registry("encoder", {ONE_BIT: "lumos.ldp.wire:ONE_BIT"})
"""Mechanisms that release features, by name."""


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """Settings of the release of a device's features to the devices that carry its leaf."""

    epsilon: float = 2.0
    """ε of one device towards one receiver; inf releases features without noise."""
    low: float = 0.0
    """a: public lower bound of every feature."""
    high: float = 1.0
    """b: public upper bound of every feature."""
    bins: bool = False
    """With ε = inf: still send each element to one receiver only, instead of all to all."""
    encoder: str = ONE_BIT
    """Mechanism that releases features. one-bit: the paper's; or the name of a registered one
    (`lumos.ldp.ENCODERS`)."""

    def __post_init__(self) -> None:
        one_of("encoder", self.encoder, ENCODERS.names())
        if self.encoder != ONE_BIT and not self.noisy:
            raise UsageError(f"`encoder={self.encoder!r}` needs a finite `epsilon`")
        if not self.epsilon > 0:
            raise UsageError(f"`epsilon` must be above 0 (or inf), got {self.epsilon}")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UsageError(f"bounds must be finite, low < high, got [{self.low}, {self.high}]")

    @property
    def noisy(self) -> bool:
        """True if there is noise: ε is finite."""
        return math.isfinite(self.epsilon)

    @property
    def midpoint(self) -> float:
        """(a + b)/2: what stands for an element that was not sent."""
        return (self.low + self.high) / 2


def largest_bin(width: int, receivers: Ints) -> Ints:
    """s = ⌈d/ρ⌉, and 0 where there is no receiver."""
    return np.where(receivers > 0, -(-width // np.maximum(receivers, 1)), 0)


def element_epsilon(epsilon: float, largest: Ints) -> Doubles:
    """ε' = ε/s.

    Raises:
        UsageError: ε is so small, or s so large, that 32-bit randomness cannot carry ε'.
    """
    each = epsilon / np.maximum(largest, 1)
    if (each < MIN_EPSILON).any():
        raise UsageError(
            f"`epsilon={epsilon}` over {int(largest.max())} elements is less than "
            f"{MIN_EPSILON:.0e} for one element, too little to carry anything"
        )
    return each


def message_epsilon(epsilon: float, count: Ints, largest: Ints) -> Doubles:
    """k·ε' for a bin of k elements, written ε·(k/s) so that rounding never exceeds ε."""
    if math.isinf(epsilon):
        return np.full(len(count), np.inf)
    return epsilon * (count / np.maximum(largest, 1))


def threshold(features: Doubles, each: Doubles | float, a: float, b: float) -> Doubles:
    """Return how many of the 2^32 values of a word give the bit 1: Pr(x' = 1)·2^32, a whole number.

    The least probability is rounded up and the greatest down, so the ratio of two probabilities
    is at most e^ε' exactly, not only up to rounding.
    """
    tilt = np.tanh(np.asarray(each) / 2)
    least = np.floor(COIN * (1 - tilt) / 2) + 1
    span = COIN - 2 * least
    ones: Doubles = least + np.rint((features - a) / (b - a) * span)
    return ones


def recovery_scale(each: Doubles | float, a: float, b: float) -> Doubles:
    """(b - a)/2 · (e^ε' + 1)/(e^ε' - 1): how far a recovered element is from (a + b)/2."""
    scale: Doubles = (b - a) / 2 / np.tanh(np.asarray(each, np.float64) / 2)
    return scale


# Equal bins: every element of a device goes to exactly one of its receivers.


def spread(words: Words, receivers: Ints) -> tuple[Ints, Ints]:
    """Spread d elements over ρ receivers at random, sizes equal to within one.

    The elements are put in random order and dealt in turn; a random receiver is the first.

    Args:
        words: [devices, d + 1] uniform 32-bit words from the sender's private randomness.
        receivers: [devices] ρ ≥ 1.

    Returns:
        [devices, d] elements by bin, increasing within a bin, and [Σρ] sizes of the bins, device
        by device.
    """
    devices, width = words.shape[0], words.shape[1] - 1
    elements = np.arange(width, dtype=np.uint64)
    # A key is a word and its element, so equal words sort alike on any machine.
    keys = (words[:, :width].astype(np.uint64) << np.uint64(32)) | elements
    keys.sort(axis=1)
    shuffled = keys & np.uint64(0xFFFFFFFF)
    first = words[:, width].astype(np.uint64) % receivers.astype(np.uint64)
    bin_of = (elements + first[:, None]) % receivers.astype(np.uint64)[:, None]
    keys = (bin_of << np.uint64(32)) | shuffled
    keys.sort(axis=1)
    by_bin = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)

    device = np.repeat(np.arange(devices), receivers)
    start = np.cumsum(receivers) - receivers
    turn = np.arange(len(device)) - start[device]
    # The bin that is dealt first, and those after it, get the elements that are left over.
    after_first = (turn - first.astype(np.int64)[device]) % receivers[device]
    sizes = width // receivers[device] + (after_first < width % receivers[device])
    return by_bin, sizes


# The releases of all devices of a shard, without one dense array of features.

Codes = npt.NDArray[np.int32]

_DEVICES_AT_ONCE = 48  # as many as OpenSSL serves with a long stream each; memory stays small
PURPOSE = "release"
"""Purpose of the private randomness: bins at step 2·step, bits at step 2·step + 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """Released elements of many messages, one after the other (CSR: one row is one message).

    With noise, an element j and its bit are one code: j where the bit is 1, d + j where it is 0.
    Without noise, a code is an element and `values` holds what it is.
    """

    width: int
    """d, the number of features."""
    offsets: Ints = field(repr=False)
    """[messages + 1]: message i holds codes[offsets[i] : offsets[i + 1]], increasing elements."""
    codes: Codes = field(repr=False)
    """[released] elements and their bits."""
    largest: Ints = field(repr=False)
    """[messages] s, the elements of the sender's largest bin: sent along, for ε' = ε/s."""
    values: Floats | None = field(default=None, repr=False)
    """[released] the values themselves, only without noise."""

    @property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.largest)

    @property
    def counts(self) -> Ints:
        """[messages] number of elements."""
        return np.diff(self.offsets)

    @property
    def elements(self) -> Codes:
        """[released] element numbers, 0 … d - 1."""
        return np.where(self.codes < self.width, self.codes, self.codes - np.int32(self.width))

    @property
    def bits(self) -> Flags:
        """[released] the released bits."""
        return self.codes < self.width

    def epsilon(self, settings: EncoderSettings) -> Doubles:
        """[messages] ε that each message spends, for the ledger."""
        return message_epsilon(settings.epsilon, self.counts, self.largest)

    def take(self, rows: Ints) -> "Released":
        """The messages at `rows`, in that order."""
        counts = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        here = np.repeat(self.offsets[:-1][rows] - offsets[:-1], counts)
        here += np.arange(offsets[-1])
        return Released(
            width=self.width,
            offsets=offsets,
            codes=self.codes[here],
            largest=self.largest[rows],
            values=None if self.values is None else self.values[here],
        )


def release(
    features: Features,
    receivers: Ints,
    settings: EncoderSettings,
    randomness: PrivateRandomness,
    *,
    step: int = 0,
) -> Released:
    """The releases of all devices of a shard: ρ(u) messages of device u, in device order.

    Device u's k-th message is for the k-th of its receivers in increasing order. What a device
    releases depends on its own features, ρ and randomness alone, so it is the same in any shard.
    O(Σ d log d) time over the devices that have receivers; memory 4 bytes for each element sent.

    Args:
        features: [devices, d] between the public bounds, dense or CSR.
        receivers: [devices] ρ, how many devices receive from each; one with ρ = 0 sends nothing.
        settings: ε and the bounds.
        randomness: private randomness of the devices of the shard, in the same order.
        step: number of this release; each has randomness of its own, and each spends ε again.
    """
    devices, width = features.shape
    if len(receivers) != devices or (receivers < 0).any():
        raise UsageError(f"receivers must be {devices} numbers, 0 or more")
    if width == 0:
        raise UsageError("features: there are none to release")
    within(features, settings.low, settings.high)
    if not settings.noisy and not settings.bins:
        return _whole(features, receivers)
    senders = np.flatnonzero(receivers > 0)
    rho = receivers[senders]
    codes = np.empty((len(senders), width), np.int32)
    values = None if settings.noisy else np.empty((len(senders), width), np.float32)
    sizes = [np.empty(0, np.int64)]
    for start, rows, dense in _dense_rows(features, senders):
        here = slice(start, start + len(rows))
        words = randomness.words(rows, PURPOSE, 2 * step, width + 1)
        by_bin, size = spread(words, rho[here])
        mine = np.take_along_axis(dense, by_bin, axis=1)
        if values is None:
            each = element_epsilon(settings.epsilon, largest_bin(width, rho[here]))
            ones = threshold(mine, each[:, None], settings.low, settings.high)
            coin = randomness.words(rows, PURPOSE, 2 * step + 1, width)
            by_bin += np.where(coin < ones, 0, width)
        else:
            values[here] = mine
        codes[here] = by_bin
        sizes.append(size)
    return Released(
        width=width,
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        codes=codes.reshape(-1),
        largest=np.repeat(largest_bin(width, rho), rho),
        values=None if values is None else values.reshape(-1),
    )


def _dense_rows(features: Features, rows: Ints) -> Iterator[tuple[int, Ints, Doubles]]:
    """Some rows at a time as a dense array, with their number among `rows`."""
    for start in range(0, len(rows), _DEVICES_AT_ONCE):
        some = rows[start : start + _DEVICES_AT_ONCE]
        block = features[some]
        yield start, some, np.asarray(block.toarray() if issparse(block) else block, np.float64)


def _whole(features: Features, receivers: Ints) -> Released:
    """Every feature to every receiver, without noise; zeros of sparse features stay unsaid."""
    devices, width = features.shape
    if issparse(features):
        matrix = csr_array(features)
        matrix.sort_indices()
    else:
        matrix = csr_array(
            (
                np.asarray(features, np.float32).reshape(-1),
                np.tile(np.arange(width, dtype=np.int32), devices),
                np.arange(devices + 1) * width,
            ),
            shape=(devices, width),
        )
    once = Released(
        width=width,
        offsets=matrix.indptr.astype(np.int64),
        codes=matrix.indices.astype(np.int32),
        largest=np.full(devices, width, np.int64),
        values=matrix.data.astype(np.float32),
    )
    return once.take(np.repeat(np.arange(devices), receivers))


# Unbiased features on the neighbour leaves, recovered from releases and kept sparse.

_ELEMENTS_AT_ONCE = 1 << 20
"""Elements of a block: the rows of its branches stay in a processor's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Elements:
    """Received elements of one sign, branch by branch (CSR)."""

    sign: float
    offsets: Ints = field(repr=False)
    """[branches + 1]"""
    numbers: Codes = field(repr=False)
    """[elements] 0 … d - 1."""
    values: Floats | None = field(repr=False)
    """[elements] what they are; without: 1."""

    @property
    def rows(self) -> Ints:
        """[elements] the branch of each."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def span(self, rows: slice) -> "Elements":
        """Those of the branches `rows.start` … `rows.stop - 1`, without copying them."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        here = slice(int(offsets[0]), int(offsets[-1]))
        return Elements(
            sign=self.sign,
            offsets=offsets - offsets[0],
            numbers=self.numbers[here],
            values=None if self.values is None else self.values[here],
        )

    def take(self, rows: Ints) -> "Elements":
        """Those of the branches `rows`."""
        counts = np.diff(self.offsets)[rows]
        here = spans(self.offsets[rows], counts)
        return Elements(
            sign=self.sign,
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            numbers=self.numbers[here],
            values=None if self.values is None else self.values[here],
        )


@dataclass(frozen=True, eq=False)
class Block:
    """Some branches and one sign, as a matrix."""

    rows: slice
    sign: float
    matrix: Sparse = field(repr=False)
    """[branches, d], sharing the arrays of its `Elements`."""
    alike: bool
    """True if all its values are 1; then all blocks share one array of them."""

    @cached_property
    def transposed(self) -> Sparse:
        """[d, branches] in rows of its own: 4 bytes for each element, kept for every backward pass.

        The product by columns of `matrix` would take three times as long.
        """
        columns = self.matrix.T.tocsr()
        if self.alike:
            columns.data = self.matrix.data
        return columns


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredFeatures:
    """x'' of many branches: `filler` everywhere, `filler` ± scale at the elements received.

    One row is one branch. Never a dense branches × features array: 4 bytes for each element.
    """

    width: int
    """d"""
    received: tuple[Elements, ...] = field(repr=False)
    """With noise those whose bit is 1 and those whose bit is 0; without noise all in one."""
    scale: Floats = field(repr=False)
    """[branches] (b - a)/2 · (e^ε' + 1)/(e^ε' - 1); 1 without noise."""
    filler: float
    """The value of an element that was not received: (a + b)/2, or 0 where all were."""

    @property
    def shape(self) -> tuple[int, int]:
        """(branches, d)."""
        return len(self.scale), self.width

    @property
    def elements(self) -> int:
        """Number of elements received."""
        return sum(len(some.numbers) for some in self.received)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Matrices S of some rows each, such that x'' W is filler · 1ᵀW + scale · Σ sign · S W.

        With noise S holds ones, without the values minus filler.
        """
        return tuple(block for some in self.received for block in self._blocks(some))

    def _blocks(self, some: Elements) -> Iterator[Block]:
        offsets, branches = some.offsets, len(some.offsets) - 1
        largest = int(np.diff(offsets).max(initial=0))
        ones = np.ones(min(len(some.numbers), _ELEMENTS_AT_ONCE + largest), np.float32)
        start = 0
        while start < branches:
            limit = offsets[start] + _ELEMENTS_AT_ONCE
            stop = max(start + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
            here = slice(int(offsets[start]), int(offsets[stop]))
            data = (
                ones[: here.stop - here.start]
                if some.values is None
                else some.values[here] - np.float32(self.filler)
            )
            pointers = (offsets[start : stop + 1] - offsets[start]).astype(np.int32)
            matrix = csr_array(
                (data, some.numbers[here], pointers), shape=(stop - start, self.width)
            )
            yield Block(slice(start, stop), some.sign, matrix, some.values is None)
            start = stop

    def span(self, rows: slice) -> "RecoveredFeatures":
        """The branches `rows.start` … `rows.stop - 1`, without copying their elements."""
        return RecoveredFeatures(
            width=self.width,
            received=tuple(some.span(rows) for some in self.received),
            scale=self.scale[rows],
            filler=self.filler,
        )

    def take(self, rows: Ints) -> "RecoveredFeatures":
        """The branches `rows`."""
        received = tuple(some.take(rows) for some in self.received)
        return replace(self, received=received, scale=self.scale[rows])

    def dense(self) -> Floats:
        """[branches, d] as an ordinary array, for small graphs and generic layers."""
        full = np.full(self.shape, self.filler, np.float32)
        for some in self.received:
            rows = some.rows
            if some.values is None:
                full[rows, some.numbers] += np.float32(some.sign) * self.scale[rows]
            else:
                full[rows, some.numbers] = some.values
        return full


def recover(released: Released, settings: EncoderSettings) -> RecoveredFeatures:
    """Unbiased features from received messages: E[x''] = x for every element received."""
    scale = np.ones(released.messages, np.float32)
    filler = settings.midpoint if settings.noisy or settings.bins else 0.0
    if settings.noisy:
        each = element_epsilon(settings.epsilon, released.largest)
        scale = recovery_scale(each, settings.low, settings.high).astype(np.float32)
    return RecoveredFeatures(
        width=released.width, received=tuple(_by_sign(released)), scale=scale, filler=filler
    )


def _by_sign(released: Released) -> Iterator[Elements]:
    if released.values is not None:
        yield Elements(
            sign=1.0,
            offsets=released.offsets,
            numbers=released.codes,
            values=released.values,
        )
        return
    ones = released.bits
    some = np.flatnonzero(released.counts)  # reduceat knows no empty rows
    counts = np.zeros(released.messages, np.int64)
    counts[some] = np.add.reduceat(ones, released.offsets[some], dtype=np.int64)
    before = np.concatenate([[0], np.cumsum(counts)])
    for sign, chosen, offsets in ((1.0, ones, before), (-1.0, ~ones, released.offsets - before)):
        numbers = released.codes[chosen]
        if sign < 0:
            numbers -= np.int32(released.width)
        yield Elements(sign=sign, offsets=offsets, numbers=numbers, values=None)
