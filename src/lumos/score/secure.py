"""The secret score in rounds: real messages through the exchange, one party for each end."""

import numpy as np

from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.exchange.batch import Inbox
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.score.level_spec import LevelSpec, messages
from lumos.score.score_protocol import PROTOCOL
from lumos.score.scorer import count_scores, own_inputs
from lumos.session.pairs import ComparedPairs
from lumos.session.party_batch import PartyBatch
from lumos.session.workers import OnSteps, Workers
from lumos.typing import Ints, Small

SECRET = Topic(
    name="score",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the level of the product, and nothing else of the other's vector",
)


class SecureScorer:
    """The backend `secure` of one shard.

    Guarantee: against a semi-honest peer, what a device receives here is a function of its own
    vector and the level (see docs/privacy.md for the assumptions).
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        workers: Workers,
        on_steps: OnSteps | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._ledger = endpoint.ledger
        self._workers = workers
        self._on_steps = on_steps
        self._group = group

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
        batch = PartyBatch(
            SECRET, "score", self._group, self._shard, self._workers, self._on_steps, pairs
        )
        batch.begin(*PROTOCOL.encode(spec, own, own_shifts))
        senders, receivers = np.flatnonzero(pairs.first), np.flatnonzero(~pairs.first)
        inbox: Inbox | None = None
        for message in messages([spec], first=True, point=self._group.point_bytes):
            sending = receivers if message.to_sender else senders
            bodies = batch.step(sending, message.length, inbox)
            inbox = yield batch.send(sending, bodies, message.length)
        batch.step(senders, 0, inbox)
        return batch.results(close=True)
