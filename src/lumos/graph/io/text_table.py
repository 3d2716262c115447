"""Text tables: rows of cells between commas, tabs, semicolons or blanks, perhaps with a header."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NoReturn

import numpy as np

from lumos.errors import InputError
from lumos.graph.arrays import shown
from lumos.typing import Ints

INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
MAX_ID = 2**63 - 1
ID_COLUMNS = frozenset(
    [
        *("id", "ids", "index", "name", "newid", "node", "nodeid", "vertex", "device", "deviceid"),
        *("source", "target", "sourceid", "targetid", "src", "dst", "from", "to"),
        *("fromid", "toid", "fromnode", "tonode", "fromnodeid", "tonodeid", "user", "userid"),
    ]
)
"""Names of columns of ids, without digits and signs: node_1 and id2 are among them."""
_SIGNS = re.compile(r"[\W\d_]+")
_PLAIN = re.compile(r"[0-9\s,;]*", re.ASCII)


@dataclass(frozen=True)
class TextTable:
    """A text table: an optional header, then rows; lines that start with # are comments.

    The separator is a comma, or if the first line has none, a tab, a semicolon or blanks.
    """

    file: str
    text: str
    header: tuple[str, ...]
    """The names of the columns in small letters; empty without a header."""
    separator: str
    comments: tuple[tuple[int, str], ...]
    """The comments before the first row, each with its line."""
    body: int
    """Position of the first row in `text`."""
    first_line: int
    """The line on which the first row stands, from 1."""

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

    def line_of_row(self, index: int) -> int:
        """Return the line on which row `index` (from 0) stands; only errors need it."""
        return next(islice(self.rows(), index, None))[0]

    def width(self) -> int:
        """Return the number of columns, of the header or else of the first row."""
        return len(self.header) or next((len(row) for _, row in self.rows()), 0)

    def column(self, name: str) -> int:
        """Return the index of the column called `name`."""
        if name.casefold() not in self.header:
            has = ", ".join(self.header) or "no header"
            self.refuse(1, f"there is no column {name!r} (it has: {has}); add it")
        return self.header.index(name.casefold())

    def id_of(self, cell: str, line: int, integers: bool) -> int | str:
        """Return the id in a cell; `integers` says whether ids are integers in this graph."""
        if not cell:
            self.refuse(line, "an id is missing; every row needs one")
        if not integers:
            return cell
        if not INTEGER.fullmatch(cell):
            self.refuse(line, f"{shown(cell)} is not an integer, but the ids of this graph are")
        if len(cell) > 20 or int(cell) > MAX_ID:
            self.refuse(line, f"the id {shown(cell)} is too large; ids must be below 2^63")
        if int(cell) < 0:
            self.refuse(line, f"the id {cell} is negative; ids must be >= 0")
        return int(cell)

    def has_integer_ids(self, column: int) -> bool:
        """Return whether ids are integers: the first row decides for the whole graph."""
        for line, row in self.rows():
            if column >= len(row):
                self.refuse(line, f"{len(row)} columns; column {column + 1} should hold the id")
            if INTEGER.fullmatch(row[column]):
                return True
            if _is_number(row[column]):
                self.refuse(
                    line, f"{shown(row[column])} is not an integer; ids are integers or names"
                )
            return False
        raise InputError(f"{self.file}, line {self.first_line}: the file holds no rows")

    def integer_pairs(self) -> Ints | None:
        """Return [rows, 2] if the whole table is two columns of non-negative integers, else None.

        None says only that `rows` has to look.
        """
        import pandas

        body = self.text[self.body :]
        # pandas would take 1e3 for an integer.
        if not _PLAIN.fullmatch(body) or not body.strip():
            return None
        separator = r"\s+" if self.separator == " " else self.separator
        try:
            frame = pandas.read_csv(
                io.StringIO(body), sep=separator, header=None, dtype=np.int64, na_filter=False
            )
        except (ValueError, OverflowError):
            return None
        pairs: Ints = frame.to_numpy()
        return pairs if pairs.shape[1] == 2 and pairs.min() >= 0 else None

    def refuse(self, line: int, what: str) -> NoReturn:
        """Raise the error for a line of this table."""
        raise InputError(f"{self.file}, line {line}: {what}")


def table_of(
    text: str, file: str, *, header: Literal["auto", "yes", "no"] = "auto", id_columns: int = 1
) -> TextTable:
    """Return the table in a text, with its comments, separator and header.

    With `header="auto"` the first line is a row if it begins with a number. It is a header if its
    first cells are well-known names of id columns, or if the next row begins with a number.
    Otherwise the caller has to say.

    Args:
        text: the content of the file.
        file: its path, as errors name it.
        header: whether the first line names the columns.
        id_columns: number of columns with ids: 2 for edges, 1 beside labels or features.

    Raises:
        InputError: the file is empty, or nothing tells whether its first line is a header.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    comments: list[tuple[int, str]] = []
    start, line = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        content = text[start:end].strip()
        if content and not content.startswith("#"):
            break
        comments += [(line, content.lstrip("# "))] if content else []
        start, line = end + 1, line + 1
    else:
        raise InputError(f"{file}, line 1: the file holds no rows; add some")
    separator = next((mark for mark in ",\t;" if mark in content), " ")
    cells = [cell.strip().strip('"') for cell in content.split(separator)]
    if separator == " ":
        cells = [cell for cell in cells if cell] or [""]
    table = TextTable(file, text, (), separator, tuple(comments), start, line)
    names = tuple(cell.casefold() for cell in cells)
    below = replace(table, header=names, body=end + 1, first_line=line + 1)
    if header != "auto":
        return below if header == "yes" else table
    if _is_number(cells[0]):
        return table
    # pandas leaves the first cell empty above an index.
    if not cells[0] or all(_SIGNS.sub("", name) in ID_COLUMNS for name in names[:id_columns]):
        return below
    _, row = next(below.rows(), (0, [""]))
    if not _is_number(row[0]):
        table.refuse(
            line,
            f"does {shown(content)} name the columns? Say `header='yes'`, or `header='no'` if no "
            "table of this graph has such a line",
        )
    return below


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
