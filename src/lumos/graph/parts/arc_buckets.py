"""Arcs sorted into files by part, so that the neighbour lists of one part fit into memory."""

from pathlib import Path

import numpy as np

from lumos.graph.arrays import distinct
from lumos.graph.parts.layout import new_private
from lumos.typing import Ints


class ArcBuckets:
    """A file for each part with the arcs (owner, other) whose owner is in it.

    Args:
        folder: where the files lie.
        name: how they begin.
        bounds: [parts + 1] the parts, contiguous ranges of devices.
    """

    def __init__(self, folder: Path, name: str, bounds: Ints) -> None:
        self._bounds = bounds
        self._paths = [folder / f"{name}-{number:05d}" for number in range(len(bounds) - 1)]
        for path in self._paths:
            new_private(path).close()

    def add(self, owner: Ints, other: Ints) -> None:
        """Put arcs into the files of their owners."""
        # Numbers of 16 bits are sorted by radix; more parts by comparison.
        part = (np.searchsorted(self._bounds, owner, side="right") - 1).astype(
            np.uint16 if len(self._paths) <= 1 << 16 else np.int64
        )
        order = np.argsort(part, kind="stable")
        arcs = np.stack([owner[order], other[order]], axis=1).astype(np.int32)
        ends = np.cumsum(np.bincount(part, minlength=len(self._paths)))
        start = 0
        for path, end in zip(self._paths, ends.tolist(), strict=True):
            if end > start:
                with path.open("ab") as file:
                    file.write(arcs[start:end].data)
            start = end

    def take(self, number: int) -> Ints:
        """[arcs] the distinct arcs of a part, as (owner - first) · devices + other, ascending.

        The file is deleted.
        """
        arcs = np.fromfile(self._paths[number], np.int32).reshape(-1, 2)
        self._paths[number].unlink()
        keys = arcs[:, 0].astype(np.int64)
        keys -= self._bounds[number]
        keys *= self._bounds[-1]
        keys += arcs[:, 1]
        return distinct(keys)


def lists_of(arcs: Ints, hosted: int, devices: int) -> tuple[Ints, Ints]:
    """[hosted + 1] offsets and [arcs] neighbours, from distinct arcs as `ArcBuckets` has them."""
    owner, other = np.divmod(arcs, devices)
    offsets = np.zeros(hosted + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=hosted), out=offsets[1:])
    return offsets, other
