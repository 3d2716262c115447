"""Feature files: what each can do, and those with numbers; `word_lists` reads words."""

from typing import Any, Protocol

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import finite_features, fits_float32, freeze
from lumos.graph.feature_columns import Columns, chosen_columns
from lumos.graph.files import arrays_of, sparse_of
from lumos.graph.ids import Ids, lookup, shown, unique_ids
from lumos.graph.options import ReadOptions
from lumos.graph.text_table import TextTable, id_of


class FeatureFile(Protocol):
    """A file that knows the features of devices."""

    file: str

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""

    def columns(self, ids: Ids) -> tuple[Columns, tuple[str, ...]]:
        """The features in the order of `ids`, and notes."""


class NumberTable:
    """A table with the id in the first column and a number in each other one.

    Columns that the option `categorical` lists may hold anything.
    """

    def __init__(self, table: TextTable, *, integers: bool, options: ReadOptions) -> None:
        self.file = table.file
        self._table = table
        self._rows: dict[int | str, list[float]] = {}
        self._lines: dict[int | str, int] = {}
        width = next((len(row) - 1 for _, row in table.rows()), 0)
        wanted = options.categorical_columns
        chosen = chosen_columns(wanted, table.header[1:], width, 2, table.file) if width else []
        self._texts: dict[int, dict[int | str, str]] = {column: {} for column in chosen}
        for line, row in table.rows():
            device = id_of(row[0], table, line, integers)
            if device in self._rows:
                table.refuse(line, f"device {shown(device)} occurs twice; give it one row")
            if len(row) < 2 or len(row) - 1 != width:
                table.refuse(line, f"{len(row) - 1} features, but the first row has {width}")
            for column, texts in self._texts.items():
                texts[device] = row[column + 1]
            self._rows[device] = [
                0.0 if column in self._texts else self._number(cell, line, column)
                for column, cell in enumerate(row[1:])
            ]
            self._lines[device] = line

    def _number(self, cell: str, line: int, column: int) -> float:
        try:
            value = float(cell)
        except ValueError:
            name = self._table.header[column + 1 : column + 2] or (column + 2,)
            category = f"; if it holds categories, use `categorical={name[0]!r}`" if cell else ""
            self._table.refuse(
                line, f"{shown(cell)} in column {column + 2} is not a number{category}"
            )
        if not fits_float32(value):
            self._table.refuse(
                line, f"{shown(cell)} in column {column + 2} is not a finite number; replace it"
            )
        return value

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""
        return set(self._rows)

    def columns(self, ids: Ids) -> tuple[Columns, tuple[str, ...]]:
        """The features in the order of `ids`, and notes."""
        known = ids if isinstance(ids, tuple) else ids.tolist()
        for device in sorted(self._rows.keys() - set(known), key=str)[:1]:
            line = self._lines[device]
            self._table.refuse(line, f"device {shown(device)} is not a device of this graph")
        for device in known:
            if device not in self._rows:
                raise InputError(f"{self.file}: device {shown(device)} has no row; add one")
        rows = np.array([self._rows[device] for device in known], dtype=np.float32)
        columns = Columns(
            matrix=freeze(rows, np.float32, own=True),
            names=self._table.header[1:],
            first=2,
            texts={
                column: [texts[device] for device in known] for column, texts in self._texts.items()
            },
        )
        return columns, self._table.notes


class FeatureArchive:
    """An npz with `features` [devices, width] and `ids`, or one written by scipy's `save_npz`.

    Without `ids` the rows belong to the ids 0, 1, 2, …
    """

    def __init__(self, content: bytes, file: str, *, integers: bool) -> None:
        self.file = file
        arrays = arrays_of(content, file)
        if "indptr" in arrays:
            self._features = sparse_of(arrays, file)
        elif "features" in arrays:
            self._features = arrays["features"]
        else:
            has = ", ".join(arrays) or "nothing"
            raise InputError(f"{file}: there is no array 'features' (it has: {has}); add it")
        rows = self._features.shape[0] if self._features.ndim else 0
        named = arrays.get("ids", np.arange(rows, dtype=np.int64))
        if named.shape != (rows,):
            raise InputError(f"{file}: ids: one id per row of features is needed, {rows}")
        try:
            self._ids = unique_ids(named)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        if isinstance(self._ids, tuple) == integers and rows:
            wanted = "integers" if integers else "names"
            raise InputError(f"{file}: ids: {wanted} are needed, as in the edges")

    def ids(self) -> set[Any]:
        """Return the ids of the devices that the file speaks of."""
        return set(self._ids if isinstance(self._ids, tuple) else self._ids.tolist())

    def columns(self, ids: Ids) -> tuple[Columns, tuple[str, ...]]:
        """The features in the order of `ids`, and notes."""
        features = finite_features(self._features, len(self._ids), f"{self.file}: features")
        unknown = self.ids() - set(ids if isinstance(ids, tuple) else ids.tolist())
        if unknown:
            device = shown(min(unknown))
            raise InputError(f"{self.file}: ids: {device} is not a device of this graph")
        row = lookup(np.asarray(ids), self._ids)
        if np.any(row < 0):
            device = shown(np.asarray(ids)[np.argmin(row)])
            raise InputError(f"{self.file}: device {device} has no row; add one")
        return Columns(features[row]), ()
