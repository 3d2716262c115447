"""The ideal comparison: computed in the clear, booked as the secret one, labelled `ideal`.

For simulations only. The two values meet in one swap; the ledger books, by formula, the messages,
bytes and rounds that the secret comparison would have needed.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from lumos.compare.comparer import Signs
from lumos.compare.open_sessions import Sessions
from lumos.compare.spec import Kind, Spec, messages
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.exchange.traffic import Booking
from lumos.session.message_list import NONCE
from lumos.session.pairs import ComparedPairs
from lumos.typing import Flags, Ints

CLEAR = Topic(
    name="compare/ideal",
    door=Door.COMPARE,
    dtype=np.int64,
    learns="both ends learn the answer (a simulation computed it in the clear)",
)
IDEAL_TOPICS = frozenset({CLEAR})
"""What a carrier has to permit for this backend."""


class IdealComparer:
    """The backend `ideal` of one shard.

    Args:
        budget: most bits that the answers of one pair may reveal, or None.
        group: whose secret comparison is booked: its points have a size.
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        budget: float | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._point = group.point_bytes
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self._sessions = Sessions(shard, endpoint.ledger, budget, group)

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        mine, theirs = yield from self._meet(pairs, values, _plan(bits, 2, self._point))
        return np.where(pairs.first, mine < theirs, theirs < mine)

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        mine, theirs = yield from self._meet(pairs, values, _plan(bits, 3, self._point))
        signs: Signs = np.sign(mine - theirs).astype(np.int8)
        return signs

    def _meet(
        self, pairs: ComparedPairs, values: Ints, plan: "_Plan"
    ) -> Program[tuple[Ints, Ints]]:
        mine = np.minimum(values, 2**plan.bits - 1)
        fresh = self._sessions.open(pairs, plan.bits, plan.ways)
        inbox = yield CLEAR.send(self._shard.ids_of(pairs.rows), pairs.peers, mine)
        # Sorted as the pairs are, one each.
        if inbox.sender.size != pairs.peers.size or np.count_nonzero(inbox.sender != pairs.peers):
            raise ProtocolError("a peer did not send the message that is due; run again")
        self._book(pairs, fresh, plan)
        return mine, inbox.body

    def _book(self, pairs: ComparedPairs, fresh: Flags, plan: "_Plan") -> None:
        ledger, rows, first = self._ledger, pairs.rows, pairs.first
        ledger.round += plan.rounds  # the swap itself stood for the opening message's round
        if not rows.size:
            return
        ledger.book(CLEAR, rows[first], plan.as_sender)
        ledger.book(CLEAR, rows[~first], plan.as_receiver)
        ledger.book_rounds(rows, plan.rounds)
        if np.count_nonzero(fresh):
            ledger.book(CLEAR, rows[first & fresh], plan.opening)
            ledger.book(CLEAR, rows[~first & fresh], _other_end(plan.opening))
            ledger.book_rounds(rows[fresh], 1)


def _other_end(booking: Booking) -> Booking:
    return Booking(booking.received, booking.sent, booking.bytes_received, booking.bytes_sent)


class _Plan(NamedTuple):
    """What one comparison stands for: rounds, and messages at S and at R in an open session.

    opening: what is added at S where the session is new.
    """

    bits: int
    ways: int
    rounds: int
    as_sender: Booking
    as_receiver: Booking
    opening: Booking


@cache
def _plan(bits: int, ways: int, point: int) -> _Plan:
    spec = Spec(bits, Kind.THREE_WAY if ways == 3 else Kind.LT)
    plan = messages([spec], first=False, point=point)
    down = [message.length for message in plan if not message.to_sender]
    up = [message.length for message in plan if message.to_sender]
    as_sender = Booking(len(down), len(up), sum(down), sum(up))
    # S sends the opening, and R's first message is longer by its nonce.
    opening = Booking(1, 0, NONCE + point, NONCE)
    return _Plan(bits, ways, len(plan), as_sender, _other_end(as_sender), opening)
