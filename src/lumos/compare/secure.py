"""The secret comparison in rounds: real messages through the exchange, one party for each end."""

import numpy as np

from lumos.compare.comparer import Signs, spec_of
from lumos.compare.comparison_protocol import PROTOCOL
from lumos.compare.open_sessions import Sessions
from lumos.compare.spec import Kind, Spec, messages
from lumos.crypto.ed25519 import ED25519
from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.exchange.endpoint import Endpoint, Program
from lumos.exchange.topic import Door, Topic
from lumos.session.message_list import NONCE
from lumos.session.pairs import ComparedPairs
from lumos.session.party_batch import PartyBatch
from lumos.session.workers import OnSteps, Workers
from lumos.typing import Flags, Ints

SECRET = Topic(
    name="compare",
    door=Door.COMPARE,
    shape=None,
    learns="both ends learn the answer, and nothing else of the other's value",
)


class SecureComparer:
    """The backend `secure` of one shard.

    Guarantee: against a semi-honest peer, what a device receives here is a function of its own
    input and the answer (see docs/privacy.md for the assumptions).
    """

    def __init__(
        self,
        shard: Shard,
        endpoint: Endpoint,
        workers: Workers,
        on_steps: OnSteps | None = None,
        budget: float | None = None,
        group: Group = ED25519,
    ) -> None:
        self._shard = shard
        self._sessions = Sessions(shard, endpoint.ledger, budget, group)
        self._group = group
        self._workers = workers
        self._on_steps = on_steps

    def less(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Flags]:
        """For each pair, whether S's value is below R's."""
        learned = yield from self._compare(pairs, values, spec_of(bits, Kind.LT))
        below: Flags = learned != 0
        return below

    def three_way(self, pairs: ComparedPairs, values: Ints, bits: int) -> Program[Signs]:
        """For each pair the sign of (own value - peer's value)."""
        learned = yield from self._compare(pairs, values, spec_of(bits, Kind.THREE_WAY))
        return np.where(pairs.first, learned, -learned).astype(np.int8)

    def _compare(self, pairs: ComparedPairs, values: Ints, spec: Spec) -> Program[Ints]:
        fresh = self._sessions.open(pairs, spec.bits, spec.ways)
        senders, receivers = np.flatnonzero(pairs.first), np.flatnonzero(~pairs.first)
        batch = PartyBatch(
            SECRET, "compare", self._group, self._shard, self._workers, self._on_steps, pairs
        )
        batch.begin(*PROTOCOL.encode(spec, np.minimum(values, 2**spec.bits - 1)))

        # S sends first where it opens the session; in an open one R does.
        point = self._group.point_bytes
        opening, *_ = messages([spec], first=True, point=point)
        new, answering = senders[fresh[senders]], receivers[fresh[receivers]]
        inbox = yield batch.send(new, batch.step(new, opening.length), opening.length)

        plan = messages([spec], first=False, point=point)
        for number, message in enumerate(plan):
            sending = receivers if message.to_sender else senders
            # R's first message carries its nonce where the session is new.
            nonce = NONCE * fresh[sending] if number == 0 else np.zeros(len(sending), np.int64)
            width = message.length + (NONCE if number == 0 else 0)
            bodies = np.zeros((len(pairs), width), np.uint8)
            bodies[answering] = batch.step(answering, width, inbox)
            if number == 0:
                first = receivers[~fresh[receivers]]
                bodies[first] = batch.step(first, width)
            inbox = yield batch.send(sending, bodies[sending], message.length + nonce)
            answering = senders if message.to_sender else receivers
        batch.step(answering, 0, inbox)
        return batch.results()
