"""A count per row that is cheap to feed."""

import numpy as np

from lumos.typing import Ints

_FLUSH_ROWS = 1 << 18


class Tally:
    """A count per row, fed with many small batches and added up in large ones.

    Counts of every row at once, as ideal sums book them, are kept as one number.

    Args:
        size: number of rows.
    """

    __slots__ = ("_counts", "_every", "_rows", "_waiting", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._every = 0
        self._counts: Ints | None = None
        self._rows: list[Ints] = []
        self._waiting = 0

    def add(self, rows: Ints) -> None:
        """Count each of `rows` once more. The caller may reuse its array."""
        if len(rows) == self.size and each_row(rows, self.size):
            self._every += 1
        elif len(rows) > _FLUSH_ROWS:  # counted now, and so not copied
            self._count(rows)
        else:
            self._rows.append(rows.copy())
            self._waiting += len(rows)
            if self._waiting > _FLUSH_ROWS:
                self._flush()

    def counts(self) -> Ints:
        """[size] how often each row was counted."""
        counts = self.counts_or_one()
        if isinstance(counts, int):
            counts, self._every = np.full(self.size, counts, np.int64), 0
            self._counts = counts
        return counts

    def counts_or_one(self) -> Ints | int:
        """[size] the same; or one number, where every row has it."""
        self._flush()
        if self._counts is None:
            return self._every
        if self._every:
            self._counts += self._every
            self._every = 0
        return self._counts

    def _flush(self) -> None:
        if self._rows:
            self._count(np.concatenate(self._rows))
            self._rows, self._waiting = [], 0

    def _count(self, rows: Ints) -> None:
        counts = np.bincount(rows, minlength=self.size)
        if self._counts is None:
            self._counts = counts
        else:
            self._counts += counts


def each_row(rows: Ints, size: int) -> bool:
    """Whether `rows` [size] are 0, 1, … `size` - 1."""
    if not size:
        return True
    ends = rows[0] == 0 and rows[-1] == size - 1
    return bool(ends and (rows[1:] > rows[:-1]).all())


def nondecreasing(rows: Ints) -> bool:
    """Whether no row is below the one before it."""
    return not np.count_nonzero(rows[1:] < rows[:-1])
