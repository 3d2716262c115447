"""What else the machine was doing while something was measured."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_COPIED = 1 << 23
"""Doubles of the arrays that are copied to measure the memory: 64 MB, more than most caches."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine during a measurement."""

    cores: int
    load: float | None
    """Mean number of processes that wanted a core in the last minute, ourselves among them."""
    ours: float
    """Processor seconds of this process and its children, for each second of the clock."""
    others: float | None
    """The same of everybody else."""
    copy_gb_per_second: float
    """Bytes read and written in a copy of a large array by one thread."""

    def sentence(self) -> str:
        """For people."""
        if self.others is None:
            busy = "what others used is not known here"
        else:
            busy = f"others used {self.others:.1f} of them, this command {self.ours:.1f}"
        load = "" if self.load is None else f"; load average {self.load:.1f}"
        return (
            f"{self.cores} cores: {busy}{load}; memory copies {self.copy_gb_per_second:.1f} GB/s "
            "on one thread"
        )


class MachineWatch:
    """From its making to `read`."""

    def __init__(self) -> None:
        self._clock, self._own, self._all = time.perf_counter(), _own_seconds(), _all_seconds()

    def read(self) -> Machine:
        """What happened since."""
        clock, own, everybody = time.perf_counter(), _own_seconds(), _all_seconds()
        passed = max(clock - self._clock, 1e-9)
        ours = (own - self._own) / passed
        others = None
        if everybody is not None and self._all is not None:
            others = max(0.0, (everybody - self._all) / passed - ours)
        return Machine(
            cores=os.cpu_count() or 1,
            load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            ours=ours,
            others=others,
            copy_gb_per_second=copy_speed(),
        )


def copy_speed() -> float:
    """GB/s that a copy of a large array reads and writes: the best of three."""
    source, target = np.ones(_COPIED), np.zeros(_COPIED)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best / 1e9


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _all_seconds() -> float | None:
    """Processor seconds of all processes since the machine started; None where nobody says."""
    file = Path("/proc/stat")
    if not file.exists():
        return None
    user, nice, system, _idle, _wait, *interrupts = file.read_text().split("\n", 1)[0].split()[1:8]
    ticks = sum(map(int, (user, nice, system, *interrupts)))
    return ticks / os.sysconf("SC_CLK_TCK")
