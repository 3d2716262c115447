"""One comparison of a batch, as one of its two parties sees it."""

from collections.abc import Iterator, Sequence
from operator import index

from lumos.compare.shares import TreeShares, outcome, pack, unpack
from lumos.compare.spec import Part, Reveal, Spec, messages, opened_bits, parts, plan
from lumos.crypto.in_memory import InMemoryOnly
from lumos.session.errors import BadValue
from lumos.session.lookup import Query
from lumos.session.party import Rules
from lumos.session.transcript_check import decode_answer, encode_answer, words_for


def fitting(value: int, bits: int) -> int:
    """The value as a plain integer, if it is one of so many bits."""
    try:
        plain = index(value)
    except TypeError:
        raise BadValue("a value is not an integer") from None
    if not 0 <= plain < 1 << bits:
        raise BadValue(f"a value does not fit the {bits} bits of its comparison")
    return plain


class Comparison(InMemoryOnly):
    """One comparison of the current batch, as one party sees it.

    Its result is 1 or 0 for ``lt`` and ``le``, the sign of x − y for ``three_way``; where only
    shares are revealed, a share of lt + 2·eq, to be XORed with the other party's.

    value: this party's own input. share: its share of the direct form's table entry.
    """

    __slots__ = ("asked", "kept", "outcome_bits", "parts", "plan", "share", "spec", "tree", "value")

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
        self.share = 0
        self.tree: TreeShares | None = None
        self.outcome_bits: int | None = None

    @property
    def digits(self) -> int:
        """Points that R sends."""
        return self.plan.digits

    def is_checked(self, position: int) -> bool:
        """Whether this part holds tables or opened levels."""
        part = self.part(position)
        return bool(part.tables or part.opened)

    def part(self, position: int) -> Part:
        """This comparison's part of a message of the batch; empty when it has ended."""
        return self.parts[position] if position < len(self.parts) else Part()

    def final_share(self) -> int:
        """This party's share of lt + 2·eq."""
        return self.share if self.tree is None else self.tree.root()

    def compose(self, part: Part, check: int) -> bytes:
        """The levels opened in this part, and its answer."""
        message = b""
        if self.tree is not None and part.opened:
            message = pack([bit for level in part.opened for bit in self.tree.open(level)])
        if part.answer:
            message += encode_answer(self._answer(part), check)
        return message

    def _answer(self, part: Part) -> int:
        if self.outcome_bits is not None and not part.opened:
            return self.outcome_bits
        return self.final_share()

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
            # Who learns with the other gets the outcome, unless openings come with it.
            whole = self.spec.reveal is Reveal.BOTH and not part.opened
            self.learn(answer if whole else answer ^ self.final_share())

    def learn(self, bits: int) -> None:
        """Take the outcome, lt + 2·eq."""
        outcome(self.spec, bits)
        self.outcome_bits = bits

    def result(self) -> int | None:
        """The outcome, this party's share, or None if it may not learn."""
        if self.spec.reveal is Reveal.SHARES:
            return self.final_share()
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
