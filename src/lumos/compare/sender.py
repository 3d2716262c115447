"""S: holds x, opens the session, answers every digit of R with a table."""

from lumos.compare.comparison_state import RULES, Comparison, cut_parts
from lumos.compare.shares import TreeShares, digits_of, number_of, product, relation
from lumos.compare.spec import Kind, Spec
from lumos.crypto import entropy
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.session.lookup_parties import LookupSender
from lumos.typing import Bytes


class Sender(LookupSender[Spec, int, Comparison]):
    """The party whose value stands on the left: [x < y], [x ≤ y], sign(x − y)."""

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, RULES, group)
        self._points = b""

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._points = b""

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
            plain += _direct(comparison) if not comparison.plan.levels else _tree(comparison)
        asked = [one for comparison in self._tasks for one in comparison.asked]
        masked = iter(self._live().tables(asked, self._points, plain))
        return [b"".join(next(masked) for _ in own.asked) for own in self._tasks]


def _direct(comparison: Comparison) -> list[Bytes]:
    # One table over all values of y; masked as a whole where R may not learn the entry.
    spec, lookup = comparison.spec, comparison.plan.leaves[0]
    table = relation(spec.kind, comparison.value, lookup, leaf=False)
    if not spec.receiver_learns:
        mask = entropy.bits(spec.outputs)
        comparison.share = number_of(mask)
        for output, bit in enumerate(mask):
            table[output] ^= bit
    return [table]


def _tree(comparison: Comparison) -> list[Bytes]:
    # Leaves: lt and eq of each digit, masked; triples: products of fresh random bits, masked.
    spec, shape = comparison.spec, comparison.plan
    plain: list[Bytes] = []
    leaves: list[int] = []
    for digit, lookup in zip(digits_of(comparison.value, spec.bits), shape.leaves, strict=True):
        mask = entropy.bits(lookup.outputs)
        table = relation(spec.kind, digit, lookup, leaf=True)
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
        flip=spec.kind is Kind.LE,
    )
    return plain
