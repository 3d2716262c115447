"""What all devices of a shard release, message by message, without one dense array of features."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from lumos.device.coins import PrivateCoins
from lumos.encode.bounds import Features, within
from lumos.encode.one_bit import (
    EncoderSettings,
    element_epsilon,
    largest_bin,
    message_epsilon,
    threshold,
)
from lumos.encode.spread import spread
from lumos.errors import UsageError
from lumos.typing import Doubles, Flags, Floats, Ints

Codes = npt.NDArray[np.int32]

_DEVICES_AT_ONCE = 48  # as many as OpenSSL serves with a long stream each; memory stays small
PURPOSE = "release"
"""Purpose of the private coins: bins at step 2·step, bits at step 2·step + 1."""


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

    def span(self, rows: slice) -> "Released":
        """The messages `rows.start` … `rows.stop - 1`, without copying their elements."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        here = slice(int(offsets[0]), int(offsets[-1]))
        return Released(
            width=self.width,
            offsets=offsets - offsets[0],
            codes=self.codes[here],
            largest=self.largest[rows],
            values=None if self.values is None else self.values[here],
        )

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
    coins: PrivateCoins,
    *,
    step: int = 0,
) -> Released:
    """The releases of all devices of a shard: ρ(u) messages of device u, in device order.

    Device u's k-th message is for the k-th of its receivers in increasing order. What a device
    releases depends on its own features, ρ and coins alone, so it is the same in any shard.
    O(Σ d log d) time over the devices that have receivers; memory 4 bytes for each element sent.

    Args:
        features: [devices, d] between the public bounds, dense or CSR.
        receivers: [devices] ρ, how many devices receive from each; one with ρ = 0 sends nothing.
        settings: ε and the bounds.
        coins: private coins of the devices of the shard, in the same order.
        step: number of this release; each has coins of its own, and each spends ε again.
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
        words = coins.words(rows, PURPOSE, 2 * step, width + 1)
        by_bin, size = spread(words, rho[here])
        mine = np.take_along_axis(dense, by_bin, axis=1)
        if values is None:
            each = element_epsilon(settings.epsilon, largest_bin(width, rho[here]))
            ones = threshold(mine, each[:, None], settings.low, settings.high)
            coin = coins.words(rows, PURPOSE, 2 * step + 1, width)
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
