"""The ranks of a run, and the network interface by which they reach one another.

Gloo asks the name of the host for its address, which on many machines is that of the loopback:
ranks on other hosts then cannot connect. The interface that leads to rank 0 is the right one.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from lumos.errors import LumosError, ProtocolError, RankFailed, RankLost, UsageError
from lumos.typing import Bytes, Ints

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable: the interface that Gloo uses."""

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
_NAME = 15


def interface_to(host: str) -> str:
    """Return the interface that leads to a host; empty where it is unknown."""
    if sys.platform != "linux" or not host:
        return ""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # nothing is sent
            address = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                if _address_of(name, probe) == address:
                    return name
    except OSError:
        return ""
    return "lo" if address.startswith("127.") else ""


def _address_of(name: str, probe: socket.socket) -> str:
    """Return the address of an interface; empty where it has none."""
    try:
        answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", name.encode()[:_NAME]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])


# The world: all ranks of one run, and the one way in which they synchronise.
#
# A *swap* is two collectives of `torch.distributed`. In the first every rank sends all others the
# head of its messages: whether it failed, what it is about to do, its number, and for each rank
# and lane how many messages, how wide, how many bytes. If nobody sends anything, that is all.
# Otherwise the bytes follow. Ranks that are out of step, or one of which failed, see it in the
# head, and all of them end.
#
# Ranks are one simulation: they trust one another, and whoever can reach their ports is one of
# them. Nothing that arrives is executed: bytes become arrays of declared types.

TIMEOUT = 120.0
"""Seconds after which a rank that does not answer is given up."""
PATIENCE = 30
"""Factor by which others wait longer where rank 0 works alone: it writes, adds up, scores."""

LANES = 3
"""Streams of messages between two ranks: from shard to shard, to and from the coordinator."""

_FIELDS = 4  # failed, kind, mark, number


class Status:
    """The position of this rank in the run, as its errors name it."""

    def __init__(self) -> None:
        self.phase = "the beginning"
        self.round = 0

    def advance(self) -> None:
        """Count a round."""
        self.round += 1

    def __str__(self) -> str:
        return f"in {self.phase}, round {self.round:,}"


class SwapKind(IntEnum):
    """The kind of a swap."""

    ROUND = 1
    FINISHED = 2
    GATHER = 3
    SCATTER = 4
    ADD = 5
    LEAVE = 6


class Sending(NamedTuple):
    """The messages that a rank sends in one lane to another rank."""

    messages: int
    width: int
    body: Bytes


class Arrived(NamedTuple):
    """The messages that arrived in one lane."""

    messages: int
    width: int
    body: Bytes


NOTHING = Sending(0, 0, np.empty(0, np.uint8))


class World:
    """The ranks of this run, as one of them sees them.

    Args:
        rank: number of this process.
        size: number of ranks.
        timeout: seconds after which a rank that does not answer is given up.
    """

    def __init__(self, rank: int, size: int, timeout: float = TIMEOUT) -> None:
        self.rank, self.size = rank, size
        self.timeout = timeout
        self.status = Status()
        self._number = 0
        self._waits = 0
        self._failed = False

    @staticmethod
    def join(timeout: float = TIMEOUT) -> "World":
        """Join the ranks that `torchrun` started.

        Raises:
            UsageError: this process was not started by it.
            RankLost: the others are not there.
        """
        rank, size = _place()
        import torch.distributed as distributed

        world = World(rank, size, timeout)
        master = os.environ.get("MASTER_ADDR", "")
        if INTERFACE not in os.environ and (name := interface_to(master)):
            os.environ[INTERFACE] = name
        try:
            distributed.init_process_group(
                "gloo", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
            )
        except (RuntimeError, ValueError, TimeoutError) as error:
            raise world.lost(error) from None
        return world

    @property
    def first(self) -> bool:
        """True for rank 0, which has the coordinator and the result."""
        return self.rank == 0

    def swap(
        self, kind: SwapKind, name: str, sent: Sequence[Sequence[Sending]]
    ) -> list[list[Arrived]] | None:
        """Send to every rank, receive from every rank; None where nobody sent anything.

        Args:
            kind: what this is about.
            name: of the topic, or of what is gathered: the same at all ranks.
            sent: for each rank, and each lane, what it gets. What goes to this rank itself is
                handed back.

        Raises:
            RankFailed: another rank failed, and reports the reason itself.
            RankLost: another rank is gone, or does not answer.
            ProtocolError: ranks are out of step.
        """
        sizes = np.zeros((self.size, LANES, 3), np.int64)
        for rank, lanes in enumerate(sent):
            for lane, part in enumerate(lanes):
                sizes[rank, lane] = part.messages, part.width, part.body.nbytes
        self._number += 1
        self.status.advance()
        head = np.concatenate([[0, kind, _mark(name), self._number], sizes.ravel()])
        heads = self._heads(head)
        self._check(heads, name)
        table = heads[:, _FIELDS:].reshape(self.size, self.size, LANES, 3)
        if not table.any():
            return None
        return self._bodies(sent, table)

    def wait_for_first(self) -> None:
        """Wait until rank 0 has come here too, for longer than in a round.

        Rank 0 works alone between rounds: it writes a checkpoint, adds ledgers up. In a collective
        the others would give it up meanwhile. All ranks call this in the same places. If rank 0 is
        killed, its store is gone at once.

        Raises:
            RankLost: rank 0 is gone, or does not come.
        """
        store = self._store()
        if store is None:
            return
        self._waits += 1
        try:
            if self.first:
                store.set(self._reached, "")
            else:
                store.wait([self._reached], timedelta(seconds=PATIENCE * self.timeout))
        except RuntimeError as error:
            raise self.lost(error, PATIENCE * self.timeout) from None

    @property
    def _reached(self) -> str:
        """The key that rank 0 sets where it is waited for."""
        return f"lumos/reached/{self._waits}"

    def _store(self) -> "Store | None":
        """Return the store that ranks found each other by; None with a single rank."""
        import torch.distributed as distributed

        if self.size == 1:
            return None
        return distributed.distributed_c10d._get_default_store()

    def fail(self) -> list[int]:
        """Announce that this rank failed; return all ranks that failed at the same point.

        Where several fail alike, as on a wrong file, the lowest of them reports it.
        """
        if self._failed:  # out of step, and all ranks have seen it
            return list(range(self.size))
        self._failed = True
        head = np.zeros(_FIELDS + self.size * LANES * 3, np.int64)
        head[0] = 1
        try:
            if self.first:  # whoever waits for it comes on, and sees it in the head
                self.wait_for_first()
            heads = self._heads(head)
        except RankLost:
            return [self.rank]
        failed: list[int] = np.flatnonzero(heads[:, 0]).tolist()
        return failed

    def leave(self) -> None:
        """Wait for the others, and take the group apart."""
        import torch.distributed as distributed

        with suppress(RankLost, RankFailed, ProtocolError):
            self.swap(SwapKind.LEAVE, "leave", [[NOTHING] * LANES] * self.size)
        with suppress(RuntimeError):
            distributed.destroy_process_group()

    def lost(self, error: Exception, waited: float | None = None) -> RankLost:
        """Return the error for a rank that does not answer.

        Args:
            error: of the collective.
            waited: seconds; by default those of a round.
        """
        late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        what = "the connection is gone"
        if late:
            what = (
                f"no answer within {waited or self.timeout:g} s; where ranks compute for longer "
                "between two rounds, raise `rank_timeout`"
            )
        return RankLost(f"rank {self.rank} lost another rank {self.status}: {what}")

    def _heads(self, head: Ints) -> Ints:
        """Return the heads [ranks, fields] of all ranks."""
        import torch
        import torch.distributed as distributed

        every = [torch.empty(len(head), dtype=torch.int64) for _ in range(self.size)]
        try:
            distributed.all_gather(every, torch.from_numpy(head))
        except RuntimeError as error:
            raise self.lost(error) from None
        return torch.stack(every).numpy()

    def _check(self, heads: Ints, name: str) -> None:
        failed = np.flatnonzero(heads[:, 0])
        if len(failed):
            self._failed = True
            raise RankFailed(f"rank {failed[0]} failed {self.status}")
        apart = np.flatnonzero((heads[:, 1:_FIELDS] != heads[0, 1:_FIELDS]).any(axis=1))
        if len(apart):
            self._failed = True  # they all know
            raise ProtocolError(
                f"ranks are out of step {self.status}: rank {apart[0]} is elsewhere than "
                f"rank 0 (rank {self.rank} is at {name!r})"
            )

    def _bodies(self, sent: Sequence[Sequence[Sending]], table: Ints) -> list[list[Arrived]]:
        """Return the bytes of all lanes, from every rank."""
        me = self.rank
        leaving = [
            [] if rank == me else [part.body for part in lanes if part.body.nbytes]
            for rank, lanes in enumerate(sent)
        ]
        outgoing = [int(sum(body.nbytes for body in bodies)) for bodies in leaving]
        arriving = table[:, me, :, 2].sum(axis=1)
        arriving[me] = 0
        flat = [_flat(body) for bodies in leaving for body in bodies]
        body = flat[0] if len(flat) == 1 else np.concatenate([np.empty(0, np.uint8), *flat])
        received = self._all_to_all(body, outgoing, arriving.tolist())
        del body, flat
        starts = np.cumsum(arriving) - arriving
        result = []
        for rank in range(self.size):
            place, lanes = int(starts[rank]), []
            for lane in range(LANES):
                count, width, size = (int(number) for number in table[rank, me, lane])
                body = _flat(sent[me][lane].body) if rank == me else received[place : place + size]
                lanes.append(Arrived(count, width, body))
                place += 0 if rank == me else size
            result.append(lanes)
        return result

    def _all_to_all(self, body: Bytes, outgoing: list[int], arriving: list[int]) -> Bytes:
        import torch
        import torch.distributed as distributed

        received: torch.Tensor = torch.empty(sum(arriving), dtype=torch.uint8)
        try:
            distributed.all_to_all_single(received, torch.from_numpy(body), arriving, outgoing)
        except RuntimeError as error:
            raise self.lost(error) from None
        arrived: Bytes = received.numpy()
        return arrived


def _place() -> tuple[int, int]:
    """Return the rank and the number of ranks from the environment."""
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        rank, size = -1, 0
    if not 0 <= rank < size or not {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        raise UsageError(
            "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: the environment does not have them as "
            "torchrun sets them; start ranks with torchrun, or unset RANK for a run in one process"
        )
    return rank, size


def _flat(body: Bytes) -> Bytes:
    """Return the bytes of an array."""
    return np.ascontiguousarray(body).reshape(-1).view(np.uint8)


def _mark(name: str) -> int:
    """Return a number for a name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest(), "little")


_WORLD: list[World] = []


def enter(world: World) -> None:
    """Make this the world of the process: transports named `gloo` use it."""
    _WORLD[:] = [world]


def note_phase(phase: str) -> None:
    """Note what this process is doing, if it is a rank."""
    if _WORLD:
        _WORLD[0].status.phase = phase


def present() -> World | None:
    """Return the world of this process, if it has joined one."""
    return _WORLD[0] if _WORLD else None


# A process as one of many ranks: it joins, works, and leaves or fails together with the others.
#
# with joined() as world:
#     run = train_rank("facebook", hosting=Hosting(world=world))

ANOTHER_FAILED = 75
"""Exit status of a rank that ends because another has printed an error."""


class RankError(LumosError):
    """The error that one rank reports for all of them."""

    def __init__(self, line: str, exit_status: int) -> None:
        super().__init__(line)
        self.exit_status = exit_status


def is_rank() -> bool:
    """Return whether this process was started as a rank, by torchrun."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarted() -> bool:
    """Return whether torchrun has started this rank again."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


@contextmanager
def joined(timeout: float = TIMEOUT) -> Iterator[World]:
    """Join the other ranks inside; an error ends all ranks, and one of them reports it.

    Raises:
        RankError: this rank failed, and reports it.
        RankLost: another rank is gone.

    Where another rank failed, and reports it itself, the process ends here.
    """
    world = World.join(timeout)
    enter(world)
    try:
        yield world
    except RankFailed:
        end_at_once(ANOTHER_FAILED)
    except RankLost:
        raise
    except Exception as error:
        standing = str(world.status)
        failed = world.fail()
        if failed[0] != world.rank:
            end_at_once(ANOTHER_FAILED)
        status = error.exit_status if isinstance(error, LumosError) else 1
        if isinstance(error, LumosError) and len(failed) == world.size:
            raise  # all alike: a wrong option or file, and no matter of ranks
        raise RankError(
            f"rank {world.rank} failed {standing}: {_error_line(error)}", status
        ) from error
    else:
        world.leave()


def end_at_once(status: int) -> NoReturn:
    """End this process without taking the group apart: with a rank missing, that would abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _error_line(error: Exception) -> str:
    """Return one line about an error: a message of Lumos, otherwise kind and place alone.

    The text of an unexpected error may hold a value of a device, so it is not printed.
    """
    if isinstance(error, LumosError):
        return str(error)
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if isinstance(error, OSError):
        return f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
    if trace is None:
        return type(error).__name__
    place = Path(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} in {place}, line {trace.tb_lineno}"
