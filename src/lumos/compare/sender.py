"""S: holds x, opens the session, answers every digit of R with a table."""

from lumos.compare.comparison_state import Comparison
from lumos.compare.errors import SessionClosed
from lumos.compare.lookup import SenderKeys, session_id
from lumos.compare.party import Party
from lumos.compare.shares import TreeShares, digits_of, number_of, product, relation
from lumos.compare.spec import NONCE, Kind
from lumos.crypto import entropy
from lumos.crypto.group import ED25519, Group
from lumos.typing import Bytes


class Sender(Party):
    """The party whose value stands on the left: [x < y], [x ≤ y], sign(x − y)."""

    _is_sender = True

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer)
        self._nonce = entropy.draw(NONCE)
        self._keys: SenderKeys | None = SenderKeys(group)
        self._points = b""

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys = None
        self._points = b""

    def _live(self) -> SenderKeys:
        if self._keys is None:
            raise SessionClosed("the session is closed; open a new one")
        return self._keys

    def _compose(self, position: int) -> bytes:
        if position < 0:
            return self._nonce + self._live().A
        check = self._check
        tables = self._tables() if position == 1 else [b""] * len(self._comparisons)
        rest = [own.compose(own.part(position), check) for own in self._comparisons]
        return b"".join(table + after for table, after in zip(tables, rest, strict=True))

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position > 0:
            self._receive_parts(position, message, check)
            return
        if self._opening:
            keys, nonce = self._live(), message[:NONCE]
            opening = self._nonce + keys.A
            keys.bind(session_id(self._sender_id, self._receiver_id, opening, nonce))
            message = message[NONCE:]
        self._points = message

    def _tables(self) -> list[bytes]:
        plain: list[Bytes] = []
        for comparison in self._comparisons:
            plain += _direct(comparison) if not comparison.plan.levels else _tree(comparison)
        asked = [one for comparison in self._comparisons for one in comparison.asked]
        masked = iter(self._live().tables(asked, self._points, plain))
        return [b"".join(next(masked) for _ in own.asked) for own in self._comparisons]


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
