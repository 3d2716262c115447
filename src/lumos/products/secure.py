"""Products of matched devices in rounds: real messages through the exchange, a session per end."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from lumos.aggregate.fixed_point import FixedPoint, RingWords
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.crypto.in_memory import InMemoryOnly
from lumos.device.shard import Shard
from lumos.errors import UsageError
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Topic
from lumos.products.inputs import check_pairs, check_vectors
from lumos.products.pair_mail import PairMail
from lumos.products.pair_session import (
    CHECK,
    OPENING,
    POINTS_MESSAGE,
    PairSession,
    columns_message,
    correction_message,
)
from lumos.products.topics import BASE_POINTS, COLUMNS, CORRECTION, OPEN_PAIR
from lumos.typing import Flags, Ints


class PairShares(NamedTuple):
    """The hosted devices' shares of the products of their pairs."""

    words: RingWords
    """[hosted, words · width] zero where there is none."""
    held: Flags
    """[hosted] who holds a share."""


class SecureProducts(InMemoryOnly):
    """The backend `secure` of one shard. Its sessions live in memory: after a restart, a new setup.
    A device that keeps its secret draws the same again in it.

    Guarantee: against a semi-honest partner, whatever passes here is independent of a device's
    words and numbers; each share is uniform, and only both together are the product.

    A partner that falls silent costs the pair its product and nothing else; a message that was
    changed on its way closes the session and raises a `ProtocolError`.

    Args:
        shard: the hosted devices.
        endpoint: unused; for the same signature as the ideal backend.
        fixed: the fixed point of the sum that the shares enter.
    """

    label = "secure"

    def __init__(
        self, shard: Shard, endpoint: Endpoint, fixed: FixedPoint, *, group: Group = ED25519
    ) -> None:
        self._shard = shard
        self._fixed = fixed
        self._group = group
        self._sessions: dict[int, PairSession] = {}
        self._mail: PairMail | None = None
        self._words = 0

    def setup(self, partner: Ints, chosen: csr_array) -> Program[None]:
        """Open the sessions of all pairs: base transfers and their extension, once per run.

        Args:
            partner: [hosted] id of each device's partner, or -1.
            chosen: [hosted, words] 1 where a device chose the word, else 0.
        """
        check_pairs(self._shard, partner, chosen)
        self._mail, self._words = PairMail(self._shard, partner.copy()), chosen.shape[1]
        for session in self._sessions.values():
            session.close()
        self._sessions = {}
        for row in np.flatnonzero(partner >= 0).tolist():
            bits = np.zeros(self._words, np.bool_)
            bits[chosen.indices[chosen.indptr[row] : chosen.indptr[row + 1]]] = True
            me, peer = int(self._shard.devices[row]), int(partner[row])
            self._sessions[row] = PairSession(me, peer, bits, self._fixed, group=self._group)
        bodies = {row: session.opening() for row, session in self._sessions.items()}
        received = yield from self._swap(OPEN_PAIR, bodies, OPENING)
        bodies = {row: self._sessions[row].points(body) for row, body in received.items()}
        received = yield from self._swap(BASE_POINTS, bodies, POINTS_MESSAGE)
        bodies = {row: self._sessions[row].columns(body) for row, body in received.items()}
        received = yield from self._swap(COLUMNS, bodies, columns_message(self._words))
        for row, body in received.items():
            self._sessions[row].extend(body)
        for row in [row for row, session in self._sessions.items() if not session.ready]:
            self._sessions.pop(row).close()  # its partner fell silent

    def multiply(
        self,
        vectors: npt.NDArray[np.int8],
        step: int,
        attempt: int,
        taking_part: Flags | None = None,
    ) -> Program[PairShares]:
        """The shares of b_u ⊗ Z_v + b_v ⊗ Z_u of all pairs (u, v).

        Args:
            vectors: [hosted, width] Z of each device, -127 to 127.
            step: number of the sum.
            attempt: number of the attempt; (step, attempt) grows from call to call.
            taking_part: [hosted] whose pairs are multiplied; None: all.
        """
        check_vectors(self._shard, vectors)
        width = vectors.shape[1]
        bodies = {
            row: session.correction(vectors[row], step, attempt)
            for row, session in self._sessions.items()
            if taking_part is None or taking_part[row]
        }
        size = correction_message(self._words, width, self._fixed.word)
        received = yield from self._swap(CORRECTION, bodies, size)
        words = np.zeros((len(self._shard), self._words * width), self._fixed.dtype)
        held = np.zeros(len(self._shard), np.bool_)
        for row, body in received.items():
            words[row] = self._sessions[row].share(body, step, attempt).ravel()
            held[row] = True
        return PairShares(words, held)

    def say(
        self, topic: Topic, purpose: bytes, speaking: Flags, step: int, attempt: int
    ) -> Program[Flags]:
        """Say a word to the partner that proves who speaks.

        Args:
            purpose: what the word says.
            speaking: [hosted] who says it.

        Returns:
            [hosted] who said it, and heard it from its partner.
        """
        bodies = {
            row: self._sessions[row].word(purpose, step, attempt, mine=True)
            for row in np.flatnonzero(speaking).tolist()
        }
        received = yield from self._swap(topic, bodies, CHECK)
        heard = np.zeros(len(self._shard), np.bool_)
        for row, word in received.items():
            self._sessions[row].check_word(word, purpose, step, attempt)
            heard[row] = True
        return heard

    def _swap(self, topic: Topic, bodies: dict[int, bytes], size: int) -> Program[dict[int, bytes]]:
        if self._mail is None:
            raise UsageError("the first product of a run needs setup() before it")
        return (yield from self._mail.swap(topic, bodies, size))
