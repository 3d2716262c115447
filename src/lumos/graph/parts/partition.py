"""Which part has which devices: contiguous ranges, or any assignment."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lumos.errors import InputError, UsageError
from lumos.graph.arrays import Ids, lookup, shown
from lumos.graph.io.files import readable
from lumos.graph.parts.manifest import MOST_PARTS, equal_bounds
from lumos.typing import Ints

FILE = "assignment.npy"
PartNumbers = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
"""[devices] a byte for each device; two beyond 256 parts."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The devices of each part."""

    parts: int
    bounds: Ints | None = field(repr=False)
    """[parts + 1] of contiguous ranges; otherwise None."""
    assignment: PartNumbers | None = field(repr=False, default=None)
    """[devices] otherwise."""

    @staticmethod
    def equal(devices: int, parts: int) -> "Partition":
        """Contiguous ranges of about equal numbers of devices."""
        return Partition(parts, equal_bounds(devices, parts))

    @cached_property
    def counts(self) -> Ints:
        """[parts] number of devices."""
        if self.bounds is not None:
            return np.diff(self.bounds)
        return np.bincount(np.asarray(self.assignment), minlength=self.parts).astype(np.int64)

    def part_of(self, devices: Ints) -> Ints:
        """[devices] the part of each."""
        if self.bounds is not None:
            return np.searchsorted(self.bounds, devices, side="right") - 1
        return np.asarray(self.assignment)[devices].astype(np.int64)

    def hosted(self) -> Iterator[Ints]:
        """The devices of one part after the other, increasing."""
        ends = np.cumsum(self.counts)
        order = None if self.bounds is not None else np.argsort(self._numbers, kind="stable")
        for start, end in zip(ends - self.counts, ends, strict=True):
            yield np.arange(start, end) if order is None else order[start:end]

    @property
    def _numbers(self) -> PartNumbers:
        return np.asarray(self.assignment)


def small_numbers(numbers: npt.NDArray[Any], most: int) -> PartNumbers:
    """The same numbers, all below `most`, in one byte each, or two where one is too few."""
    return numbers.astype(np.uint8) if most <= 256 else numbers.astype(np.uint16)


def read_assignment(path: Path, ids: Ids, parts: int | None = None) -> Partition:
    """Read which device is in which part.

    Args:
        path: a CSV with `id,part` on each line, or an npy with the part of each device in the order
            of the graph. Parts are numbered from 0.
        ids: [devices] original ids.
        parts: how many parts are expected; by default as many as the file names.

    Raises:
        InputError: there is no such file, a device is missing or there twice, or a part is empty.
    """
    numbers = _of_npy(path, len(ids)) if path.suffix == ".npy" else _of_table(path, ids)
    highest = int(numbers.max()) + 1
    if parts is not None and highest != parts:
        raise InputError(f"{path}: it names {highest:,} parts, but `parts` is {parts:,}")
    if highest > MOST_PARTS:
        raise InputError(f"{path}: part {highest - 1:,}; parts are numbered 0 … {MOST_PARTS - 1:,}")
    empty = np.flatnonzero(np.bincount(numbers, minlength=highest) == 0)
    if len(empty):
        raise InputError(f"{path}: part {empty[0]} has no device; number parts without gaps from 0")
    return Partition(highest, None, small_numbers(numbers, highest))


def _of_npy(path: Path, devices: int) -> Ints:
    with readable(str(path)), path.open("rb") as file:
        # Mapped: the header of a short file cannot ask for much memory.
        numbers = np.lib.format.open_memmap(file.name, "r") if devices else np.empty(0, np.int64)
    if numbers.shape != (devices,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"{path}: {numbers.dtype} of shape {list(numbers.shape)}; a whole number for each "
            f"device is needed, [{devices}]"
        )
    if int(numbers.min()) < 0:
        row = int(np.argmin(numbers))
        raise InputError(f"{path}: row {row} has part {numbers[row]}; parts are numbered from 0")
    return np.asarray(numbers, np.int64)


def _of_table(path: Path, ids: Ids) -> Ints:
    with readable(str(path)):
        lines = path.read_text("utf-8-sig").splitlines()
    names: list[str] = []
    numbers: list[int] = []
    places: list[int] = []
    for place, line in enumerate(lines, start=1):
        cells = [cell.strip().strip('"') for cell in line.replace("\t", ",").split(",")]
        if not any(cells) or cells[0].startswith("#"):
            continue
        if len(cells) != 2:
            raise InputError(f"{path}, line {place}: {len(cells)} columns; id,part is needed")
        if not (cells[1].isdecimal() and len(cells[1]) < 7):
            if not names and cells[1].casefold() in ("part", "parts", "partition"):
                continue  # a header
            raise InputError(
                f"{path}, line {place}: {shown(cells[1])} is no part; parts are numbered from 0"
            )
        names.append(cells[0])
        numbers.append(int(cells[1]))
        places.append(place)
    if not names:
        raise InputError(f"{path}: it holds no rows; id,part is needed")
    known = np.array(names, dtype=object)
    if not isinstance(ids, tuple):
        wrong = next((row for row, name in enumerate(names) if not _whole(name)), None)
        if wrong is not None:
            raise InputError(
                f"{path}, line {places[wrong]}: {shown(names[wrong])} is not the id of any device"
            )
        known = np.array([int(name) for name in names], dtype=np.int64)
    rows = lookup(known, ids)
    for row in np.flatnonzero(rows < 0)[:1]:
        raise InputError(
            f"{path}, line {places[row]}: {shown(names[row])} is not the id of any device"
        )
    times = np.bincount(rows, minlength=len(ids))
    if (again := np.flatnonzero(times > 1)).size:
        raise InputError(f"{path}: {shown(ids[again[0]])} occurs twice; put it into one part")
    if (missing := np.flatnonzero(times == 0)).size:
        raise InputError(
            f"{path}: {len(missing):,} devices are in no part, the first is "
            f"{shown(ids[missing[0]])}; give each a line"
        )
    parts = np.empty(len(ids), np.int64)
    parts[rows] = numbers
    return parts


def _whole(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def refuse_neither(parts: int | None, assign: Path | None) -> None:
    """Refuse a split that says neither how many parts there are nor which.

    Raises:
        UsageError: both are missing.
    """
    if parts is None and assign is None:
        raise UsageError("`parts` is needed: how many, or `assign`, a file with id,part")
