"""Where a rank stands: its phase and its round, for whoever watches over it.

A rank that is killed or hangs cannot say where it was. So it notes it in a small file that it
shares with the process that started it: 8 bytes for the round, the rest for the phase.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

STATUS_FILE = "LUMOS_RANK_STATUS"
"""Environment variable: the file of a rank that is watched."""

_SIZE = 64
_ROUND = struct.Struct("<q")


class Standing(NamedTuple):
    """Where a rank stands."""

    phase: str
    round: int

    def __str__(self) -> str:
        return f"in {self.phase}, round {self.round:,}"


class Status:
    """The note of this rank; kept in memory where nobody watches."""

    def __init__(self) -> None:
        path = os.environ.get(STATUS_FILE)
        self._map: mmap.mmap | bytearray = bytearray(_SIZE)
        if path:
            with open(path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), _SIZE)
        self.round = 0
        self.phase = "the beginning"

    @property
    def phase(self) -> str:
        """What the rank is doing."""
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        text = phase.encode()[: _SIZE - _ROUND.size]
        self._map[_ROUND.size : _SIZE] = text.ljust(_SIZE - _ROUND.size, b"\0")

    def advance(self) -> None:
        """One round more."""
        self.round += 1
        self._map[: _ROUND.size] = _ROUND.pack(self.round)

    @property
    def standing(self) -> Standing:
        """Phase and round."""
        return Standing(self._phase, self.round)


def empty_status(path: Path) -> None:
    """Make the file of a rank that is about to be started."""
    path.write_bytes(bytes(_SIZE))


def read_status(path: Path) -> Standing:
    """Where the rank of this file stands."""
    content = path.read_bytes().ljust(_SIZE, b"\0")
    phase = content[_ROUND.size :].rstrip(b"\0").decode(errors="replace")
    return Standing(phase or "the beginning", _ROUND.unpack(content[: _ROUND.size])[0])
