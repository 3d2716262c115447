"""A confusion matrix as a heat map: a row for each true class, a column for each predicted one."""

from collections.abc import Sequence

from lumos.errors import UsageError
from lumos.report.axes import heading
from lumos.report.svg import COLOURS, MUTED, TEXT, WIDTH, Canvas, text_width

RIGHT, WRONG = COLOURS[0], COLOURS[1]
"""Of cells on the diagonal, and of all others."""
MOST = 20
"""Classes that can be drawn."""
_SMALL = 13.0
_CELL = 46.0
"""Least width of a cell, and its height."""
_NAME = 150.0
"""Most room for the name of a row."""
_FAINT, _DEEP = 0.08, 0.7
"""Opacity of a cell with a share of 0 and of 1: words have a contrast of 4.5 on both."""


def confusion(names: Sequence[str], counts: Sequence[Sequence[int]], title: str = "") -> str:
    """How many devices of each class are taken for which class, with the share of their class.

    Args:
        names: [classes] names of the classes.
        counts: [classes][classes]: row: true class, column: predicted class.
        title: above the drawing.
    """
    classes = len(names)
    if len(counts) != classes or any(len(row) != classes for row in counts):
        raise UsageError(f"confusion: counts must be {classes} rows of {classes} numbers")
    if not 1 <= classes <= MOST:
        raise UsageError(f"confusion: 1 to {MOST} classes can be drawn, got {classes}")
    room = _room(names)
    cell = max(_CELL, min(110.0, (WIDTH - room) / classes))
    width = max(WIDTH, room + classes * cell)
    canvas = Canvas()
    top = heading(canvas, title, "rows: true class, columns: predicted class") + 20
    fits = all(text_width(name, _SMALL) + 6 <= cell for name in names)
    for column, name in enumerate(names):
        words = name if fits else str(column + 1)
        middle = room + (column + 0.5) * cell
        canvas.text(middle, top - 6, words, anchor="middle", size=_SMALL, fill=MUTED)
    for row, of_class in enumerate(counts):
        y = top + row * _CELL
        number = "" if fits else f" {row + 1}"
        name = _cut(names[row], room - 8 - text_width(number, _SMALL)) + number
        canvas.text(room - 8, y + _CELL / 2 + 5, name, anchor="end", size=_SMALL)
        for column, count in enumerate(of_class):
            x, share = room + column * cell, count / max(1, sum(of_class))
            _draw_cell(canvas, x, y, cell, count, share, RIGHT if row == column else WRONG)
    description = " ".join(_describe(names, row, counts[row]) for row in range(classes))
    return canvas.svg(title or "Confusion matrix", description, top + classes * _CELL + 4, width)


def is_wide(names: Sequence[str]) -> bool:
    """Whether the matrix of these classes needs a figure of the whole width."""
    return _room(names) + len(names) * _CELL > WIDTH


def _numbered(names: Sequence[str]) -> list[str]:
    """Names as rows have them where columns have numbers."""
    return [f"{name} {number + 1}" for number, name in enumerate(names)]


def _room(names: Sequence[str]) -> float:
    """Width of the names of rows."""
    return max(60.0, min(_NAME, max(text_width(name, _SMALL) for name in _numbered(names)) + 8))


def _draw_cell(
    canvas: Canvas, x: float, y: float, width: float, count: int, share: float, colour: str
) -> None:
    """The share of a class as a shade; its count and its share as words; nothing where it is 0."""
    opacity = _FAINT / 2 if not count else _FAINT + (_DEEP - _FAINT) * share
    canvas.box(x + 1, y + 1, width - 2, _CELL - 2, colour, opacity=opacity)
    if count:
        middle = x + width / 2
        canvas.text(middle, y + 19, short_count(count), anchor="middle", size=TEXT, bold=True)
        canvas.text(middle, y + 36, f"{100 * share:.0f} %", anchor="middle", size=_SMALL)


def short_count(count: int) -> str:
    """A count in five characters at most."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
    return f"{count:,}"


def _cut(words: str, room: float) -> str:
    """Words that fit into the room."""
    if text_width(words, _SMALL) <= room:
        return words
    while words and text_width(f"{words}…", _SMALL) > room:
        words = words[:-1]
    return f"{words.rstrip()}…"


def _describe(names: Sequence[str], row: int, of_class: Sequence[int]) -> str:
    """A row in words: how many are right, and what most of the others are taken for."""
    total = sum(of_class)
    if not total:
        return f"{names[row]}: no devices."
    text = f"{names[row]}: {of_class[row]:,} of {total:,} are right"
    others = [(count, name) for name, count in zip(names, of_class, strict=True)]
    del others[row]
    count, name = max(others, key=lambda other: other[0], default=(0, ""))
    return f"{text}, {count:,} are taken for {name}." if count else f"{text}."
