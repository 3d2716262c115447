"""Oblivious table lookup: S has a table, R an index; R gets that entry, S learns nothing.

One digit c of R's index is one 1-of-2^w oblivious transfer (Chou and Orlandi 2015):

    S, once:     A = aG, T = aA
    R, a digit:  B = bG + cA                 keeps  H(sid, A, idx, code, B, c, bA)
    S, a digit:  W_v = aB − vT for every v   pads   P_v = H(sid, A, idx, code, B, v, W_v)

W_c = bA, and for v ≠ c it is bA + (c − v)T, which R cannot compute without a. For an index of
several digits j = (j_1 … j_q) the table is masked once per digit (CrypTFlow2's leaf step, over
all digits at once), Table[j] = f(j) ⊕ ⊕_i P_{i,j_i}[j], so that R can unmask entry y only.
P_{i,v} masks only the entries with j_i = v, so it has 2^(ℓ−w_i) bits per output: one BLAKE2b
digest of at most 64 bytes.

The index idx counts the digits of a session and is never reused.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519, Group
from lumos.errors import BadValue
from lumos.typing import Bytes

# From this many digits in a session on, 16 multiples of A cost fewer additions than 4 + 4.
MANY_DIGITS = 10

MAX_PAD = 64
"""Bytes of the largest BLAKE2b digest."""

VALUES = [bytes([value]) for value in range(16)]


class Lookup(NamedTuple):
    """A table read obliviously: R's index in digits (high to low), bits per entry."""

    widths: tuple[int, ...]
    outputs: int

    @property
    def entries(self) -> int:
        """Number of values of the index."""
        return 1 << sum(self.widths)

    @property
    def stride(self) -> int:
        """Bytes of the table of one output bit."""
        return (self.entries + 7) // 8

    @property
    def table_bytes(self) -> int:
        """Bytes of the whole table."""
        return self.outputs * self.stride


class Query(NamedTuple):
    """A table of a session: its shape, the code of what it is for, its first digit's index."""

    lookup: Lookup
    code: bytes
    idx: int


def digit_widths(bits: int) -> tuple[int, ...]:
    """⌈bits/4⌉ digits of almost equal width, the wider ones first."""
    count = -(-bits // 4)
    wide = bits % count
    return (bits // count + 1,) * wide + (bits // count,) * (count - wide)


def session_id(sender: int, receiver: int, opening: bytes, nonce: bytes) -> bytes:
    """H(version, both ids in their roles, S's nonce and A, R's nonce)."""
    roles = b"".join(device.to_bytes(8, "little", signed=True) for device in (sender, receiver))
    return blake2b(roles + opening + nonce, digest_size=32, person=b"lumos.sid.1").digest()


def pad_bytes(lookup: Lookup, digit: int) -> int:
    """Bytes of one pad: a bit per output and entry that shares this digit's value."""
    return (lookup.outputs * (lookup.entries >> lookup.widths[digit]) + 7) // 8


def _pads(
    sid: bytes, A: bytes, asked: Query, digit: int, B: bytes, points: Iterable[tuple[int, bytes]]
) -> list[bytes]:
    size = pad_bytes(asked.lookup, digit)
    start = sid + A + (asked.idx + digit).to_bytes(8, "little") + asked.code + B
    begun = blake2b(start, digest_size=size, person=b"lumos.pad.1")
    pads = []
    for value, W in points:
        pad = begun.copy()
        pad.update(VALUES[value] + W)
        pads.append(pad.digest())
    return pads


class SenderKeys(InMemoryOnly):
    """S's half of the transfers of one session."""

    __slots__ = ("A", "_T", "_a", "_group", "_sid")

    def __init__(self, group: Group = ED25519) -> None:
        self._group = group
        self._a, self.A, self._T = group.key()
        self._sid = b""

    def bind(self, sid: bytes) -> None:
        """Take the session's id, once both nonces are known."""
        self._sid = sid

    def pads(self, asked: Query, digit: int, B: bytes) -> list[bytes]:
        """P_v for every value v of the digit."""
        W = self._group.multiply(self._a, B)
        others = self._group.subtract(W, self._T, (1 << asked.lookup.widths[digit]) - 1)
        return _pads(self._sid, self.A, asked, digit, B, enumerate([W, *others]))

    def tables(self, asked: Sequence[Query], points: bytes, plain: Sequence[Bytes]) -> list[bytes]:
        """Mask tables, each [outputs, entries] of bits, under the digits that R sent."""
        pads: list[list[list[bytes]]] = []
        offset, size = 0, self._group.point_bytes
        for one in asked:
            own = []
            for digit in range(len(one.lookup.widths)):
                own.append(self.pads(one, digit, points[offset : offset + size]))
                offset += size
            pads.append(own)
        masked: list[bytes] = [b""] * len(asked)
        for lookup in {one.lookup for one in asked}:
            where = [place for place, one in enumerate(asked) if one.lookup == lookup]
            tables = np.stack([plain[place] for place in where])
            for place, table in zip(
                where, mask(lookup, tables, [pads[place] for place in where]), strict=True
            ):
                masked[place] = table
        return masked


def mask(lookup: Lookup, tables: Bytes, pads: Sequence[Sequence[Sequence[bytes]]]) -> list[bytes]:
    """XOR every digit's pads into the tables, and pack them.

    Args:
        lookup: shape of each table.
        tables: [n, outputs, entries] bits.
        pads: [n, digits, values] of bytes.
    """
    count = len(tables)
    shape = [1 << width for width in lookup.widths]
    masked = tables.reshape(count, lookup.outputs, *shape)
    for digit, values in enumerate(shape):
        joined = b"".join(pad for own in pads for pad in own[digit])
        raw = np.frombuffer(joined, np.uint8).reshape(count, values, -1)
        used = lookup.outputs * (lookup.entries // values)
        bits = np.unpackbits(raw, axis=2, count=used, bitorder="little")
        rest = shape[:digit] + shape[digit + 1 :]
        # [n, values, outputs, rest …] with the digit's axis put back in its place.
        before = range(3, 3 + digit)
        after = range(3 + digit, 2 + len(shape))
        masked = masked ^ bits.reshape(count, values, lookup.outputs, *rest).transpose(
            0, 2, *before, 1, *after
        )
    packed = np.packbits(
        masked.reshape(count, lookup.outputs, lookup.entries), axis=2, bitorder="little"
    )
    return [table.tobytes() for table in packed]


class ReceiverKeys(InMemoryOnly):
    """R's half of the transfers of one session."""

    __slots__ = ("_A", "_digits", "_group", "_high", "_low", "_sid")

    def __init__(self, A: bytes, sid: bytes, group: Group = ED25519) -> None:
        self._group = group
        self._A = A
        self._sid = sid
        self._digits = 0
        self._low: list[bytes] = []
        self._high: list[bytes] = []

    def choose(self, asked: Query, index: int) -> tuple[bytes, list[bytes]]:
        """B for every digit of the index, and the pads that R keeps."""
        points = b""
        kept = []
        remaining = sum(asked.lookup.widths)
        for digit, width in enumerate(asked.lookup.widths):
            remaining -= width
            c = index >> remaining & ((1 << width) - 1)
            b, bG = self._group.pair()
            # The first product also checks A, before anything is added to it.
            bA = self._group.multiply(b, self._A)
            B = self._shifted(bG, c)
            points += B
            kept += _pads(self._sid, self._A, asked, digit, B, [(c, bA)])
        return points, kept

    def _shifted(self, bG: bytes, c: int) -> bytes:
        # bG + cA by the same number of additions for every c; how many depends only on the
        # public count of digits so far. Multiples of A: low 0 … 3 and high 0, 4, 8, 12, or,
        # once there are many digits, low 0 … 15.
        add, A = self._group.add, self._A
        if not self._low:
            double = add(A, A)
            four = add(double, double)
            eight = add(four, four)
            self._low = [self._group.identity, A, double, add(double, A)]
            self._high = [self._group.identity, four, eight, add(eight, four)]
        self._digits += 1
        if self._digits == MANY_DIGITS:
            for _ in range(12):
                self._low.append(add(self._low[-1], A))
        if self._digits >= MANY_DIGITS:
            return add(bG, self._low[c])
        return add(add(bG, self._low[c & 3]), self._high[c >> 2])


def unmask(lookup: Lookup, table: bytes, pads: Sequence[bytes], index: int) -> int:
    """The entry of the index: output bit o is bit o of the result."""
    entries = lookup.entries
    if entries < 8 and any(row >> entries for row in table):
        raise BadValue("padding bits of a table are not zero")
    value = 0
    for output, row in enumerate(table[index >> 3 :: lookup.stride]):
        value |= (row >> (index & 7) & 1) << output
    remaining = sum(lookup.widths)
    for width, pad in zip(lookup.widths, pads, strict=True):
        remaining -= width
        # The entry's place among those that share this digit: the digit cut out.
        place = index >> (remaining + width) << remaining | index & ((1 << remaining) - 1)
        bits, step = int.from_bytes(pad, "little") >> place, entries >> width
        for output in range(lookup.outputs):
            value ^= (bits & 1) << output
            bits >>= step
    return value
