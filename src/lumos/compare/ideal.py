"""The ideal comparison: computed in the clear, booked as the secret one, labelled `ideal`.

For simulations only. The two values meet in one swap; the ledger books, by formula, the messages,
bytes and rounds that the secret comparison would have needed.
"""

import numpy as np

from lumos.compare.rounds import Flags, Ints, Pairs, Signs
from lumos.compare.sessions import Sessions
from lumos.compare.plan import OPENING, RECEIVER_NONCE, messages
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic

CLEAR = Topic(
    name="compare/ideal",
    door=Door.COMPARE,
    dtype=np.int64,
    booked=True,
    learns="both ends learn the answer (a simulation computed it in the clear)",
)


class IdealComparer:
    """The backend `ideal` of one shard."""

    label = "ideal"

    def __init__(self, shard: Shard, endpoint: Endpoint) -> None:
        self._shard = shard
        self._ledger = endpoint.ledger
        self._sessions = Sessions(shard)

    def less(self, pairs: Pairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        mine, theirs = yield from self._meet(pairs, values, bits, ways=2)
        return np.where(pairs.first, mine < theirs, theirs < mine)

    def three_way(self, pairs: Pairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        mine, theirs = yield from self._meet(pairs, values, bits, ways=3)
        return np.sign(mine - theirs).astype(np.int8)

    def _meet(self, pairs: Pairs, values: Ints, bits: int, ways: int) -> Program[tuple[Ints, Ints]]:
        mine = np.minimum(values, 2**bits - 1)
        inbox = yield CLEAR.send(self._shard.devices[pairs.rows], pairs.peers, mine)
        self._book(pairs, bits, ways)
        return mine, inbox.body  # the inbox is sorted as the pairs are, one message each

    def _book(self, pairs: Pairs, bits: int, ways: int) -> None:
        plan = messages(bits, ways)
        ledger, first = self._ledger, pairs.first
        ledger.round += len(plan)  # the swap itself stood for the opening message's round
        if not len(pairs):
            return
        fresh = self._sessions.open(pairs)
        down = [length for from_sender, length in plan if from_sender]
        up = [length for from_sender, length in plan if not from_sender]
        # What S sends to R and R to S, with the opening message and R's nonce in a fresh session.
        down_messages = fresh + np.int64(len(down))
        down_bytes = fresh * OPENING + np.int64(sum(down))
        up_messages = np.full(len(pairs), len(up), np.int64)
        up_bytes = fresh * RECEIVER_NONCE + np.int64(sum(up))
        ledger.book(
            CLEAR,
            pairs.rows,
            sent=np.where(first, down_messages, up_messages),
            got=np.where(first, up_messages, down_messages),
            nbytes=np.where(first, down_bytes, up_bytes),
            into=np.where(first, up_bytes, down_bytes),
        )
        ledger.book_rounds(pairs.rows, len(plan))
        ledger.book_rounds(pairs.rows[fresh], 1)
        ledger.answered(pairs.rows, pairs.slots, pairs.peers, ways)
