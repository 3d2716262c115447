"""Runs each job in a process of its own: as many as cores and memory allow, longest first."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from lumos.experiments.job import Job
from lumos.experiments.profile_modules import profile_modules
from lumos.experiments.worker import child
from lumos.training.profile import PROFILES

# Optimizers of torch import the last one when they are first used, which takes more than a second.
_PRELOADED = ("lumos.experiments.worker", "lumos.runs.train", "lumos.baselines", "torch._dynamo")
_FORKS = sys.platform == "linux"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 0.05
_MEMORY_SHARE = 0.9  # of what is free at the start


SomeJob = TypeVar("SomeJob", bound=Job)


@dataclass(frozen=True, kw_only=True)
class PlannedJob(Generic[SomeJob]):
    """A job, and what it is expected to need."""

    job: SomeJob
    seconds: float
    megabytes: float


@dataclass(frozen=True, kw_only=True)
class JobEnd(Generic[SomeJob]):
    """How the process of a job ended."""

    job: SomeJob
    status: int
    """0: the result is written. 2: refused, as a wrong setting is. Anything else: failed."""
    reason: str
    """One line, where there is no result."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Number of processes, threads of each, and memory of all."""

    jobs: int
    threads: int
    megabytes: float

    @staticmethod
    def available(cells: int, jobs: int | None = None) -> "Resources":
        """As many processes as cores, or `jobs`; cores are shared among them."""
        cores = available_cores()
        jobs = max(1, min(jobs or cores, cells))
        free = _MEMORY_SHARE * available_megabytes()
        return Resources(jobs=jobs, threads=max(1, cores // jobs), megabytes=free)


def expected_seconds(jobs: Sequence[PlannedJob[Any]], resources: Resources) -> float:
    """Expected seconds until all are done, longest first, ignoring memory."""
    ends = [0.0] * resources.jobs
    for planned in sorted(jobs, key=lambda planned: -planned.seconds):
        ends[ends.index(min(ends))] += planned.seconds
    return max(ends)


def run_all(
    jobs: Sequence[PlannedJob[SomeJob]],
    resources: Resources,
    logs: Path,
    on_end: Callable[[JobEnd[SomeJob], int], None],
) -> list[JobEnd[SomeJob]]:
    """Run every job. An exception, a keyboard interrupt too, kills all processes.

    Args:
        on_end: callback `(end, remaining)`, called when a job has ended.
    """
    pending = sorted(jobs, key=lambda planned: -planned.seconds)
    running: list[_Running] = []
    ends: list[JobEnd[SomeJob]] = []
    logs.mkdir(parents=True, exist_ok=True)
    try:
        while pending or running:
            while (planned := _next(pending, running, resources)) is not None:
                pending.remove(planned)
                process = _start(planned.job, resources, logs)
                running.append(_Running(planned, process, time.perf_counter()))
            for ended in [entry for entry in running if not entry.process.is_alive()]:
                running.remove(ended)
                seconds = time.perf_counter() - ended.start
                ends.append(_end(ended.planned.job, ended.process.exitcode or 0, logs, seconds))
                on_end(ends[-1], len(pending) + len(running))
            time.sleep(_POLL_SECONDS)
    finally:
        _kill([entry.process for entry in running])
    return ends


class _Running(NamedTuple):
    planned: PlannedJob[Any]
    process: BaseProcess
    start: float


def _next(
    pending: Sequence[PlannedJob[SomeJob]], running: Sequence[_Running], resources: Resources
) -> PlannedJob[SomeJob] | None:
    """The longest job that fits; a job alone always does."""
    if len(running) >= resources.jobs:
        return None
    used = sum(entry.planned.megabytes for entry in running)
    fitting = (
        planned
        for planned in pending
        if not running or used + planned.megabytes <= resources.megabytes
    )
    return next(fitting, None)


def _start(job: Job, resources: Resources, logs: Path) -> BaseProcess:
    """Start a process; on Linux a fork of one that has imported torch and done nothing yet."""
    context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
    if _FORKS:
        context.set_forkserver_preload([*_PRELOADED, *profile_modules(PROFILES, "trainer")])
    process: BaseProcess = context.Process(
        target=child, args=(job, logs / f"{job.name}.txt", resources.threads), daemon=True
    )
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(resources.threads)))
    try:
        with _without_main_module():
            process.start()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return process


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Hide the script that is run: a process would import it, and so run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end(job: SomeJob, status: int, logs: Path, seconds: float) -> JobEnd[SomeJob]:
    log = logs / f"{job.name}.txt"
    if status == 0 and job.path.exists():
        log.unlink(missing_ok=True)
        return JobEnd(job=job, status=0, reason="", seconds=seconds)
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    if status < 0:
        last = f"its process was ended by signal {-status}"
        if -status == 9:
            last += ", as it is when memory runs out"
    return JobEnd(
        job=job, status=status or 1, reason=last or "it wrote nothing to its log", seconds=seconds
    )


def _kill(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()  # results are written atomically: nothing is left half-written
    for process in processes:
        process.join()


def available_cores() -> int:
    """Cores that this process and its container may use."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
    quota, *rest = _limit("cpu.max") or ["max"]
    if quota.isdigit() and rest and rest[0].isdigit() and int(rest[0]):
        cores = min(cores, max(1, int(quota) // int(rest[0])))
    return cores


def available_megabytes() -> float:
    """Memory that is available, within the limit of a container."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2 / 1024**2
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) / 1024
    except OSError:
        pass
    limit, used, stat = _limit("memory.max"), _limit("memory.current"), _limit("memory.stat")
    if limit and used and limit[0].isdigit():
        cached = int(stat[stat.index(CACHED) + 1]) if CACHED in stat else 0
        free = min(free, max(0, int(limit[0]) - int(used[0]) + cached) / 1024**2)
    return free


CGROUP, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
CACHED = "inactive_file"
"""Memory that the system can free at once."""


def _limit(name: str) -> list[str]:
    """The words of a file of control groups, version 2; empty where there is none."""
    try:
        return (CGROUP / name).read_text().split()
    except OSError:
        return []
