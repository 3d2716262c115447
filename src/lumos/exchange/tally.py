"""A count per row that is cheap to feed."""

import numpy as np

from lumos.typing import Ints

_FLUSH_ROWS = 1 << 18


class Tally:
    """A count per row, fed with many small batches and added up in large ones.

    Args:
        size: number of rows.
    """

    __slots__ = ("_counts", "_rows", "_waiting", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._counts = np.zeros(size, np.int64)
        self._rows: list[Ints] = []
        self._waiting = 0

    def add(self, rows: Ints) -> None:
        """Count each of `rows` once more. They are copied: the caller may reuse its array."""
        self._rows.append(rows.copy())
        self._waiting += len(rows)
        if self._waiting > _FLUSH_ROWS:
            self.counts()

    def counts(self) -> Ints:
        """[size] how often each row was counted."""
        if self._rows:
            self._counts += np.bincount(np.concatenate(self._rows), minlength=self.size)
            self._rows, self._waiting = [], 0
        return self._counts
