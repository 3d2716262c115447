"""The arrays of a book, as each record declares them: their types, sizes and permitted values.

A book is read only if every array is what its record declares. So an amount below 0, an array that
was shortened, or one of another type is refused, and never counted as a budget that is left.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lumos.typing import Arrays

ENTRIES, PACKED = "entries", "packed entries"
"""Sizes that follow from the number of entries: one for each, or one bit for each."""
ROUNDING = 1e-9
"""By which part two rounded sums of the same amounts may differ."""

Sizes = dict[str, int]


class Column(NamedTuple):
    """One array of a record."""

    kind: str
    """The numpy type: f8 numbers, i8 whole numbers, u1 bytes, u8 marks; U text of any length."""
    shape: tuple[str | int, ...]
    """Sizes: a number, `ENTRIES`, `PACKED`, or a name that all arrays of the record share."""
    fill: float = 0
    """What an entry has that was added later."""
    least: float = 0
    """Smallest value."""
    below: str = ""
    """The size that whole numbers stay below."""

    def check(self, array: npt.NDArray[Any], sizes: Sizes) -> str:
        """What is wrong with an array, in a few words; sizes that are new are noted."""
        text = array.dtype.kind == "U"
        if not (text if self.kind == "U" else array.dtype == np.dtype(self.kind)):
            return "has another type"
        if array.ndim != len(self.shape):
            return "has another shape"
        for wanted, found in zip(self.shape, array.shape, strict=True):
            size = wanted if isinstance(wanted, int) else sizes.setdefault(wanted, found)
            if size != found:
                return "has another length"
        if text or not array.size:
            return ""
        if not np.isfinite(array).all():
            return "has a number that is not finite"
        if array.min() < self.least:
            return f"has a number below {self.least:g}"
        if self.below and array.max() >= sizes.get(self.below, 0):
            return "names something that is not there"
        return ""

    def padded(self, array: npt.NDArray[Any], sizes: Sizes) -> npt.NDArray[Any]:
        """The array with room for all entries."""
        wider = [
            (0, sizes[wanted] - found if wanted in (ENTRIES, PACKED) else 0)
            for wanted, found in zip(self.shape, array.shape, strict=True)
        ]
        if not any(more for _, more in wider):
            return array
        return np.pad(array, wider, constant_values=self.fill)


def entry_sizes(entries: int) -> Sizes:
    """The sizes that follow from the number of entries."""
    return {ENTRIES: entries, PACKED: -(-entries // 8)}


class RecordForm(NamedTuple):
    """The arrays of one kind of record, of which a book may have several by name."""

    columns: Mapping[str, Column]
    named: bool = True
    """Whether records of this kind have names: `kind/name/array`, not `kind/array`."""

    def check(self, arrays: Mapping[str, npt.NDArray[Any]], sizes: Sizes) -> str:
        """What is wrong with one record, in a few words; `arrays` by their names in it."""
        for name in self.columns.keys() ^ arrays.keys():
            return f"{name!r} is {'unknown' if name in arrays else 'missing'}"
        own = dict(sizes)
        for name, column in self.columns.items():
            if problem := column.check(arrays[name], own):
                return f"{name!r} {problem}"
        return ""


def records_in(book: Arrays, kind: str, form: RecordForm) -> dict[str, Arrays]:
    """By prefix, the arrays of all records of a kind that a book has, by their names in each."""
    found: dict[str, Arrays] = {}
    for place, array in book.items():
        if place.startswith(f"{kind}/"):
            prefix, _, name = place.rpartition("/")
            if form.named or prefix == kind:
                found.setdefault(prefix, {})[name] = array
    return found
