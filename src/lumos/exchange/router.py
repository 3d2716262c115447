"""Routing: the outboxes of all parties of a round become their inboxes."""

from collections.abc import Sequence

import numpy as np

from lumos.device.shard import COORDINATOR
from lumos.errors import ProtocolError
from lumos.exchange.batch import Batch, Inbox, Outbox
from lumos.exchange.topic import Topic
from lumos.typing import Ints


class Router:
    """Who is hosted where: splits outboxes into inboxes. Shared by every in-machine carrier.

    Args:
        hosts: [devices] number of the shard that hosts each device.
        shards: number of shards; the coordinator is the party after the last one.
    """

    def __init__(self, hosts: Ints, shards: int) -> None:
        self._hosts = np.append(hosts, shards)  # index -1, the coordinator, is the last party
        self.parties = shards + 1

    def route(self, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        """The inboxes of all parties, the coordinator's last."""
        batches = [outbox.batch for outbox in outboxes if outbox.batch.messages]
        if not batches:
            return [topic.silence] * self.parties
        everything = Batch.joined(batches).in_order()
        lowest, highest = everything.receiver[0], everything.receiver[-1]
        if lowest < COORDINATOR or highest >= len(self._hosts) - 1:
            raise ProtocolError(f"topic {topic.name!r}: receiver out of range")
        if self.parties == 2 and lowest != COORDINATOR:
            parts = [everything, topic.no_messages]  # one shard hosts every device
        elif self.parties == 2 and highest == COORDINATOR:
            parts = [topic.no_messages, everything]
        else:
            to = self._hosts[everything.receiver]
            order = np.argsort(to, kind="stable")
            ends = np.searchsorted(to[order], np.arange(self.parties + 1))
            parts = [
                # Packed: how long the messages of others are is nothing to know.
                everything.take(order[ends[party] : ends[party + 1]]).packed()
                for party in range(self.parties)
            ]
        return [Inbox(part, quiet=False) for part in parts]
