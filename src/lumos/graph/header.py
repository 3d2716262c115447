"""Whether the first line of a text table names its columns, or is a row like the others."""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

WORDS = frozenset(
    [
        *("id", "ids", "index", "key", "name", "newid"),
        *("node", "nodes", "nodeid", "vertex", "vertexid", "device", "deviceid"),
        *("source", "target", "sourceid", "targetid", "sourcenode", "targetnode"),
        *("src", "dst", "srcid", "dstid", "from", "to", "fromid", "toid", "fromnode", "tonode"),
        *("fromnodeid", "tonodeid", "nodefrom", "nodeto", "start", "end", "head", "tail"),
        *("origin", "destination", "follower", "followee", "citing", "cited", "parent", "child"),
        *("user", "userid", "person", "member", "friend", "account", "accountid"),
        *("actor", "author", "authorid", "paperid", "page", "pageid"),
    ]
)
"""What columns of ids are called, without digits and signs: node_1 and id2 are among them."""
LETTERS = frozenset("uvabijxyst")
"""Single letters name columns too, but also vertices in examples."""
_SIGNS = re.compile(r"[\W\d_]+")


class Verdict(NamedTuple):
    """What the first line is."""

    header: bool
    certain: bool
    """False where nothing but the look of the table decided."""


def first_line(
    first: Sequence[str],
    rows: Sequence[Sequence[str]],
    ends: int,
    known: Collection[str] = (),
) -> Verdict:
    """Tell whether the first line is a header.

    In this order: it is a row if its first cell is a number, or if an id in it occurs again, among
    the rows or among the ids that another file knows (`known`). It is a header if its first cells
    have names of id columns, if another column goes on in numbers, or if other files know the ids
    of the rows. Otherwise it is a guess: an edge of which neither end occurs again would be a
    component of its own, so the line is taken for a header unless rows like that are common.

    Args:
        first: the cells of the first line.
        rows: the rows after it.
        ends: how many of the first columns hold ids: 2 for edges, 1 beside labels or features.
        known: ids of devices that stand in the other files.
    """
    if is_number(first[0]):
        return Verdict(False, True)
    if named(first[:ends]):
        return Verdict(True, True)
    ids = [cell for cell in first[:ends] if cell]
    again = {cell for row in rows for cell in row[:ends]}
    if again.intersection(ids) or any(cell in known for cell in ids):
        return Verdict(False, True)
    if rows and is_number(rows[0][0]):
        return Verdict(True, True)
    for column in range(1, len(first)):
        cells = [row[column] for row in rows if column < len(row) and row[column]]
        if first[column] and not is_number(first[column]) and cells and all(map(is_number, cells)):
            return Verdict(True, True)
    if known:
        return Verdict(True, bool(again.intersection(known)))
    if ends == 1:
        return Verdict(not _shares_a_class(first, rows), False)
    letters = all(cell.casefold() in LETTERS for cell in ids)
    return Verdict(bool(rows) and (letters or not _pairs_apart(rows)), False)


def named(cells: Sequence[str]) -> bool:
    """Whether cells are names of id columns; the first may be empty, as pandas writes its index."""
    return not cells[0] or all(_SIGNS.sub("", cell.casefold()) in WORDS for cell in cells if cell)


def is_number(cell: str) -> bool:
    """Whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pairs_apart(rows: Sequence[Sequence[str]]) -> bool:
    """Whether some row joins two ids that occur nowhere else."""
    count: dict[str, int] = {}
    for row in rows:
        for cell in set(row[:2]):
            count[cell] = count.get(cell, 0) + 1
    return any(all(count[cell] == 1 for cell in row[:2]) for row in rows)


def _shares_a_class(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the second cell of the first line occurs again in its column."""
    return len(first) > 1 and any(len(row) > 1 and row[1] == first[1] for row in rows)
