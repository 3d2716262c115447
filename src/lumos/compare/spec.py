"""What is compared, and the public list of messages that follows from it.

Everything here is public and fixed before the first byte is sent: who sends when, and how
many bytes. The ideal backend books from this module, the secure one is checked against it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

from lumos.crypto.ed25519 import POINT
from lumos.errors import UsageError
from lumos.session.lookup import Lookup, digit_widths
from lumos.session.message_list import CHECK, NONCE, Message

MAX_BITS = 32
DIRECT_BITS = 12


class Kind(StrEnum):
    """Which relation of the sender's x to the receiver's y is computed."""

    LT = "lt"
    LE = "le"
    THREE_WAY = "three_way"


class Reveal(StrEnum):
    """Who learns the outcome."""

    BOTH = "both"
    SENDER = "sender"
    RECEIVER = "receiver"
    SHARES = "shares"


@dataclass(frozen=True, slots=True)
class Spec:
    """One comparison: bits of the values, relation, and who learns it."""

    bits: int
    kind: Kind = Kind.LT
    reveal: Reveal = Reveal.BOTH
    #: Two bytes that name the comparison in every pad and in the check.
    code: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise UsageError(f"bits must be 1 to {MAX_BITS}, not {self.bits}")
        try:
            object.__setattr__(self, "kind", Kind(self.kind))
            object.__setattr__(self, "reveal", Reveal(self.reveal))
        except ValueError as error:
            names = ", ".join([*Kind, *Reveal])
            raise UsageError(f"{error}; kinds and reveals are: {names}") from None
        kind, reveal = list(Kind).index(self.kind), list(Reveal).index(self.reveal)
        object.__setattr__(self, "code", bytes([self.bits, kind << 4 | reveal]))

    @property
    def outputs(self) -> int:
        """Bits that a comparison yields: lt, or lt and eq."""
        return 2 if self.kind is Kind.THREE_WAY else 1

    @property
    def ways(self) -> int:
        """Number of possible outcomes."""
        return 3 if self.kind is Kind.THREE_WAY else 2

    @property
    def sender_learns(self) -> bool:
        """Whether the outcome is revealed to the sender."""
        return self.reveal in (Reveal.BOTH, Reveal.SENDER)

    @property
    def receiver_learns(self) -> bool:
        """Whether the outcome is revealed to the receiver."""
        return self.reveal in (Reveal.BOTH, Reveal.RECEIVER)


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
    2, S levels 2 and 3, and so on. Whoever opens the last level second (the closer) has its
    final share then and adds it if the other may learn; the other answers with the outcome, or
    with its own share if only the closer may learn.
    """
    shape = plan(spec.bits, spec.outputs)
    depth = len(shape.levels)
    tables = sum(lookup.table_bytes for lookup in shape.lookups)
    listed = [Part(points=shape.digits), Part(tables=tables, opened=(0,) if depth else ())]
    for level in range(depth):
        following = (level, level + 1) if level + 1 < depth else (level,)
        listed.append(Part(opened=following))
    closer_is_sender = len(listed) % 2 == 0
    closer_learns = spec.sender_learns if closer_is_sender else spec.receiver_learns
    other_learns = spec.receiver_learns if closer_is_sender else spec.sender_learns
    # In the direct form the table itself carries the closer's share.
    if depth and other_learns:
        listed[-1] = listed[-1]._replace(answer=True)
    if closer_learns:
        listed.append(Part(answer=True))
    return tuple(listed)


def opened_bits(spec: Spec, part: Part) -> list[int]:
    """Bits of each level that a part opens."""
    if not part.opened:
        return []
    levels = plan(spec.bits, spec.outputs).levels
    return [sum(merge.opened for merge in levels[level]) for level in part.opened]


def messages(specs: Sequence[Spec], *, first: bool, point: int = POINT) -> tuple[Message, ...]:
    """Who sends how many bytes in a batch.

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
