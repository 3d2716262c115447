"""The parties of a shard, moved through one batch message by message, over the exchange."""

import numpy as np

from lumos.crypto.group import Group
from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.topic import Topic
from lumos.session.pairs import ComparedPairs
from lumos.session.workers import OnSteps, Steps, Workers
from lumos.typing import Bytes, Ints


class PartyBatch:
    """One batch of a shard: all its parties, one item each.

    Args:
        topic: of the messages.
        protocol: name of an entry of `lumos.session.workers.PROTOCOLS`.
        group: of the sessions that it opens.
        workers: they hold the parties.
        on_steps: callback for the steps done.
        pairs: one party for each.
    """

    def __init__(
        self,
        topic: Topic,
        protocol: str,
        group: Group,
        shard: Shard,
        workers: Workers,
        on_steps: OnSteps | None,
        pairs: ComparedPairs,
    ) -> None:
        self._topic = topic
        self._protocol = protocol
        self._group = group
        self._workers = workers
        self._on_steps = on_steps
        self._ends = np.stack([shard.devices[pairs.rows], pairs.peers], axis=1)

    def begin(self, spec: bytes, values: bytes) -> None:
        """All parties take their inputs, as the protocol encodes them."""
        if len(self._ends):
            self._workers.run(self._steps(self._ends, spec=spec, values=values))

    def step(self, rows: Ints, width: int, inbox: Inbox | None = None) -> Bytes:
        """Step the parties at `rows` with the messages for them: [rows, width] their replies."""
        ends = self._ends[rows]
        steps = self._steps(ends, width=width)
        if inbox is not None:
            lengths = inbox.batch.lengths
            received = np.stack([inbox.receiver, inbox.sender], axis=1)
            if lengths is None or not np.array_equal(received, ends):
                raise ProtocolError("a peer did not send the message that is due; run again")
            steps.incoming, steps.lengths = inbox.body.tobytes(), lengths.tobytes()
        if not len(rows):
            return np.empty((0, width), np.uint8)
        return self._workers.run(steps, self._on_steps)

    def send(self, rows: Ints, body: Bytes, lengths: Ints | int) -> Outbox:
        """The messages of the parties at `rows`, as an outbox."""
        ends = self._ends[rows]
        lengths = np.broadcast_to(np.asarray(lengths, np.int64), len(rows))
        return self._topic.send(ends[:, 0], ends[:, 1], body, lengths=lengths)

    def results(self, *, close: bool = False) -> Ints:
        """[pairs] what each party learned; `close`: the sessions end."""
        if not len(self._ends):
            return np.empty(0, np.int64)
        learned = self._workers.run(self._steps(self._ends, results=True, close=close))
        return learned.view(np.int64).ravel()

    def _steps(
        self,
        ends: Ints,
        *,
        spec: bytes = b"",
        values: bytes | None = None,
        width: int = 0,
        results: bool = False,
        close: bool = False,
    ) -> Steps:
        return Steps(
            protocol=self._protocol,
            group=self._group.name,
            ends=ends.tobytes(),
            spec=spec,
            values=values,
            width=width,
            results=results,
            close=close,
        )
