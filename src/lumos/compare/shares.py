"""XOR shares of one comparison at one party, from the tables up to the outcome.

A value of a comparison is lt + 2·eq. Both parties run the same tree on their own shares; the
sender adds the public terms, so that the shares still sum to the value. For ``le`` the leaves
hold gt = [x > y], and the sender flips the root: [x ≤ y] = 1 ⊕ [x > y].
"""

from collections.abc import Iterable, Sequence

import numpy as np

from lumos.compare.spec import Kind, MessagePlan, Spec
from lumos.crypto.in_memory import InMemoryOnly
from lumos.session.errors import BadValue
from lumos.session.lookup import Lookup, digit_widths
from lumos.typing import Bytes


def digits_of(value: int, bits: int) -> list[int]:
    """The digits of a value, high to low."""
    digits = []
    remaining = bits
    for width in digit_widths(bits):
        remaining -= width
        digits.append(value >> remaining & ((1 << width) - 1))
    return digits


def relation(kind: Kind, x: int, lookup: Lookup, *, leaf: bool) -> Bytes:
    """The plain table of x: [outputs, entries], lt (or le, or a leaf's gt) and then eq."""
    j = np.arange(lookup.entries)
    table = np.empty((lookup.outputs, lookup.entries), np.uint8)
    if kind is Kind.LE:
        table[0] = x > j if leaf else x <= j
    else:
        table[0] = x < j
    if lookup.outputs == 2:
        table[1] = x == j
    return table


def product(lookup: Lookup, own: Sequence[int], masks: Sequence[int]) -> Bytes:
    """The plain table of a triple: (a ⊕ i)(b ⊕ j) and (a ⊕ i)(b' ⊕ k) for R's ijk, masked."""
    index = np.arange(lookup.entries)
    width = lookup.widths[0]
    bits = [index >> (width - 1 - place) & 1 for place in range(width)]
    a = bits[0] ^ own[0]
    rows = [a & (bits[1 + o] ^ own[1 + o]) ^ masks[o] for o in range(lookup.outputs)]
    return np.stack(rows).astype(np.uint8)


class TreeShares(InMemoryOnly):
    """One party's shares of the nodes and triples of one tree."""

    __slots__ = (
        "_eq",
        "_flip",
        "_lt",
        "_mine",
        "_plan",
        "_products",
        "_sender",
        "_theirs",
        "_triples",
    )

    def __init__(
        self,
        plan: MessagePlan,
        *,
        sender: bool,
        leaves: Iterable[int],
        triples: Iterable[Sequence[int]],
        products: Iterable[int],
        flip: bool = False,
    ) -> None:
        self._plan = plan
        self._sender = sender
        self._flip = flip
        leaves = list(leaves)
        self._lt = [leaf & 1 for leaf in leaves]
        self._eq = [leaf >> 1 for leaf in leaves]
        self._triples = list(triples)
        self._products = list(products)
        self._mine: dict[int, Sequence[int]] = {}
        self._theirs: dict[int, Sequence[int]] = {}

    def _first_triple(self, level: int) -> int:
        return sum(len(merges) for merges in self._plan.levels[:level])

    def open(self, level: int) -> list[int]:
        """This party's shares of eq_hi ⊕ a, lt_lo ⊕ b, eq_lo ⊕ b' of a level's merges."""
        mine = []
        start = self._first_triple(level)
        for place, merge in enumerate(self._plan.levels[level], start):
            a, b, *more = self._triples[place]
            mine += [self._eq[merge.high] ^ a, self._lt[merge.low] ^ b]
            mine += [self._eq[merge.low] ^ factor for factor in more]
        self._mine[level] = mine
        self._merge(level)
        return mine

    def receive(self, level: int, theirs: Sequence[int]) -> None:
        """Take the other party's shares of the same bits."""
        self._theirs[level] = theirs
        self._merge(level)

    def _merge(self, level: int) -> None:
        # Goes up one level as soon as both parties have opened it.
        if level not in self._mine or level not in self._theirs:
            return
        opened = iter(
            [own ^ other for own, other in zip(self._mine[level], self._theirs[level], strict=True)]
        )
        start = self._first_triple(level)
        for place, merge in enumerate(self._plan.levels[level], start):
            a, *factors = self._triples[place]
            d = next(opened)
            products = []
            for output, b in enumerate(factors):
                e = next(opened)
                # (a⊕d)(b⊕e) = ab ⊕ db ⊕ ea ⊕ de; the last term is public, the sender adds it.
                own = (self._products[place] >> output & 1) ^ (d & b) ^ (e & a)
                products.append(own ^ (d & e) if self._sender else own)
            self._lt.append(self._lt[merge.high] ^ products[0])
            self._eq.append(products[1] if merge.eq else 0)

    def root(self) -> int:
        """This party's share of the value at the root."""
        return (self._lt[-1] ^ self._flip) | self._eq[-1] << 1


def number_of(bits: Sequence[int]) -> int:
    """The number whose bits these are, the lowest first."""
    return sum(bit << place for place, bit in enumerate(bits))


def pack(bits: Sequence[int]) -> bytes:
    """Bytes in the order of significance, padded with zeros to whole bytes."""
    return number_of(bits).to_bytes((len(bits) + 7) // 8, "little")


def unpack(packed: bytes, count: int) -> list[int]:
    """The bits that ``pack`` packed; padding must be zero."""
    value = int.from_bytes(packed, "little")
    if value >> count:
        raise BadValue("padding bits are not zero")
    return [value >> place & 1 for place in range(count)]


def outcome(spec: Spec, value: int) -> int:
    """1 or 0 for ``lt`` and ``le``; the sign of x − y for ``three_way``."""
    if spec.kind is not Kind.THREE_WAY:
        return value
    if value == 3:
        raise BadValue("an outcome is both less and equal")
    return (1, -1, 0)[value]
