"""Features as numbers: a table with one row per device."""

from typing import Any

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import fits_float32, freeze
from lumos.graph.ids import Ids, shown
from lumos.graph.tables import TextTable, id_of


class NumberTable:
    """A table with the id in the first column and a number in each other one."""

    def __init__(self, table: TextTable, *, integers: bool) -> None:
        self.file = table.file
        self._table = table
        self._rows: dict[int | str, list[float]] = {}
        self._lines: dict[int | str, int] = {}
        width = 0
        for line, row in table.rows():
            device = id_of(row[0], table, line, integers)
            if device in self._rows:
                table.refuse(line, f"device {shown(device)} occurs twice; give it one row")
            values = [self._number(cell, line, column) for column, cell in enumerate(row[1:], 2)]
            width = width or len(values)
            if not values or len(values) != width:
                table.refuse(line, f"{len(values)} features, but the first row has {width}")
            self._rows[device] = values
            self._lines[device] = line

    def _number(self, cell: str, line: int, column: int) -> float:
        try:
            value = float(cell)
        except ValueError:
            self._table.refuse(line, f"{shown(cell)} in column {column} is not a number")
        if not fits_float32(value):
            self._table.refuse(
                line, f"{shown(cell)} in column {column} is not a finite number; replace it"
            )
        return value

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""
        return set(self._rows)

    def matrix(self, ids: Ids) -> tuple[Any, tuple[str, ...]]:
        """[devices, width] in the order of `ids`, and notes."""
        known = ids if isinstance(ids, tuple) else ids.tolist()
        for device in sorted(self._rows.keys() - set(known), key=str)[:1]:
            line = self._lines[device]
            self._table.refuse(line, f"device {shown(device)} is not a device of this graph")
        for device in known:
            if device not in self._rows:
                raise InputError(f"{self.file}: device {shown(device)} has no row; add one")
        rows = np.array([self._rows[device] for device in known], dtype=np.float32)
        return freeze(rows, np.float32, own=True), ()
