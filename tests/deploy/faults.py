"""Faults of a real network, drawn from a seed: packets that are lost, doubled, late or cut off."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lumos.deploy.nats import BrokerClient, NatsLink


@dataclass(frozen=True)
class NetworkPartition:
    """A time in which these participants and all others cannot reach one another."""

    participants: frozenset[int]
    begin: float
    """By `time.monotonic`, which is the same in all processes of a machine."""
    end: float

    def parts(self, sender: int, receiver: int, now: float) -> bool:
        """Return whether the partition separates sender and receiver."""
        return self.begin <= now < self.end and (sender in self.participants) != (
            receiver in self.participants
        )


class LinkFaults:
    """Faults of the packets that one participant sends.

    Args:
        seed: with the same one, the same faults.
        loss: probability that a packet is lost.
        double: that it arrives twice.
        reorder: that it, or its copy, is late, and so overtaken.
        delay: the largest delay, in seconds.
        partitions: who is cut off, and when.
    """

    def __init__(
        self,
        seed: Sequence[int],
        *,
        loss: float = 0.0,
        double: float = 0.0,
        reorder: float = 0.0,
        delay: float = 0.05,
        partitions: Sequence[NetworkPartition] = (),
    ) -> None:
        self._draws = np.random.default_rng(list(seed))
        self._loss, self._double, self._reorder, self._delay = loss, double, reorder, delay
        self._partitions = tuple(partitions)

    def delays(self, sender: int, receiver: int, now: float) -> list[float]:
        """Return the delay in seconds of each copy of a packet; empty where it is lost."""
        if any(partition.parts(sender, receiver, now) for partition in self._partitions):
            return []
        lost, doubled = self._draws.random(2)
        if lost < self._loss:
            return []
        late = self._draws.random((2 if doubled < self._double else 1, 2))
        return [
            self._delay * float(size) if chance < self._reorder else 0.0 for chance, size in late
        ]


class FaultyLink(NatsLink):
    """The link of a participant whose packets have faults."""

    def __init__(self, *arguments: Any, faults: LinkFaults) -> None:
        super().__init__(*arguments)
        self._faults = faults
        self._late: set[asyncio.Task[None]] = set()

    def _publish(self, client: BrokerClient, receiver: int, sealed: bytes) -> None:
        for delay in self._faults.delays(self._me, receiver, time.monotonic()):
            if delay:
                late = asyncio.create_task(self._publish_late(client, receiver, sealed, delay))
                self._late.add(late)
                late.add_done_callback(self._late.discard)
            else:
                super()._publish(client, receiver, sealed)

    async def _publish_late(
        self, client: BrokerClient, receiver: int, sealed: bytes, delay: float
    ) -> None:
        await asyncio.sleep(delay)
        super()._publish(client, receiver, sealed)
