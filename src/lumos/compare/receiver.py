"""R: holds y, asks for one entry per table, and reads no other."""

from lumos.compare.comparison_state import RULES, Comparison, cut_parts
from lumos.compare.shares import TreeShares, digits_of
from lumos.compare.spec import Spec
from lumos.crypto import entropy
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.session.lookup import unmask
from lumos.session.lookup_parties import LookupReceiver


class Receiver(LookupReceiver[Spec, int, Comparison]):
    """The party whose value stands on the right: [x < y], [x ≤ y], sign(x − y)."""

    def __init__(self, me: int, peer: int, *, group: Group = ED25519) -> None:
        super().__init__(me, peer, RULES, group)

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
