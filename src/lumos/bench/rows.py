"""What a measurement returns: rows of two sides and their ratio."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lumos.bench.timing import Timed


@dataclass(frozen=True, kw_only=True)
class BenchSize:
    """How much to measure."""

    full: bool = False
    """Sizes of the documentation's figures, instead of those that take two minutes in all."""
    data_dir: Path | None = None
    """Folder of the graphs."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """Two sides of one measurement."""

    name: str
    ours: float | None
    """In `unit`; None where it could not be measured."""
    peer: float | None
    """The same of the other side."""
    ratio: float | None
    """How much better we are: at least 1 where we win."""
    unit: str
    against: str
    """What the other side is."""
    low: float | None = None
    """The lowest ratio of any repetition, where sides took turns."""
    high: float | None = None
    ours_clock: float | None = None
    """Seconds on the clock, where `unit` is seconds of a processor."""
    peer_clock: float | None = None
    note: str = ""


Measurement: TypeAlias = Callable[[BenchSize], list[BenchRow]]

CPU = "CPU s"
"""Seconds of a processor, which other processes do not lengthen as they do the clock's."""


def timed_row(name: str, against: str, timed: Timed, note: str = "") -> BenchRow:
    """A row of two sides that took turns."""
    return BenchRow(
        name=name,
        ours=timed.ours.cpu,
        peer=timed.peer.cpu,
        ratio=timed.ratio,
        unit=CPU,
        against=against,
        low=timed.low,
        high=timed.high,
        ours_clock=timed.ours.clock,
        peer_clock=timed.peer.clock,
        note=note,
    )


def missing(name: str, against: str, why: str) -> BenchRow:
    """A row that says why it has no numbers."""
    return BenchRow(name=name, ours=None, peer=None, ratio=None, unit="", against=against, note=why)
