"""Edges from a table: a row is an unordered pair of ids."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumos.errors import InputError
from lumos.graph.ids import shown
from lumos.graph.options import ReadOptions
from lumos.graph.tables import TextTable, id_of, integer_pairs

DIRECTED_COMMENT = re.compile(r"directed\b(?!\W*(false|no|0)\b)", re.IGNORECASE)


def read_edges(table: TextTable, options: ReadOptions, *, integers: bool) -> NDArray[Any]:
    """[rows, 2] of int64 or text: the pairs of ids in a table.

    Whether (u, v) or (v, u) is written makes no difference, and both may be. The table is directed
    only where it says so: by a comment that starts with "Directed" (as SNAP writes it), or by a
    column `type` that holds "Directed" (as Gephi writes it). Other columns than the first two are
    weights.
    """
    for line, comment in table.comments:
        if DIRECTED_COMMENT.match(comment):
            _refuse_directed(table, line, comment, options)
    if integers and len(table.header) in (0, 2):
        fast = integer_pairs(table)
        if fast is not None:
            return fast
    kind = table.header.index("type") if "type" in table.header[2:] else None
    pairs: list[tuple[int | str, int | str]] = []
    for line, row in table.rows():
        if len(row) < 2:
            table.refuse(line, f"{shown(row[0])} is one id; an edge needs two")
        for column, cell in enumerate(row[2:], start=2):
            if column == kind:
                if cell.casefold() == "directed":
                    _refuse_directed(table, line, cell, options)
            elif cell and options.weights == "refuse":
                table.refuse(
                    line,
                    f"{shown(cell)} in column {column + 1} is a weight, and Lumos has none; "
                    'drop weights with weights="drop" (--weights drop)',
                )
        u, v = (id_of(cell, table, line, integers) for cell in row[:2])
        pairs.append((u, v))
    if not pairs:
        table.refuse(table.first_line, "there is no edge; the graph is empty")
    return np.array(pairs, dtype=np.int64 if integers else np.str_)


def _refuse_directed(table: TextTable, line: int, value: str, options: ReadOptions) -> None:
    if options.directed == "refuse":
        table.refuse(
            line,
            f"{shown(value)}: the graph is directed; read each arc as an undirected edge with "
            'directed="symmetrise" (--directed symmetrise)',
        )


def line_of_row(table: TextTable, index: int) -> int:
    """Line on which row `index` (from 0) of a table stands; looked up only for an error."""
    for number, (line, _) in enumerate(table.rows()):
        if number == index:
            return line
    raise InputError(f"{table.file}: there is no row {index}")
