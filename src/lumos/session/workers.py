"""Workers: they hold the parties of many sessions and step them.

A party never leaves the process that made it. `InProcess` holds all of them in this process, as a
real device does; `WorkerProcesses` (in `worker_processes`) spreads them over the cores.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import numpy as np

from lumos.crypto.group import GROUPS, Group
from lumos.registry import Registry
from lumos.session.party import Party
from lumos.typing import Bytes

OnSteps = Callable[[int], None]
"""Callback `(steps)`: how many steps were done since the last call."""

_CHUNK = 256  # steps between two calls of `on_steps`


class SessionProtocol(Protocol):
    """How a worker opens the parties of one protocol and reads their inputs."""

    def open(self, me: int, peer: int, group: Group) -> Party[Any, Any, Any]:
        """A party of a new session; the end with the smaller id is the sender."""
        ...

    def items(self, spec: bytes, values: bytes, count: int) -> Iterable[tuple[Any, Any]]:
        """(spec, own value) of each of `count` parties."""
        ...


PROTOCOLS: Registry[SessionProtocol] = Registry(
    "session_protocol",
    {
        "compare": "lumos.compare.comparison_protocol:PROTOCOL",
        "score": "lumos.score.score_protocol:PROTOCOL",
    },
)
"""The protocols that workers serve, imported when they are first asked for."""


class Steps(msgspec.Struct, kw_only=True):
    """One request to many parties: begin a batch, take a step, or give the results.

    Args:
        protocol: name of an entry of `PROTOCOLS`.
        ends: [parties, 2] own id and peer's id, as int64; the smaller id is the sender.
        spec: what is computed, as the protocol encodes it.
        values: [parties, …] own inputs, as the protocol encodes them: begin a batch with them.
        width: bytes of the longest reply: take a step. Shorter replies, and missing ones, are
            padded with zeros.
        incoming: [parties, …] received messages, padded to one width; None where there are none.
        lengths: [parties] bytes of each received message, as int64.
        group: name of an entry of `GROUPS`, for the sessions that begin now.
        results: return what each party learned, as int64.
        close: with `results`: the sessions end.
    """

    def __repr__(self) -> str:
        return f"Steps(parties={len(self.ends) // 16})"  # values are private

    protocol: str
    ends: bytes
    spec: bytes = b""
    values: bytes | None = None
    width: int = 0
    incoming: bytes | None = None
    lengths: bytes | None = None
    group: str = "ed25519"
    results: bool = False
    close: bool = False


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
        self._parties: dict[tuple[str, int, int], Party[Any, Any, Any]] = {}

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """Serve one party after the other."""
        numbers = np.frombuffer(steps.ends, np.int64).reshape(-1, 2).tolist()
        ends = [(steps.protocol, me, peer) for me, peer in numbers]
        if steps.results:
            return self._results(ends, close=steps.close)
        if steps.values is not None:
            protocol = PROTOCOLS[steps.protocol]
            group = GROUPS[steps.group]
            items = protocol.items(steps.spec, steps.values, len(ends))
            for end, item in zip(ends, items, strict=True):
                if end not in self._parties:
                    self._parties[end] = protocol.open(*end[1:], group)
                self._parties[end].begin([item])
            return np.empty((len(ends), 0), np.uint8)
        received, width = steps.incoming or b"", steps.width
        stride = len(received) // len(ends)
        lengths = None if steps.lengths is None else np.frombuffer(steps.lengths, np.int64).tolist()
        replies = bytearray(len(ends) * width)
        for row, end in enumerate(ends):
            start = row * stride
            incoming = None if lengths is None else received[start : start + lengths[row]]
            reply = self._parties[end].step(incoming)
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

    def _results(self, ends: list[tuple[str, int, int]], *, close: bool) -> Bytes:
        learned = np.array([self._parties[end].results[0] for end in ends], np.int64)
        if close:
            for end in ends:
                self._parties.pop(end).close()
        return learned.view(np.uint8).reshape(len(ends), 8)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
