"""The supervisor of ranks on one machine, and the position of each rank: its phase and round.

A rank that is killed or hangs cannot report where it was. So it writes its position to a small file
that it shares with the process that started it: 8 bytes for the round, the rest for the phase.
"""

import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

STATUS_FILE = "LUMOS_RANK_STATUS"
"""Environment variable: the file of a rank that is watched."""

_SIZE = 64
_ROUND = struct.Struct("<q")


class Standing(NamedTuple):
    """The position of a rank in the run."""

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
        """The present work of the rank."""
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        text = phase.encode()[: _SIZE - _ROUND.size]
        self._map[_ROUND.size : _SIZE] = text.ljust(_SIZE - _ROUND.size, b"\0")

    def advance(self) -> None:
        """Count a round."""
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
    """Return the position of the rank of this file."""
    content = path.read_bytes().ljust(_SIZE, b"\0")
    phase = content[_ROUND.size :].rstrip(b"\0").decode(errors="replace")
    return Standing(phase or "the beginning", _ROUND.unpack(content[: _ROUND.size])[0])


# `lumos train --ranks N`: start the ranks on this machine, watch over them, and end all with one.
#
# A rank that is killed, stopped or hangs, or whose program raises, ends the run: every other rank
# is ended too, and one line names the rank and where it stood. With restarts left, all ranks are
# started again, and go on from the last checkpoint.

SUPERVISED = "LUMOS_SUPERVISED"
"""Environment variable: the process that watches over a rank, and speaks for those it loses."""
ANOTHER_FAILED, LOST = 75, 76
"""Exit status of a rank that ends because of another: that one printed an error, or is lost."""
BAD_INPUT = 2
"""Exit status after wrong options or input: starting again would not help."""

_POLL = 0.05
_LEAVING = 10.0  # seconds that others may take to end, after rank 0 has succeeded
_GRACE = 3.0  # seconds in which ranks that lost another may end by themselves


class End(NamedTuple):
    """The end of a run of ranks."""

    status: int
    """0 if it succeeded."""
    line: str
    """The rank that failed, and its position; empty where that rank has printed it itself."""


@dataclass(frozen=True)
class Supervisor:
    """A process that starts ranks and watches over them.

    Args:
        command: what every rank runs.
        ranks: number of ranks.
        threads: for each rank, where the environment does not say.
        timeout: seconds after which a rank that was stopped by a signal is given up.
    """

    command: Sequence[str]
    ranks: int
    threads: int = 1
    timeout: float = 120.0

    def run(self, extra: Sequence[str] = ()) -> End:
        """Run all ranks once, to their end.

        Args:
            extra: further arguments of the command.
        """
        notes = Path(tempfile.mkdtemp(prefix="lumos-ranks-"))
        ranks = [_Rank(number, notes / str(number)) for number in range(self.ranks)]
        port = _free_port()
        with _ending_in_order():
            try:
                for rank in ranks:
                    rank.start([*self.command, *extra], self._environment(rank.number, port))
                return _watched(ranks, self.timeout)
            finally:
                for rank in ranks:
                    rank.kill()
                shutil.rmtree(notes, ignore_errors=True)

    def run_again(
        self, restarts: int, extra: Callable[[], Sequence[str]], say: Callable[[str], None]
    ) -> End:
        """Run all ranks, and start them again up to `restarts` times.

        Args:
            extra: further arguments when starting again; called each time.
            say: called with a line at every restart.
        """
        end = self.run()
        for attempt in range(1, restarts + 1):
            if end.status in (0, BAD_INPUT):
                break
            why = f"{end.line}; " if end.line else ""
            say(f"{why}starting all ranks again from the last checkpoint ({attempt} of {restarts})")
            end = self.run(extra())
        return end

    def _environment(self, rank: int, port: int) -> dict[str, str]:
        number = str(rank)
        return {
            "OMP_NUM_THREADS": str(self.threads),
            **os.environ,
            "RANK": number,
            "LOCAL_RANK": number,
            "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            SUPERVISED: str(os.getpid()),
        }


class _Rank:
    """One process."""

    def __init__(self, number: int, note: Path) -> None:
        self.number, self._note = number, note
        self.process: subprocess.Popen[bytes]
        empty_status(note)

    def start(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env={**environment, STATUS_FILE: str(self._note)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the supervisor's: it ends the ranks
        )

    @property
    def ended(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self.process.poll()

    @property
    def standing(self) -> Standing:
        return read_status(self._note)

    @property
    def stopped(self) -> bool:
        """True while it is stopped by a signal (Linux only)."""
        return self._stat()[:1] in (["T"], ["t"])

    @property
    def ticks(self) -> int:
        """CPU time that it has used, in ticks of the system (Linux only)."""
        return sum(int(field) for field in self._stat()[11:13])

    def _stat(self) -> list[str]:
        try:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return []

    def kill(self) -> None:
        if hasattr(self, "process") and self.ended is None:
            self.process.kill()
            self.process.wait()


def _watched(ranks: Sequence[_Rank], timeout: float) -> End:
    """Wait until all ranks have succeeded, or one has not."""
    late = None
    awake = dict.fromkeys((rank.number for rank in ranks), time.monotonic())
    while True:
        ended = [rank.ended for rank in ranks]
        if all(status == 0 for status in ended):
            return End(0, "")
        if ended[0] == 0:  # it has waited for the others, and all is written
            late = late or time.monotonic() + _LEAVING
            if time.monotonic() > late:
                return End(0, "")
        if any(status not in (0, None) for status in ended):
            return _blamed(ranks)
        for rank in ranks:
            if not rank.stopped:
                awake[rank.number] = time.monotonic()
            elif time.monotonic() > awake[rank.number] + timeout:
                return End(1, _stopped(rank))
        time.sleep(_POLL)


def _blamed(ranks: Sequence[_Rank]) -> End:
    """Return the rank that failed, once one of them has ended without success."""
    late = time.monotonic() + _GRACE
    before = {rank.number: rank.ticks for rank in ranks}
    while time.monotonic() < late:
        ended = [rank.ended for rank in ranks]
        for rank, status in zip(ranks, ended, strict=True):
            if status is not None and status < 0:
                return End(1, f"rank {rank.number} was {_by_signal(-status)} {rank.standing}")
        for status in ended:
            if status not in (None, 0, ANOTHER_FAILED, LOST):
                return End(status or 1, "")  # it has printed the reason
        if all(rank.ended is not None for rank in ranks):
            break
        time.sleep(_POLL)
    running = [rank for rank in ranks if rank.ended is None]
    for rank in running:
        if rank.stopped:
            return End(1, _stopped(rank))
    if running:
        behind = min(running, key=lambda rank: rank.standing.round)
        if behind.ticks - before[behind.number] > _GRACE / 5 * os.sysconf("SC_CLK_TCK"):
            return End(
                1,
                f"rank {behind.number} was still computing {behind.standing}, when others gave it "
                "up; raise `rank_timeout`",
            )
        return End(1, f"rank {behind.number} did not answer any more {behind.standing}")
    first = min(ranks, key=lambda rank: rank.standing.round)
    return End(1, f"ranks lost one another; rank {first.number} was {first.standing}")


def _stopped(rank: _Rank) -> str:
    return f"rank {rank.number} was stopped (SIGSTOP) {rank.standing}"


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which end a process at once, end what is inside as Ctrl-C does."""
    ends = [signal.SIGTERM, signal.SIGHUP]
    if threading.current_thread() is not threading.main_thread():
        ends = []
    ends = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, lambda sent, _: sys.exit(128 + sent))
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


def _by_signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"killed ({name})"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def interpreter() -> list[str]:
    """Return the command that starts this program again."""
    return [sys.executable, "-m", "lumos"]
