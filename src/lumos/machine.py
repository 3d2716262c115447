"""Memory, processor time and threads of this process.

A second thread of torch or OpenBLAS waits for its share of an array by spinning, and arrays of a
small federation are done before it has begun. So a thread is taken for every million rows that a
run computes with, one for each device and one for each end of an edge, and at least one. The
million is a choice: strict Facebook (364,000 rows) takes as long on one thread as on two.

Whoever sets one of `VARIABLES`, as `OMP_NUM_THREADS`, or calls `torch.set_num_threads` is obeyed.
"""

import ctypes
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

_STATUS = Path("/proc/self/status")


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes.

    On Linux `getrusage` also counts the process that started this one, up to the moment when it
    did; the kernel's status of the process itself does not.
    """
    if sys.platform == "linux" and _STATUS.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return round(int(found[1]) / 1024, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1024**2), 1)


def cpu_seconds() -> float:
    """Processor time of this process so far, and of its workers that have ended, in seconds."""
    spent = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables by which people choose the number of threads themselves."""
ROWS_PER_THREAD = 1_000_000
_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads")
"""Names of the functions in the OpenBLAS of numpy's and scipy's packages."""


class ThreadPool(NamedTuple):
    """The threads of one library."""

    get: Callable[[], int]
    set: Callable[[int], object]


def thread_count(devices: int, edges: int, available: int) -> int:
    """Threads for a federation of this size, of those that are available."""
    return max(1, min(available, (devices + 2 * edges) // ROWS_PER_THREAD))


@contextmanager
def threads_for(devices: int, edges: int) -> Iterator[None]:
    """Inside, torch and OpenBLAS use as many threads as pay; never more than before.

    Args:
        devices: of the federation, or of the part of it that this process hosts.
        edges: the same.
    """
    changed: list[tuple[ThreadPool, int]] = []
    if not any(os.environ.get(name) for name in VARIABLES):
        for pool in _pools():
            before = pool.get()
            wanted = thread_count(devices, edges, before)
            if wanted < before:
                pool.set(wanted)
                changed.append((pool, before))
    try:
        yield
    finally:
        for pool, before in changed:
            pool.set(before)


def _pools() -> list[ThreadPool]:
    """Return the thread pools of the libraries that are loaded."""
    found = [*_openblas(_loaded_openblas())]
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() in _defaults():
        found.append(ThreadPool(torch.get_num_threads, torch.set_num_threads))
    return found


def _defaults() -> tuple[int, int]:
    """Return the numbers of threads torch chooses by itself: logical or physical cores."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return cores, -(-cores // 2)


def _loaded_openblas() -> tuple[str, ...]:
    """Files of the OpenBLAS libraries in this process; none where the system does not say."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return ()
    words = (line.split() for line in maps.read_text().splitlines())
    return tuple(dict.fromkeys(some[-1] for some in words if "openblas" in some[-1]))


@cache
def _openblas(files: tuple[str, ...]) -> tuple[ThreadPool, ...]:
    found = []
    for file in files:
        library = ctypes.CDLL(file)
        for name in _NAMES:
            if hasattr(library, name.format("set")):
                get, change = (getattr(library, name.format(verb)) for verb in ("get", "set"))
                found.append(ThreadPool(get, change))
                break
    return tuple(found)
