"""Two devices compare two numbers and learn one bit (or a sign), and nothing else.

S (``Sender``) holds x, R (``Receiver``) holds y, both of ℓ ≤ 32 bits. The protocol is pure: bytes
in, bytes out. Neither party knows a transport or the other's object. Both are given the same public
list of specs and then take turns:

    spec = Spec(bits=8, kind=Kind.LT)
    sender, receiver = Sender(me=3, peer=8), Receiver(me=8, peer=3)
    sender.begin([(spec, x)])
    receiver.begin([(spec, y)])
    message = sender.step()              # the session's opening, once
    message = receiver.step(message)     # one point per digit
    message = sender.step(message)       # the table
    message = receiver.step(message)     # the outcome
    sender.step(message)
    sender.results, receiver.results     # both [1] if x < y, else [0]

In later batches of the session the receiver sends first. The comparisons of a batch go side by
side: message k of a batch is the concatenation of their messages k. A point has P bytes: 32 in the
group `ed25519`, the default, and 33 in `secp256k1` (`group=SECP256K1` at both ends).

| message | from | bytes |
|---|---|---|
| opening, once per session | S | nonce 16 ‖ A P |
| points (before them, once per session, R's nonce 16) | R | P per digit of at most 4 bits |
| tables, ℓ ≤ 12 | S | ⌈2^ℓ/8⌉ per output bit; then check 1 |
| tables, ℓ > 12, and S's opening of level 1 | S | leaves, triples, bits (``spec.parts``); check 1 |
| openings, ℓ > 12, alternating | R, S | ⌈bits/8⌉ per comparison; check 1 |
| answer: the outcome; ℓ > 12, before it: the last share | last to receive | 1 per comparison |

``messages(specs, first=...)`` gives the list for any batch. ``lt`` has one output bit,
``three_way`` has two (lt, eq).

*Binding.* One session serves comparisons of different ℓ and kinds, so these are not in sid: every
pad is H(sid, A, idx, ℓ, kind, B, v, W), and idx never repeats in a session.
*Check.* CRC-8 of everything both should have seen since the session began: ids, specs, messages.
It finds any single flipped bit, and one differing spec, with certainty, other damage with
probability 255/256. It is computed from public bytes, so it reveals nothing; it is no signature:
authenticity is the transport's.
*Answer.* One of four words of 8 bits with distance 5, XOR the check.
*Once.* A message that is not due closes the session, as does every error. A session is never
written down.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from lumos.crypto import entropy
from lumos.crypto.entropy import InMemoryOnly
from lumos.crypto.groups import ED25519_POINT, Group
from lumos.errors import BadValue, UsageError
from lumos.twoparty.lookup import Lookup, Query, digit_widths, unmask
from lumos.twoparty.session import (
    CHECK,
    NONCE,
    LookupReceiver,
    LookupSender,
    Message,
    Rules,
    decode_answer,
    encode_answer,
    words_for,
)
from lumos.typing import Bytes, Ints

# The spec of a comparison, and the public list of messages that follows from it.
#
# Everything here is public and fixed before the first byte is sent. The ideal backend books from
# it, the secure one is checked against it.

MAX_BITS = 32
DIRECT_BITS = 12


class Kind(StrEnum):
    """Relations of the sender's x to the receiver's y."""

    LT = "lt"
    THREE_WAY = "three_way"


@dataclass(frozen=True, slots=True)
class Spec:
    """One comparison: bits of the values, and the relation, which both ends learn."""

    bits: int
    kind: Kind = Kind.LT
    #: Two bytes that name the comparison in every pad and in the check.
    code: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise UsageError(f"bits must be 1 to {MAX_BITS}, not {self.bits}")
        kind = 0x20 if self.kind is Kind.THREE_WAY else 0  # frozen: it is hashed into every pad
        object.__setattr__(self, "code", bytes([self.bits, kind]))

    @property
    def outputs(self) -> int:
        """Bits that a comparison yields: lt, or lt and eq."""
        return 2 if self.kind is Kind.THREE_WAY else 1

    @property
    def ways(self) -> int:
        """Number of possible outcomes."""
        return 3 if self.kind is Kind.THREE_WAY else 2


class Merge(NamedTuple):
    """One AND gate pair of the tree: lt = lt_hi ⊕ (eq_hi ∧ lt_lo), eq = eq_hi ∧ eq_lo."""

    high: int
    low: int
    eq: bool

    @property
    def opened(self) -> int:
        """Bits that each party opens: eq_hi ⊕ a, lt_lo ⊕ b and, for eq, eq_lo ⊕ b'."""
        return 3 if self.eq else 2


class MessagePlan(NamedTuple):
    """The public shape of one comparison.

    lookups: the value's table (direct form), or the leaves and then one triple per merge.
    levels: the merges of each level; nodes are numbered leaves first, then merges in order.
    """

    leaves: tuple[Lookup, ...]
    triples: tuple[Lookup, ...]
    levels: tuple[tuple[Merge, ...], ...]

    @property
    def lookups(self) -> tuple[Lookup, ...]:
        """All tables, in the order of their indices."""
        return self.leaves + self.triples

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return sum(len(lookup.widths) for lookup in self.lookups)


class Part(NamedTuple):
    """One comparison's part of one message of a batch.

    tables: bytes of tables; opened: levels opened here; answer: whether an outcome or a
    final share, one byte, closes the part.
    """

    points: int = 0
    tables: int = 0
    opened: tuple[int, ...] = ()
    answer: bool = False


@cache
def plan(bits: int, outputs: int) -> MessagePlan:
    """The tables of a comparison, and for more than 12 bits the tree above them."""
    widths = digit_widths(bits)
    if bits <= DIRECT_BITS:
        return MessagePlan((Lookup(widths, outputs),), (), ())
    # The lowest digit's eq is needed only when the root's is.
    keeps_eq = [True] * (len(widths) - 1) + [outputs == 2]
    leaves = tuple(Lookup((w,), 1 + eq) for w, eq in zip(widths, keeps_eq, strict=True))
    triples: list[Lookup] = []
    levels: list[tuple[Merge, ...]] = []
    nodes = list(range(len(widths)))
    while len(nodes) > 1:
        level: list[Merge] = []
        above: list[int] = []
        for high, low in zip(nodes[::2], nodes[1::2], strict=False):
            merge = Merge(high, low, keeps_eq[low])
            above.append(len(keeps_eq))
            keeps_eq.append(merge.eq)
            triples.append(Lookup((merge.opened,), 1 + merge.eq))
            level.append(merge)
        nodes = above + nodes[2 * len(level) :]
        levels.append(tuple(level))
    return MessagePlan(leaves, tuple(triples), tuple(levels))


@cache
def parts(spec: Spec) -> tuple[Part, ...]:
    """One comparison's parts of the messages of a batch, the receiver's first, alternating.

    Each party opens a level as soon as it can: S opens level 1 with its tables, R levels 1 and
    2, S levels 2 and 3, and so on. Whoever opens the last level second has its final share then
    and adds it; the other answers with the outcome.
    """
    shape = plan(spec.bits, spec.outputs)
    depth = len(shape.levels)
    tables = sum(lookup.table_bytes for lookup in shape.lookups)
    listed = [Part(points=shape.digits), Part(tables=tables, opened=(0,) if depth else ())]
    for level in range(depth):
        following = (level, level + 1) if level + 1 < depth else (level,)
        listed.append(Part(opened=following))
    if depth:  # in the direct form the table itself carries the outcome
        listed[-1] = listed[-1]._replace(answer=True)
    return (*listed, Part(answer=True))


def opened_bits(spec: Spec, part: Part) -> list[int]:
    """Bits of each level that a part opens."""
    if not part.opened:
        return []
    levels = plan(spec.bits, spec.outputs).levels
    return [sum(merge.opened for merge in levels[level]) for level in part.opened]


def messages(
    specs: Sequence[Spec], *, first: bool, point: int = ED25519_POINT
) -> tuple[Message, ...]:
    """List the messages of a batch: sender and bytes.

    Args:
        specs: of its items, in order.
        first: whether it opens the session.
        point: bytes of a point of the session's group; by default those of `ed25519`.
    """
    return _messages(tuple(specs), first, point)


@lru_cache(maxsize=256)
def _messages(specs: tuple[Spec, ...], first: bool, point: int) -> tuple[Message, ...]:
    listed = [Message(False, NONCE + point)] if first else []
    own = [parts(spec) for spec in specs]
    for position in range(max(map(len, own), default=0)):
        length = NONCE if first and position == 0 else 0
        checked = False
        for spec, spoken in zip(specs, own, strict=True):
            part = spoken[position] if position < len(spoken) else Part()
            opened = (sum(opened_bits(spec, part)) + 7) // 8
            length += point * part.points + part.tables + opened + part.answer
            checked = checked or part.tables + opened > 0
        listed.append(Message(position % 2 == 0, length + CHECK * checked))
    return tuple(listed)


# XOR shares of one comparison at one party, from the tables up to the outcome.
#
# A value of a comparison is lt + 2·eq. Both parties run the same tree on their own shares; the
# sender adds the public terms, so that the shares still sum to the value.


def digits_of(value: int, bits: int) -> list[int]:
    """The digits of a value, high to low."""
    digits = []
    remaining = bits
    for width in digit_widths(bits):
        remaining -= width
        digits.append(value >> remaining & ((1 << width) - 1))
    return digits


def relation(x: int, lookup: Lookup) -> Bytes:
    """The plain table of x: [outputs, entries], lt and then eq."""
    j = np.arange(lookup.entries)
    table = np.empty((lookup.outputs, lookup.entries), np.uint8)
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
    ) -> None:
        self._plan = plan
        self._sender = sender
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
        return self._lt[-1] | self._eq[-1] << 1


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
    """1 or 0 for ``lt``; the sign of x − y for ``three_way``."""
    return (1, -1, 0)[value] if spec.kind is Kind.THREE_WAY else value


# One comparison of a batch at one end.


def fitting(value: int, bits: int) -> int:
    """The value as a plain integer, if it is one of so many bits."""
    try:
        plain = operator.index(value)
    except TypeError:
        raise BadValue("a value is not an integer") from None
    if not 0 <= plain < 1 << bits:
        raise BadValue(f"a value does not fit the {bits} bits of its comparison")
    return plain


class Comparison(InMemoryOnly):
    """One comparison of the current batch, as one party sees it.

    Its result is 1 or 0 for ``lt``, the sign of x − y for ``three_way``.

    value: this party's own input.
    """

    __slots__ = ("asked", "kept", "outcome_bits", "parts", "plan", "spec", "tree", "value")

    def __init__(self, spec: Spec, value: int, idx: int) -> None:
        self.spec = spec
        self.value = fitting(value, spec.bits)
        self.plan = plan(spec.bits, spec.outputs)
        self.parts = parts(spec)
        self.asked: list[Query] = []
        for lookup in self.plan.lookups:
            self.asked.append(Query(lookup, spec.code, idx))
            idx += len(lookup.widths)
        self.kept: list[tuple[int, list[bytes]]] = []
        self.tree: TreeShares | None = None
        self.outcome_bits: int | None = None

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.plan.digits

    def is_checked(self, position: int) -> bool:
        """Return whether this part holds tables or opened levels."""
        part = self.part(position)
        return bool(part.tables or part.opened)

    def part(self, position: int) -> Part:
        """This comparison's part of a message of the batch; empty when it has ended."""
        return self.parts[position] if position < len(self.parts) else Part()

    def compose(self, part: Part, check: int) -> bytes:
        """The levels opened in this part, and its answer: the last share, or the outcome."""
        message = b""
        if self.tree is not None and part.opened:
            message = pack([bit for level in part.opened for bit in self.tree.open(level)])
        if part.answer:
            share = self.tree.root() if self.tree is not None else 0
            answer = share if part.opened or self.outcome_bits is None else self.outcome_bits
            message += encode_answer(answer, check)
        return message

    def receive(self, part: Part, message: bytes, check: int) -> None:
        """Take the other party's opened levels and answer."""
        counts = opened_bits(self.spec, part)
        size = (sum(counts) + 7) // 8
        bits = unpack(message[:size], sum(counts))
        for level, count in zip(part.opened, counts, strict=True):
            if self.tree is not None:
                self.tree.receive(level, bits[:count])
            bits = bits[count:]
        if part.answer:
            answer = decode_answer(message[size], check, words_for(1 << self.spec.outputs))
            share = self.tree.root() if self.tree is not None and part.opened else 0
            self.learn(answer ^ share)  # the outcome itself, where no opening comes with it

    def learn(self, bits: int) -> None:
        """Take the outcome, lt + 2·eq.

        Only a liar makes it both: then it is eq. An error would tell the liar a fourth outcome.
        """
        self.outcome_bits = min(bits, 2)

    def result(self) -> int | None:
        """The outcome, once it is learnt."""
        return None if self.outcome_bits is None else outcome(self.spec, self.outcome_bits)


RULES = Rules(b"lumos.compare.1", messages, Comparison)


def cut_parts(
    comparisons: Sequence[Comparison], position: int, message: bytes
) -> Iterator[tuple[Comparison, Part, bytes, bytes]]:
    """Each comparison with its part of a message: its tables, and what follows them."""
    offset = 0
    for comparison in comparisons:
        part = comparison.part(position)
        size = (sum(opened_bits(comparison.spec, part)) + 7) // 8 + part.answer
        end = offset + part.tables
        yield comparison, part, message[offset:end], message[end : end + size]
        offset = end + size


# S: holds x, opens the session, answers every digit of R with a table.


class Sender(LookupSender[Spec, int, Comparison]):
    """The party whose value stands on the left: [x < y], sign(x − y)."""

    _rules = RULES

    def _compose_tasks(self, position: int) -> bytes:
        check = self._check
        tables = self._tables() if position == 1 else [b""] * len(self._tasks)
        rest = [own.compose(own.part(position), check) for own in self._tasks]
        return b"".join(table + after for table, after in zip(tables, rest, strict=True))

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        if position == 0:
            self._points = message
            return
        for comparison, part, _, rest in cut_parts(self._tasks, position, message):
            comparison.receive(part, rest, check)

    def _tables(self) -> list[bytes]:
        plain: list[Bytes] = []
        for comparison in self._tasks:
            if comparison.plan.levels:
                plain += _tree(comparison)
            else:  # one table over all values of y
                plain.append(relation(comparison.value, comparison.plan.leaves[0]))
        asked = [one for comparison in self._tasks for one in comparison.asked]
        masked = iter(self._live().tables(asked, self._points, plain))
        return [b"".join(next(masked) for _ in own.asked) for own in self._tasks]


def _tree(comparison: Comparison) -> list[Bytes]:
    # Leaves: lt and eq of each digit, masked; triples: products of fresh random bits, masked.
    spec, shape = comparison.spec, comparison.plan
    plain: list[Bytes] = []
    leaves: list[int] = []
    for digit, lookup in zip(digits_of(comparison.value, spec.bits), shape.leaves, strict=True):
        mask = entropy.bits(lookup.outputs)
        table = relation(digit, lookup)
        for output, bit in enumerate(mask):
            table[output] ^= bit
        plain.append(table)
        leaves.append(number_of(mask))
    triples: list[list[int]] = []
    products: list[int] = []
    for lookup in shape.triples:
        factors, mask = entropy.bits(lookup.widths[0]), entropy.bits(lookup.outputs)
        plain.append(product(lookup, factors, mask))
        triples.append(factors)
        products.append(number_of(mask))
    comparison.tree = TreeShares(
        shape,
        sender=True,
        leaves=leaves,
        triples=triples,
        products=products,
    )
    return plain


# R: holds y, asks for one entry per table, and reads no other.


class Receiver(LookupReceiver[Spec, int, Comparison]):
    """The party whose value stands on the right: [x < y], sign(x − y)."""

    _rules = RULES

    def _compose_tasks(self, position: int) -> bytes:
        if position > 0:
            check = self._check
            return b"".join(own.compose(own.part(position), check) for own in self._tasks)
        points = []
        for comparison in self._tasks:
            for asked, index in zip(comparison.asked, _indices(comparison), strict=True):
                sent, pads = self._live().choose(asked, index)
                points.append(sent)
                comparison.kept.append((index, pads))
        return b"".join(points)

    def _take_tasks(self, position: int, message: bytes, check: int) -> None:
        for comparison, part, tables, rest in cut_parts(self._tasks, position, message):
            if tables:
                _read(comparison, tables)
            comparison.receive(part, rest, check)


def _indices(comparison: Comparison) -> list[int]:
    # The direct form looks up y itself; the tree its digits, and random bits for the triples.
    shape = comparison.plan
    if not shape.levels:
        return [comparison.value]
    random = [entropy.draw(1)[0] % lookup.entries for lookup in shape.triples]
    return digits_of(comparison.value, comparison.spec.bits) + random


def _read(comparison: Comparison, tables: bytes) -> None:
    # One entry per table, and what follows from the entries.
    shape = comparison.plan
    entries: list[int] = []
    offset = 0
    for lookup, (index, pads) in zip(shape.lookups, comparison.kept, strict=True):
        entries.append(unmask(lookup, tables[offset : offset + lookup.table_bytes], pads, index))
        offset += lookup.table_bytes
    if not shape.levels:
        comparison.learn(entries[0])
    else:
        leaves = len(shape.leaves)
        comparison.tree = TreeShares(
            shape,
            sender=False,
            leaves=entries[:leaves],
            triples=[
                [index >> place & 1 for place in reversed(range(lookup.widths[0]))]
                for lookup, (index, _) in zip(shape.triples, comparison.kept[leaves:], strict=True)
            ],
            products=entries[leaves:],
        )
    comparison.kept = []


# Comparisons as workers serve them: one value of 64 bits for each party.


class ComparisonProtocol:
    """Opens senders and receivers."""

    def open(self, me: int, peer: int, group: Group, *, sender: bool) -> Sender | Receiver:
        """A party of a new session."""
        return (Sender if sender else Receiver)(me, peer, group=group)

    def encode(self, spec: Spec, values: Ints) -> tuple[bytes, bytes]:
        """A spec, and [parties] values, as `items` reads them."""
        return (
            msgspec.msgpack.encode((spec.bits, spec.kind.value)),
            values.astype(np.int64).tobytes(),
        )

    def items(self, spec: bytes, values: bytes, count: int) -> Iterator[tuple[Spec, int]]:
        """(spec, own value) of each party."""
        bits, kind = msgspec.msgpack.decode(spec, type=tuple[int, str])
        decoded = Spec(bits, Kind(kind))
        return ((decoded, value) for value in np.frombuffer(values, np.int64, count).tolist())


PROTOCOL = ComparisonProtocol()
