"""Tables of text: rows with the line on which they stand, and columns of integers read fast."""

import csv
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal, NoReturn

import numpy as np

from lumos.errors import InputError
from lumos.graph.header import Verdict, first_line, is_number, named
from lumos.graph.ids import Ids, shown
from lumos.typing import Ints

INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
SAMPLE = 200_000
"""So many rows are looked at to tell whether the first line is one of them."""
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True)
class TextTable:
    """A text table: an optional header, then rows; lines that start with # are comments.

    `lumos.graph.header` tells whether the first line is a header. The separator is a comma, or if
    the first line has none, a tab, a semicolon or blanks.
    """

    file: str
    text: str
    header: tuple[str, ...]
    """The names of the columns in small letters; empty without a header."""
    separator: str
    comments: tuple[tuple[int, str], ...]
    """The comments before the first row, each with its line."""
    body: int
    """Where the first row starts in `text`."""
    first_line: int
    """The line on which the first row stands, from 1."""
    notes: tuple[str, ...] = ()
    """Says how the first line was read, where that was a guess."""

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row with the number of its (last) line."""
        lines = io.StringIO(self.text[self.body :], newline="")
        # Ending a cell with a blank is common where blanks separate; elsewhere cells are stripped.
        reader = csv.reader(lines, delimiter=self.separator, skipinitialspace=True)
        try:
            for row in reader:
                cells = [cell.strip() for cell in row]
                if self.separator == " ":
                    cells = [cell for cell in cells if cell]
                if any(cells) and not cells[0].startswith("#"):
                    yield self.first_line + reader.line_num - 1, cells
        except csv.Error as error:
            self.refuse(self.first_line + reader.line_num - 1, f"it is not a table row ({error})")

    def width(self) -> int:
        """Number of columns, in the header or else in the first row."""
        return len(self.header) or next((len(row) for _, row in self.rows()), 0)

    def cells(self, columns: int) -> set[str]:
        """All cells in the first `columns` columns."""
        return {cell for _, row in self.rows() for cell in row[:columns] if cell}

    def column(self, name: str) -> int:
        """Index of the column called `name`."""
        if name.casefold() not in self.header:
            has = ", ".join(self.header) or "no header"
            self.refuse(1, f"there is no column {name!r} (it has: {has}); add it")
        return self.header.index(name.casefold())

    def refuse(self, line: int, what: str) -> NoReturn:
        """Raise the error for a line of this table."""
        raise InputError(f"{self.file}, line {line}: {what}")


def table_of(
    text: str,
    file: str,
    *,
    header: Literal["auto", "yes", "no"] = "auto",
    ends: int = 1,
    known: Callable[[], Collection[str]] = frozenset,
) -> TextTable:
    """Find comments, separator and header of a table.

    Args:
        text: the content of the file.
        file: its path, as errors name it.
        header: whether the first line is a header; "auto" finds out (`lumos.graph.header`).
        ends: how many of the first columns hold ids.
        known: ids that stand in other files; called only where the table alone does not tell.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    comments: list[tuple[int, str]] = []
    start, line = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        content = text[start:end].strip()
        if content and not content.startswith("#"):
            separator = next((mark for mark in ",\t;" if mark in content), " ")
            cells = [cell.strip().strip('"') for cell in content.split(separator)]
            if separator == " ":
                cells = [cell for cell in cells if cell] or [""]
            table = TextTable(file, text, (), separator, tuple(comments), start, line)
            names = tuple(cell.casefold() for cell in cells)
            below = replace(table, header=names, body=end + 1, first_line=line + 1)
            verdict = Verdict(header == "yes", True)
            if header == "auto":
                verdict = _verdict(cells, below, ends, known)
            chosen = below if verdict.header else table
            return chosen if verdict.certain else replace(chosen, notes=(_guess(file, verdict),))
        comments += [(line, content.lstrip("# "))] if content else []
        start, line = end + 1, line + 1
    raise InputError(f"{file}, line 1: the file holds no rows; the graph is empty")


def _verdict(
    cells: list[str], below: TextTable, ends: int, known: Callable[[], Collection[str]]
) -> Verdict:
    """Whether `cells`, the first line, are a header of the rows below."""
    if is_number(cells[0]) or named(cells[:ends]):
        return first_line(cells, [], ends)
    # A header above millions of numbers is told from their first row.
    second = [row for _, row in islice(below.rows(), 1)]
    again = any(cell and cell in below.text[below.body :] for cell in cells[:ends])
    if second and is_number(second[0][0]) and not again:
        return first_line(cells, second, ends)
    sample = [row for _, row in islice(below.rows(), SAMPLE)]
    return first_line(cells, sample, ends, known())


def _guess(file: str, verdict: Verdict) -> str:
    read, other = ("names of columns", "no") if verdict.header else ("a row like the others", "yes")
    name = PurePosixPath(file).name
    return f"{name}: its first line was read as {read}; if that is wrong, use `header='{other}'`"


def integer_pairs(table: TextTable) -> Ints | None:
    """[rows, 2] if the whole table is two columns of non-negative integers, else None.

    None says only that the slow and precise reader has to look.
    """
    body = table.text[table.body :]
    # NumPy takes some characters beyond ASCII for digits and crashes on others (numpy/numpy#31586).
    if not body.isascii() or not body.strip():
        return None
    try:
        # With blanks as separators loadtxt wants None.
        separator = None if table.separator == " " else table.separator
        with warnings.catch_warnings():
            # NumPy reads 1.5 as 1 and merely warns.
            warnings.simplefilter("error")
            pairs = np.loadtxt(
                io.StringIO(body), dtype=np.int64, delimiter=separator, comments=None, ndmin=2
            )
    except (ValueError, OverflowError, Warning):
        return None
    return pairs if pairs.shape[1] == 2 and len(pairs) and pairs.min() >= 0 else None


def id_of(cell: str, table: TextTable, line: int, integers: bool) -> int | str:
    """Read one id; `integers` says whether ids are integers in this graph."""
    if not cell:
        table.refuse(line, "an id is missing; every row needs one")
    if not integers:
        return cell
    if not INTEGER.fullmatch(cell):
        table.refuse(line, f"{shown(cell)} is not an integer, but the ids of this graph are")
    if len(cell) > 20 or int(cell) > LARGEST_ID:
        table.refuse(line, f"the id {shown(cell)} is too large; ids must be below 2^63")
    if int(cell) < 0:
        table.refuse(line, f"the id {cell} is negative; ids must be >= 0")
    return int(cell)


def integers_first(table: TextTable, column: int) -> bool:
    """Whether ids are integers: the first row decides for the whole graph."""
    for line, row in table.rows():
        if column >= len(row):
            table.refuse(line, f"{len(row)} columns; column {column + 1} should hold the id")
        if INTEGER.fullmatch(row[column]):
            return True
        if is_number(row[column]):
            table.refuse(line, f"{shown(row[column])} is not an integer; ids are integers or names")
        return False
    raise InputError(f"{table.file}, line {table.first_line}: the file holds no rows")


def sorted_ids(ids: set[int] | set[str], integers: bool) -> Ids:
    """Return ids in ascending order, as a graph keeps them."""
    if integers:
        return np.array(sorted(ids), dtype=np.int64)
    return tuple(sorted(map(str, ids)))
