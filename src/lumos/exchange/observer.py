"""What the observer of a simulation gathers from shards, wherever they are hosted.

No program has it, and no device could: it is how a simulation writes down its results. Where all
shards live in one process, gathering is nothing; between ranks, rows travel to the first rank, and
nobody else sees what others have.
"""

import io
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lumos.ranks.world import LANES, NOTHING, Arrived, Sending, SwapKind, World
from lumos.typing import Arrays, Ints


class Observer(Protocol):
    """One interface for everything that is not a message of a program."""

    @property
    def first(self) -> bool:
        """Whether this process gets what is gathered."""
        ...

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """The arrays of all shards, in their order; elsewhere than at the first rank, nothing.

        Args:
            name: what is gathered; the same at all ranks.
            parts: one of each shard that this process hosts.
        """
        ...

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """What the first rank has for each shard, at the process that hosts it.

        Args:
            name: what is scattered; the same at all ranks.
            parts: one for each shard, in their order, or None; elsewhere than at the first rank it
                does not matter.
        """
        ...

    def add(self, name: str, counts: Ints) -> Ints:
        """[n] the sums over all ranks, at every rank."""
        ...

    def differs(self, name: str, digest: bytes) -> bool:
        """Whether the digests of two ranks differ; the same answer at every rank.

        Args:
            name: what is compared; the same at all ranks.
            digest: as long at all ranks.
        """
        ...


class OneProcess:
    """All shards live in this process."""

    first = True

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """The same."""
        return list(parts)

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """The same."""
        return None if parts is None else list(parts)

    def add(self, name: str, counts: Ints) -> Ints:
        """The same."""
        return counts

    def differs(self, name: str, digest: bytes) -> bool:
        """There is one."""
        return False


class AcrossRanks:
    """Every rank hosts one shard."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self._world.first

    def gather(self, name: str, parts: Sequence[Arrays]) -> list[Arrays]:
        """The arrays of all ranks, at the first."""
        (mine,) = parts
        world = self._world
        to_first = NOTHING if world.first else _packed(mine)
        received = _swapped(world, SwapKind.GATHER, name, _only_to(world, 0, to_first))
        if not world.first:
            return []
        others = [_unpacked(lanes[0]) for lanes in (received or [[]])[1:]]
        return [mine, *others]

    def scatter(self, name: str, parts: Sequence[Arrays] | None) -> list[Arrays] | None:
        """The arrays that the first rank has for this one."""
        world = self._world
        sent = [[NOTHING] * LANES for _ in range(world.size)]
        if world.first and parts is not None:
            for rank, part in enumerate(parts[1:], start=1):
                sent[rank][0] = _packed(part)
        received = _swapped(world, SwapKind.SCATTER, name, sent)
        if world.first:
            return None if parts is None else [parts[0]]
        return None if received is None else [_unpacked(received[0][0])]

    def add(self, name: str, counts: Ints) -> Ints:
        """Added up at every rank."""
        world = self._world
        mine = np.asarray(counts, np.int64)
        sending = Sending(len(mine), 8, mine.view(np.uint8))
        received = _swapped(world, SwapKind.ADD, name, [[sending, NOTHING, NOTHING]] * world.size)
        return sum((lanes[0].body.view(np.int64) for lanes in received or []), np.zeros_like(mine))

    def differs(self, name: str, digest: bytes) -> bool:
        """Every rank tells all others."""
        world = self._world
        mine = np.frombuffer(digest, np.uint8).copy()
        sending = Sending(len(mine), 1, mine)
        received = _swapped(world, SwapKind.ADD, name, [[sending, NOTHING, NOTHING]] * world.size)
        return len({lanes[0].body.tobytes() for lanes in received or []}) > 1


def _swapped(
    world: World, kind: SwapKind, name: str, sent: Sequence[Sequence[Sending]]
) -> list[list[Arrived]] | None:
    """A swap before which the first rank may have worked alone, for as long as it takes."""
    world.wait_for_first()
    return world.swap(kind, name, sent)


def _only_to(world: World, rank: int, sending: Sending) -> list[list[Sending]]:
    return [
        [sending if to == rank else NOTHING, *[NOTHING] * (LANES - 1)] for to in range(world.size)
    ]


def _packed(arrays: Arrays) -> Sending:
    """As bytes, without pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    body = np.frombuffer(buffer.getbuffer(), np.uint8)
    return Sending(len(body), 1, body)


def _unpacked(received: Arrived) -> Arrays:
    with np.load(io.BytesIO(received.body.tobytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
