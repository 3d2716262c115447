"""Two sides that take turns, so that a busy machine slows both."""

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Seconds(NamedTuple):
    """Of one call."""

    cpu: float
    clock: float


class Timed(NamedTuple):
    """Medians of both sides, and of the ratio of each turn."""

    ours: Seconds
    peer: Seconds
    ratio: float
    """The peer's processor time over ours, median of the turns."""
    low: float
    high: float


def seconds_of(call: Callable[[], object]) -> Seconds:
    """Processor and clock seconds of one call."""
    cpu, clock = time.process_time(), time.perf_counter()
    call()
    return Seconds(time.process_time() - cpu, time.perf_counter() - clock)


def alternated(ours: Callable[[], object], peer: Callable[[], object], turns: int) -> Timed:
    """Both sides `turns` times, one after the other, after a turn that warms up."""
    pairs = [(seconds_of(ours), seconds_of(peer)) for _ in range(turns + 1)][1:]
    ratios = [other.cpu / max(mine.cpu, 1e-9) for mine, other in pairs]
    mine, other = zip(*pairs, strict=True)
    return Timed(_median(mine), _median(other), median(ratios), min(ratios), max(ratios))


def _median(side: tuple[Seconds, ...]) -> Seconds:
    return Seconds(median(one.cpu for one in side), median(one.clock for one in side))
