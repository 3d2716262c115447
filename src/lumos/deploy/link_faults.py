"""Faults of a network, drawn from a seed: for tests and benchmarks, never of a real device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NetworkPartition:
    """For some time these parties reach nobody else, and nobody else reaches them."""

    parties: frozenset[int]
    begin: float
    """By `time.monotonic`, which is the same in all processes of a machine."""
    end: float

    def parts(self, sender: int, receiver: int, now: float) -> bool:
        """Whether it keeps a packet from its receiver."""
        return self.begin <= now < self.end and (sender in self.parties) != (
            receiver in self.parties
        )


class LinkFaults:
    """What happens to the packets that one party sends.

    Args:
        seed: with the same one, the same faults.
        loss: probability that a packet is lost.
        double: that it arrives twice.
        reorder: that it, or its copy, is late, and so overtaken.
        delay: by at most so many seconds.
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
        """After how many seconds the copies of a packet are sent; none where it is lost."""
        if any(partition.parts(sender, receiver, now) for partition in self._partitions):
            return []
        lost, doubled = self._draws.random(2)
        if lost < self._loss:
            return []
        late = self._draws.random((2 if doubled < self._double else 1, 2))
        return [
            self._delay * float(size) if chance < self._reorder else 0.0 for chance, size in late
        ]
