"""The ideal score: computed in the clear, booked as the secret one, labelled `ideal`.

For simulations only. The two vectors meet in one swap; the ledger books, by formula, the messages,
bytes and rounds that the secret score would have needed.
"""

import numpy as np

from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.exchange.traffic import Booking
from lumos.score.level_spec import LevelSpec, levels_of, messages
from lumos.score.scorer import count_scores, own_inputs
from lumos.session.pairs import ComparedPairs
from lumos.typing import Ints, Small

CLEAR = Topic(
    name="score/ideal",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the level of the product (a simulation computed it in the clear)",
)
IDEAL_TOPICS = frozenset({CLEAR})
"""What a carrier has to permit for this backend."""


class IdealScorer:
    """The backend `ideal` of one shard. It books the secret score of `group`."""

    def __init__(self, shard: Shard, endpoint: Endpoint, group: Group = ED25519) -> None:
        self._shard = shard
        self._group = group
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)

    def levels(
        self,
        pairs: ComparedPairs,
        vectors: Small,
        spec: LevelSpec,
        shifts: Ints | None = None,
    ) -> Program[Ints]:
        """[pairs] the level of each pair; both ends learn it."""
        own, own_shifts = own_inputs(pairs, vectors, spec, shifts)
        count_scores(self._ledger, pairs, spec, self._group)
        # [pairs, width + 1] bytes: the vector, and the shift.
        mine = np.hstack([own, own_shifts[:, None]]).astype(np.int8)
        lengths = np.full(len(pairs), spec.width + 1, np.int64)
        devices = self._shard.ids_of(pairs.rows)
        inbox = yield CLEAR.send(devices, pairs.peers, mine.view(np.uint8), lengths=lengths)
        # Sorted as the pairs are, one each.
        if inbox.sender.size != len(pairs) or np.count_nonzero(inbox.sender != pairs.peers):
            raise ProtocolError("a peer did not send the message that is due; run again")
        self._book(pairs, spec)
        if not len(pairs):
            return np.empty(0, np.int64)
        theirs = inbox.body.view(np.int8).astype(np.int64)
        products = np.einsum("ij,ij->i", own, theirs[:, :-1])
        return (levels_of(products, spec) + theirs[:, -1]) % spec.levels

    def _book(self, pairs: ComparedPairs, spec: LevelSpec) -> None:
        plan = messages([spec], first=True, point=self._group.point_bytes)
        down = [message.length for message in plan if not message.to_sender]
        up = [message.length for message in plan if message.to_sender]
        ledger, rows, first = self._ledger, pairs.rows, pairs.first
        ledger.round += len(plan) - 1  # the swap itself stood for the opening message's round
        if rows.size:
            ledger.book(CLEAR, rows[first], Booking(len(down), len(up), sum(down), sum(up)))
            ledger.book(CLEAR, rows[~first], Booking(len(up), len(down), sum(up), sum(down)))
            ledger.book_rounds(rows, len(plan))
