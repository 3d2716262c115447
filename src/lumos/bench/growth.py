"""Processor time and peak memory of a whole strict run against the number of devices.

Each size is a process of its own, `lumos train demo:N --json`, whose peak memory is its own. A row
stands beside the size before it: a ratio of 1 means that time grew as the number of devices did,
above 1 that it grew more slowly.
"""

from itertools import pairwise
from typing import Any

from lumos.bench.rows import CPU, BenchRow, BenchSize, missing
from lumos.bench.subprocesses import CommandFailed, train_alone

AGAINST = "linear growth from the size before"
QUICK = (4_000, 16_000)
FULL = (1_000, 10_000, 100_000, 1_000_000)


def measure(size: BenchSize) -> list[BenchRow]:
    """A row for each size after the first."""
    sizes = FULL if size.full else QUICK
    runs: list[tuple[int, dict[str, Any]]] = []
    for devices in sizes:
        try:
            runs.append((devices, train_alone(f"demo:{devices}", size.seed, "--no-floor")))
        except CommandFailed as error:
            return [missing(f"demo:{devices}", AGAINST, str(error))]
    return [_row(before, after) for before, after in pairwise(runs)]


def _row(before: tuple[int, dict[str, Any]], after: tuple[int, dict[str, Any]]) -> BenchRow:
    (fewer, small), (more, large) = before, after
    expected = small["cpu"] * more / fewer
    return BenchRow(
        name=f"strict run, {more:,} devices",
        ours=large["cpu"],
        peer=expected,
        ratio=expected / large["cpu"],
        unit=CPU,
        against=AGAINST,
        ours_clock=large["clock"],
        note=f"{large['peak_rss_mb']:,.0f} MB, {1e6 * large['cpu'] / more:.0f} µs a device",
    )
