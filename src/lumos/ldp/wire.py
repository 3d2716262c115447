"""The bytes of a release: the message of one sender to one receiver.

    s          4 bytes   elements of the sender's largest bin, so that the receiver knows ε' = ε/s
    k          4 bytes   elements in this message, at most s
    elements   k element numbers of 2 bytes (4 where d > 65,536), or a bitmap of d bits,
               whichever is shorter
    bits       k bits, or k numbers of 4 bytes where there is no noise

Everything is little-endian; bitmaps start at the lowest bit. On Facebook (d = 4,714) no noisy
message is longer than 1,188 bytes. A message longer than `PART` travels in several rounds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from lumos.device.randomness import PrivateRandomness
from lumos.errors import ProtocolError
from lumos.graph.arrays import spans
from lumos.ldp.bounds import Features
from lumos.ldp.one_bit import EncoderSettings, Released, recover, release
from lumos.typing import Bytes, Doubles, Flags, Ints

PART = 4096
"""Most bytes of one message that travel in one round; bounds the padded array of a round."""
_HEADER = 8
_BYTES_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class Messages:
    """Messages as bytes, one after the other."""

    offsets: Ints = field(repr=False)
    """[messages + 1]: message i is data[offsets[i] : offsets[i + 1]]."""
    data: Bytes = field(repr=False)

    @property
    def lengths(self) -> Ints:
        """[messages] bytes of each."""
        return np.diff(self.offsets)

    def take(self, rows: Ints) -> "Messages":
        """The messages at `rows`."""
        lengths = self.lengths[rows]
        return Messages(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            data=self.data[spans(self.offsets[rows], lengths)],
        )

    def part(self, number: int) -> tuple[Ints, Bytes, Ints]:
        """Part `number` of the messages that have one, for a batch of a topic of any width.

        Returns:
            [rows] which messages, their bytes [rows, longest] padded with zeros, and [rows]
            lengths.
        """
        lengths = np.clip(self.lengths - number * PART, 0, PART)
        rows = np.flatnonzero((lengths > 0) | ((number == 0) & (self.lengths == 0)))
        lengths = lengths[rows]
        body = np.zeros((len(rows), int(lengths.max(initial=0))), np.uint8)
        start = self.offsets[:-1][rows] + number * PART
        some = max(1, _BYTES_AT_ONCE // max(1, body.shape[1]))
        for first in range(0, len(rows), some):
            here = slice(first, first + some)
            columns = np.arange(body.shape[1])
            inside = columns < lengths[here, None]
            body[here][inside] = self.data[(start[here, None] + columns)[inside]]
        return rows, body, lengths


class Encoder(ABC):
    """A mechanism for a device's features: an entry of `lumos.ldp.ENCODERS`."""

    checked: ClassVar[bool] = False
    """True if its ε is proved, or checked by enumeration."""
    common: ClassVar[bool] = True
    """True if a device sends the same message to all receivers."""

    def check_declared(self, width: int, settings: EncoderSettings) -> None:
        """Check the declared ε before anything is released, where that is possible.

        Raises:
            UsageError: it does not hold.
        """
        return

    @abstractmethod
    def rounds(self, width: int, settings: EncoderSettings) -> int:
        """Rounds that carry the longest message of d features: public, a function of d."""

    @abstractmethod
    def encode(
        self,
        features: Features,
        receivers: Ints,
        settings: EncoderSettings,
        randomness: PrivateRandomness,
        step: int,
    ) -> tuple[Messages, Doubles]:
        """Return the messages of all devices, device by device, and the ε that each spends.

        Args:
            features: [devices, d] between the public bounds.
            receivers: [devices] number of receivers of each.
            step: number of the release; each has randomness of its own.
        """

    @abstractmethod
    def decode(self, messages: Messages, width: int, settings: EncoderSettings) -> Any:
        """Return [messages, d] features as receivers estimate them.

        Raises:
            ProtocolError: `encode` could not have written a message.
        """


class OneBit(Encoder):
    """The paper's mechanism: every element to one receiver, see `lumos.ldp.one_bit`."""

    checked = True
    common = False

    def rounds(self, width: int, settings: EncoderSettings) -> int:
        """As `parts_for`."""
        return parts_for(width, noisy=settings.noisy)

    def encode(
        self,
        features: Features,
        receivers: Ints,
        settings: EncoderSettings,
        randomness: PrivateRandomness,
        step: int,
    ) -> tuple[Messages, Doubles]:
        """As `release` and `write`."""
        released = release(features, receivers, settings, randomness, step=step)
        return write(released), released.epsilon(settings)

    def decode(self, messages: Messages, width: int, settings: EncoderSettings) -> Any:
        """As `read` and `recover`."""
        return recover(read(messages, width, noisy=settings.noisy), settings)


ONE_BIT = OneBit()


def parts_for(width: int, *, noisy: bool) -> int:
    """Rounds that carry the longest possible message of d features: public, a function of d."""
    shortest = min(width * _number_size(width), -(-width // 8))
    payload = -(-width // 8) if noisy else 4 * width
    return -(-(_HEADER + shortest + payload) // PART)


def joined(parts: list[tuple[Ints, Bytes, Ints]], messages: int) -> Messages:
    """The messages of which these are the parts: (rows, body, lengths) in the order of parts.

    Args:
        parts: what `Messages.part` gave, as it arrived: `rows` numbers the messages.
        messages: how many messages there are.
    """
    lengths = np.zeros(messages, np.int64)
    for rows, _, some in parts:
        lengths[rows] += some
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = np.empty(offsets[-1], np.uint8)
    filled = offsets[:-1].copy()
    for rows, body, some in parts:
        at_once = max(1, _BYTES_AT_ONCE // max(1, body.shape[1]))
        for first in range(0, len(rows), at_once):
            here = slice(first, first + at_once)
            columns = np.arange(body.shape[1])
            inside = columns < some[here, None]
            data[(filled[rows[here], None] + columns)[inside]] = body[here][inside]
        filled[rows] += some
    return Messages(offsets=offsets, data=data)


def write(released: Released) -> Messages:
    """Releases as bytes. O(bytes) time, and memory beyond the result for a few messages."""
    width, counts = released.width, released.counts
    noisy = released.values is None
    listed, of_elements = _elements_size(width, counts)
    lengths = _HEADER + of_elements + (-(-counts // 8) if noisy else 4 * counts)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = np.empty(offsets[-1], np.uint8)
    for rows in _blocks(offsets, released.offsets):
        start = offsets[rows] - offsets[rows.start]  # [messages] in this block
        count = counts[rows]
        here = slice(int(released.offsets[rows.start]), int(released.offsets[rows.stop]))
        codes = released.codes[here].astype(np.int64)
        elements = np.where(codes < width, codes, codes - width)
        message = np.repeat(np.arange(len(start)), count)
        within = np.arange(len(codes)) - np.repeat(np.cumsum(count) - count, count)
        after = start + _HEADER + of_elements[rows]
        by_list = listed[rows][message]
        bits = np.zeros(8 * int(offsets[rows.stop] - offsets[rows.start]), np.bool_)
        mapped = ~by_list
        bits[8 * (start[message[mapped]] + _HEADER) + elements[mapped]] = True
        if noisy:
            bits[8 * after[message] + within] = codes < width
        block = np.packbits(bits, bitorder="little")
        size = _number_size(width)
        where = start[message[by_list]] + _HEADER + size * within[by_list]
        _put(block, where, elements[by_list], size)
        _put(block, start, released.largest[rows], 4)
        _put(block, start + 4, count, 4)
        if released.values is not None:
            raw = released.values[here].astype("<f4").view("<u4").astype(np.int64)
            _put(block, after[message] + 4 * within, raw, 4)
        data[offsets[rows.start] : offsets[rows.stop]] = block
    return Messages(offsets=offsets, data=data)


def read(messages: Messages, width: int, *, noisy: bool) -> Released:
    """Releases from bytes that somebody sent.

    Raises:
        ProtocolError: a message is not one that `write` could have made for d = `width`.
    """
    offsets, lengths = messages.offsets, messages.lengths
    _demand(bool((lengths >= _HEADER).all()), "it is shorter than its header")
    largest, counts = (_get(messages.data, offsets[:-1] + place, 4) for place in (0, 4))
    _demand(bool((counts <= width).all()), "it holds more elements than there are")
    _demand(bool((counts <= largest).all()), "it holds more than the largest bin")
    _demand(bool(((largest >= 1) & (largest <= width)).all()), "its largest bin is impossible")
    listed, of_elements = _elements_size(width, counts)
    expected = _HEADER + of_elements + (-(-counts // 8) if noisy else 4 * counts)
    _demand(bool((lengths == expected).all()), "its length does not fit its elements")
    out = np.concatenate([[0], np.cumsum(counts)])
    codes = np.empty(out[-1], np.int32)
    values = None if noisy else np.empty(out[-1], np.float32)
    for rows in _blocks(offsets, out):
        block = messages.data[offsets[rows.start] : offsets[rows.stop]]
        start, count = offsets[rows] - offsets[rows.start], counts[rows]
        here = slice(int(out[rows.start]), int(out[rows.stop]))
        message = np.repeat(np.arange(len(start)), count)
        within = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
        after = start + _HEADER + of_elements[rows]
        bits = np.unpackbits(block, bitorder="little").view(np.bool_)
        by_list = listed[rows][message]
        elements = np.empty(len(message), np.int64)
        size = _number_size(width)
        where = start[message[by_list]] + _HEADER + size * within[by_list]
        elements[by_list] = _get(block, where, size)
        elements[~by_list] = _mapped(block, start, listed[rows], of_elements[rows], count)
        _demand(bool((elements < width).all()), "it names an element that does not exist")
        rising = np.diff(elements, prepend=-1) > 0
        _demand(bool((rising | (within == 0)).all()), "its elements do not increase")
        if values is not None:
            raw = _get(block, after[message] + 4 * within, 4)
            values[here] = raw.astype("<u4").view("<f4")
            _demand(bool(np.isfinite(values[here]).all()), "a value is not a finite number")
        else:
            elements += np.where(bits[8 * after[message] + within], 0, width)
        codes[here] = elements
    return Released(width=width, offsets=out, codes=codes, largest=largest, values=values)


def _mapped(
    block: Bytes,
    start: Ints,
    listed: Flags,
    size: Ints,
    count: Ints,
) -> Ints:
    """Elements of the messages with bitmaps, from the bytes of their block."""
    maps = np.flatnonzero(~listed)
    if not len(maps):
        return np.empty(0, np.int64)
    columns = start[maps, None] + _HEADER + np.arange(size[maps[0]])  # all bitmaps have d bits
    message, element = np.nonzero(np.unpackbits(block[columns], axis=1, bitorder="little"))
    mapped = np.bincount(message, minlength=len(maps))
    _demand(np.array_equal(mapped, count[maps]), "its bitmap does not fit its elements")
    return element


def _elements_size(width: int, counts: Ints) -> tuple[Flags, Ints]:
    """Return whether elements are listed (else mapped), and their bytes."""
    as_list, as_map = counts * _number_size(width), -(-width // 8)
    listed = as_list <= as_map
    return listed, np.where(listed, as_list, as_map)


def _number_size(width: int) -> int:
    return 2 if width <= 1 << 16 else 4


def _blocks(offsets: Ints, elements: Ints) -> Iterator[slice]:
    """Runs of messages of few bytes and few elements: bits and indices of a run are arrays."""
    cost = offsets + 4 * elements
    start, messages = 0, len(offsets) - 1
    while start < messages:
        limit = cost[start] + _BYTES_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(cost, limit, side="right")) - 1)
        yield slice(start, stop)
        start = stop


def _put(block: Bytes, where: Ints, numbers: Ints, size: int) -> None:
    for place in range(size):
        block[where + place] = (numbers >> (8 * place)) & 0xFF


def _get(block: Bytes, where: Ints, size: int) -> Ints:
    total = np.zeros(len(where), np.int64)
    for place in range(size):
        total |= block[where + place].astype(np.int64) << (8 * place)
    return total


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ProtocolError(f"a release is not well formed: {what}")
