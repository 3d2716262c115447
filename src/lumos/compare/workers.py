"""Workers: they hold the parties of many sessions and step them.

A party never leaves the process that made it. `InProcess` holds all of them in this process, as a
real device does; `WorkerProcesses` (in `worker_processes`) spreads them over the cores.
"""

import os
from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Kind, Spec
from lumos.typing import Bytes

OnSteps = Callable[[int], None]
"""Callback `(steps)`: how many steps were done since the last call."""

_CHUNK = 256  # steps between two calls of `on_steps`


class Steps(msgspec.Struct):
    """One request to many parties: begin a batch, take a step, or give the results.

    Args:
        ends: [parties, 2] own id and peer's id, as int64; the smaller id is the sender.
        bits: of the values.
        kind: `lt` or `three_way`, revealed to both.
        values: [parties] own values, as int64: begin a batch with them.
        width: bytes of the longest reply: take a step. Shorter replies, and missing ones, are
            padded with zeros.
        incoming: [parties, …] received messages, padded to one width; None where there are none.
        lengths: [parties] bytes of each received message, as int64.
        results: return what each party learned, as int64.
    """

    def __repr__(self) -> str:
        return f"Steps(parties={len(self.ends) // 16})"  # values are private

    ends: bytes
    bits: int = 0
    kind: str = ""
    values: bytes | None = None
    width: int = 0
    incoming: bytes | None = None
    lengths: bytes | None = None
    results: bool = False


class Workers(Protocol):
    """Holds the parties and steps them."""

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """[parties, width] the replies; [parties, 8] results as int64 where those are asked."""
        ...

    def close(self) -> None:
        """Forget all sessions."""
        ...


class InProcess:
    """All parties in this process."""

    def __init__(self) -> None:
        self._parties: dict[tuple[int, int], Sender | Receiver] = {}

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """Serve one party after the other."""
        ends = np.frombuffer(steps.ends, np.int64).reshape(-1, 2).tolist()
        if steps.results:
            learned = [self._parties[me, peer].results[0] for me, peer in ends]
            return np.array(learned, np.int64).view(np.uint8).reshape(len(ends), 8)
        if steps.values is not None:
            spec = Spec(steps.bits, Kind(steps.kind))
            values = np.frombuffer(steps.values, np.int64).tolist()
            for (me, peer), value in zip(ends, values, strict=True):
                self._party(me, peer).begin([(spec, value)])
            return np.empty((len(ends), 0), np.uint8)
        received, width = steps.incoming or b"", steps.width
        stride = len(received) // len(ends)
        lengths = None if steps.lengths is None else np.frombuffer(steps.lengths, np.int64).tolist()
        replies = bytearray(len(ends) * width)
        for row, (me, peer) in enumerate(ends):
            start = row * stride
            incoming = None if lengths is None else received[start : start + lengths[row]]
            reply = self._parties[me, peer].step(incoming)
            if reply is not None:
                replies[row * width : row * width + len(reply)] = reply
            if on_steps is not None and row % _CHUNK == _CHUNK - 1:
                on_steps(_CHUNK)
        if on_steps is not None:
            on_steps(len(ends) % _CHUNK)
        return np.frombuffer(replies, np.uint8).reshape(len(ends), width)

    def close(self) -> None:
        """Forget all sessions."""
        for party in self._parties.values():
            party.close()
        self._parties.clear()

    def _party(self, me: int, peer: int) -> Sender | Receiver:
        party = self._parties.get((me, peer))
        if party is None:
            party = Sender(me, peer) if me < peer else Receiver(me, peer)
            self._parties[me, peer] = party
        return party


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
