"""The ideal products: partners exchange their numbers in the clear, booked as the secure ones.

For simulations only. Device u then adds b_u ⊗ Z_v itself, and nobody holds a share.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.aggregate.fixed_point import FixedPoint
from lumos.device.shard import Shard
from lumos.errors import ProtocolError, UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.exchange.traffic import Booking
from lumos.products.inputs import check_pairs, check_vectors
from lumos.products.pair_session import SCALE_BITS, columns_message, correction_message
from lumos.products.topics import (
    BASE_POINTS,
    COLUMNS,
    CORRECTION,
    OPEN_PAIR,
    PRESENT,
    READY,
    SETUP_ROUNDS,
)
from lumos.typing import Doubles, Ints

CLEAR = Topic(
    name="products/ideal",
    door=Door.AGGREGATE,
    shape=None,
    learns="partners get random shares (a simulation exchanged their numbers in the clear)",
)
BOOKED = {
    topic: replace(topic, name=f"{topic.name}/ideal")
    for topic in (OPEN_PAIR, BASE_POINTS, COLUMNS, CORRECTION, READY, PRESENT)
}
"""The topics of the secure products, as the ideal ones book them."""
IDEAL_TOPICS = frozenset({CLEAR, *BOOKED.values()})
"""What a carrier has to permit for this backend."""


class IdealProducts:
    """The backend `ideal` of one shard; nobody falls silent.

    Args:
        shard: the hosted devices.
        endpoint: whose ledger is booked.
        fixed: the fixed point of the sum that the products enter.
    """

    label = "ideal"

    def __init__(self, shard: Shard, endpoint: Endpoint, fixed: FixedPoint) -> None:
        self._shard = shard
        self._ledger = endpoint.ledger
        self._ledger.require_permission(CLEAR)
        self._fixed = fixed
        self._partner: Ints = np.empty(0, np.int64)
        self._paired: Ints = np.empty(0, np.int64)
        self._by_word: csr_array | None = None

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Book the sessions of all pairs; arguments as in the secure backend."""
        yield from ()
        check_pairs(self._shard, partner, chosen)
        self._partner = partner.copy()
        self._paired = np.flatnonzero(partner >= 0)
        self._by_word = chosen[self._paired].T.astype(np.float64).tocsr()
        words = chosen.shape[1]
        self.book(OPEN_PAIR, OPEN_PAIR.size)
        self.book(BASE_POINTS, BASE_POINTS.size)
        self.book(COLUMNS, columns_message(words))
        self._ledger.round += SETUP_ROUNDS

    def multiply(self, vectors: npt.NDArray[np.int8], step: int, attempt: int) -> Program[Doubles]:
        """[words · width] Σ b_u ⊗ Z_v / 128 over hosted devices u with a partner v.

        Over all shards it adds up to what the shares of the secure backend add up to.
        """
        check_vectors(self._shard, vectors)
        if self._by_word is None:
            raise UsageError("the first product of a run needs setup() before it")
        rows, width = self._paired, vectors.shape[1]
        body = np.ascontiguousarray(vectors[rows]).view(np.uint8)
        inbox = yield CLEAR.send(
            self._shard.devices[rows],
            self._partner[rows],
            body.reshape(len(rows), width),
            lengths=np.full(len(rows), width),
        )
        # Sorted by receiver, as the hosted devices are, one each.
        if not np.array_equal(inbox.receiver, self._shard.devices[rows]) or not np.array_equal(
            inbox.sender, self._partner[rows]
        ):
            raise ProtocolError("a partner did not send the message that is due; run again")
        self.book(CORRECTION, correction_message(self._by_word.shape[0], width, self._fixed.word))
        received = inbox.body.reshape(len(rows), width).view(np.int8).astype(np.float64)
        # Sums of whole numbers, exact in float64.
        product = self._by_word @ received
        scaled: Doubles = np.asarray(product).ravel() * 2.0**-SCALE_BITS
        return scaled

    def book(self, topic: Topic, size: int) -> None:
        """Book one message of `size` bytes each way for every pair, and its round."""
        if len(self._paired):
            self._ledger.book(BOOKED[topic], self._paired, Booking(1, 1, size, size))
            self._ledger.book_rounds(self._paired, 1)
