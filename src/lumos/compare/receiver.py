"""R: holds y, asks for one entry per table, and reads no other."""

from lumos.compare.comparison_state import Comparison
from lumos.compare.errors import SessionClosed
from lumos.compare.lookup import ReceiverKeys, session_id, unmask
from lumos.compare.party import Party
from lumos.compare.shares import TreeShares, digits_of
from lumos.compare.spec import NONCE
from lumos.crypto import entropy
from lumos.crypto.group import ED25519, Group


class Receiver(Party):
    """The party whose value stands on the right: [x < y], [x ≤ y], sign(x − y)."""

    _is_sender = False

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer)
        self._group = group
        self._nonce = entropy.draw(NONCE)
        self._keys: ReceiverKeys | None = None

    def close(self) -> None:
        """Forget every secret; the session answers nothing any more."""
        super().close()
        self._keys = None

    def _live(self) -> ReceiverKeys:
        if self._keys is None:
            raise SessionClosed("the session is closed; open a new one")
        return self._keys

    def _compose(self, position: int) -> bytes:
        if position > 0:
            check = self._check
            return b"".join(own.compose(own.part(position), check) for own in self._comparisons)
        points = [self._nonce] if self._opening else []
        for comparison in self._comparisons:
            for asked, index in zip(comparison.asked, _indices(comparison), strict=True):
                sent, pads = self._live().choose(asked, index)
                points.append(sent)
                comparison.kept.append((index, pads))
        return b"".join(points)

    def _receive_tables(self, comparison: Comparison, tables: bytes) -> None:
        _read(comparison, tables)

    def _take(self, position: int, message: bytes, check: int) -> None:
        if position < 0:
            sid = session_id(self._sender_id, self._receiver_id, message, self._nonce)
            self._keys = ReceiverKeys(message[NONCE:], sid, self._group)
        else:
            self._receive_parts(position, message, check)


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
        comparison.share = entries[0]
        if comparison.spec.receiver_learns:
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
