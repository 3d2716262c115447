"""How many bytes of packets a party has sent and received, also before it was killed."""

from pathlib import Path

import numpy as np

from lumos.typing import Ints

NAME = "wire.count"


class WireCount:
    """Counts packets in a file that is mapped into memory: a process that is killed loses nothing.

    Sealed packets are counted with their padding; what NATS and TLS add to them is not.

    Args:
        folder: of the party; None to count in memory only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._counts: Ints
        if folder is None:
            self._counts = np.zeros(4, np.int64)
            return
        path = folder / NAME
        there = path.exists() and path.stat().st_size == 32
        self._counts = np.memmap(path, np.int64, "r+" if there else "w+", shape=(4,))

    def add_sent(self, size: int) -> None:
        """A packet was sent."""
        self._counts[0] += 1
        self._counts[1] += size

    def add_received(self, size: int) -> None:
        """A packet has arrived."""
        self._counts[2] += 1
        self._counts[3] += size

    def totals(self) -> dict[str, int]:
        """All counts by name."""
        names = ("packets_sent", "bytes_sent", "packets_received", "bytes_received")
        return dict(zip(names, self._counts.tolist(), strict=True))
