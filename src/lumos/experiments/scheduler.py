"""Runs cells in processes of their own: as many as cores and memory allow, longest first."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lumos.experiments.worker import CellJob, child

_PRELOADED = (
    "lumos.experiments.worker",
    "lumos.runs.train",
    "lumos.strict.schedule",
    "lumos.baselines",
)
_FORKS = sys.platform == "linux"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_LOOK = 0.05
_MARGIN = 0.9  # of the memory that is free at the start


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A job, and what it is expected to need."""

    job: CellJob
    seconds: float
    megabytes: float


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the process of a job ended."""

    job: CellJob
    status: int
    """0: the result is written. 2: refused, as a wrong setting is. Anything else: failed."""
    reason: str
    """One line, where there is no result."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Room:
    """How many processes, with how many threads each, in how much memory."""

    jobs: int
    threads: int
    megabytes: float

    @staticmethod
    def here(cells: int, jobs: int | None = None) -> "Room":
        """As many processes as cores, or as were asked for; cores are shared among them."""
        cores = available_cores()
        jobs = max(1, min(jobs or cores, cells))
        free = _MARGIN * available_megabytes()
        return Room(jobs=jobs, threads=max(1, cores // jobs), megabytes=free)


def planned(waiting: Sequence[Waiting], room: Room) -> float:
    """Expected seconds until all are done, longest first, memory left aside."""
    ends = [0.0] * room.jobs
    for one in sorted(waiting, key=lambda one: -one.seconds):
        ends[ends.index(min(ends))] += one.seconds
    return max(ends)


def run_all(
    waiting: Sequence[Waiting],
    room: Room,
    logs: Path,
    told: Callable[[Ended, int], None],
) -> list[Ended]:
    """Run every job; `told` hears of each end, and how many are still to come.

    An exception, the keyboard's too, ends all processes.
    """
    left = sorted(waiting, key=lambda one: -one.seconds)
    running: list[tuple[Waiting, BaseProcess, float]] = []
    ended: list[Ended] = []
    logs.mkdir(parents=True, exist_ok=True)
    try:
        while left or running:
            while (following := _next(left, running, room)) is not None:
                left.remove(following)
                process = _start(following.job, room, logs)
                running.append((following, process, time.perf_counter()))
            for entry in [entry for entry in running if not entry[1].is_alive()]:
                running.remove(entry)
                one, process, start = entry
                seconds = time.perf_counter() - start
                ended.append(_end(one.job, process.exitcode or 0, logs, seconds))
                told(ended[-1], len(left) + len(running))
            time.sleep(_LOOK)
    finally:
        _stop([process for _, process, _ in running])
    return ended


def _next(left: list[Waiting], running: Sequence[Any], room: Room) -> Waiting | None:
    """The longest job that fits; a job alone always does."""
    if len(running) >= room.jobs:
        return None
    used = sum(one.megabytes for one, *_ in running)
    fitting = (one for one in left if not running or used + one.megabytes <= room.megabytes)
    return next(fitting, None)


def _start(job: CellJob, room: Room, logs: Path) -> BaseProcess:
    """A process of its own; on Linux a fork of one that has imported torch and done nothing yet."""
    context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
    if _FORKS:
        context.set_forkserver_preload([*_PRELOADED])
    process: BaseProcess = context.Process(
        target=child, args=(job, logs / f"{job.key}.txt", room.threads), daemon=True
    )
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(room.threads)))
    try:
        process.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return process


def _end(job: CellJob, status: int, logs: Path, seconds: float) -> Ended:
    log = logs / f"{job.key}.txt"
    if status == 0 and job.place.exists():
        log.unlink(missing_ok=True)
        return Ended(job=job, status=0, reason="", seconds=seconds)
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    said = [line.strip() for line in text.splitlines()]
    last = next((line for line in reversed(said) if line), "")
    if status < 0:
        last = f"its process was ended by signal {-status}"
        if -status == 9:
            last += ", as it is when memory runs out"
    return Ended(job=job, status=status or 1, reason=last or "it said nothing", seconds=seconds)


def _stop(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()  # whatever was finished is written; the rest is of no use
    for process in processes:
        process.join()


def available_cores() -> int:
    """Cores that this process may use, as far as its container allows."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
    quota, *rest = _limit("cpu.max") or ["max"]
    if quota.isdigit() and rest and rest[0].isdigit() and int(rest[0]):
        cores = min(cores, max(1, int(quota) // int(rest[0])))
    return cores


def available_megabytes() -> float:
    """Memory that is free, or could be at once, as far as a container allows."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 / 1024**2
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) / 1024
    except OSError:
        pass
    most, used, kinds = _limit("memory.max"), _limit("memory.current"), _limit("memory.stat")
    if most and used and most[0].isdigit():
        cached = int(kinds[kinds.index(CACHED) + 1]) if CACHED in kinds else 0
        free = min(free, max(0, int(most[0]) - int(used[0]) + cached) / 1024**2)
    return free


CGROUP, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
CACHED = "inactive_file"
"""What the system gives back at once."""


def _limit(name: str) -> list[str]:
    """The words of a limit of the container, by the second version of control groups."""
    try:
        return (CGROUP / name).read_text().split()
    except OSError:
        return []
