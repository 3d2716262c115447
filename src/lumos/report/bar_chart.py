"""Bars and dots: groups of rows, a value in each, its number beside it.

The paper's values are open diamonds. A missing value (None) is written as "none".
"""

from collections.abc import Sequence

from lumos.errors import UsageError
from lumos.report.axes import LINE, heading, legend
from lumos.report.scale import Scale, around, shown
from lumos.report.svg import COLOURS, INK, RULE, SOFT, WIDTH, Canvas, wide

Values = Sequence[Sequence[float | None]]

_ROW = 22.0


def bars(
    groups: Sequence[str],
    series: Sequence[str],
    values: Values,
    errors: Values | None = None,
    marks: Values | None = None,
    unit: str = "",
    title: str = "",
    *,
    digits: int = 2,
    mark_name: str = "paper",
) -> str:
    """Horizontal bars from 0, grouped, each with its number beside it.

    Args:
        groups: names of the groups, from top to bottom.
        series: names of the bars of each group.
        values: [groups][series]; None where there is nothing, which is written as "none".
        errors: [groups][series] spread, drawn as a whisker to both sides and written as ±.
        marks: [groups][series] the paper's values, drawn as diamonds and written beside.
        unit: behind every number, as "%".
        title: above the drawing.
        digits: decimals of the numbers.
        mark_name: what the diamonds are called.
    """
    return _rows(groups, series, values, errors, marks, unit, title, digits, mark_name, True)


def dots(
    groups: Sequence[str],
    series: Sequence[str],
    values: Values,
    errors: Values | None = None,
    marks: Values | None = None,
    unit: str = "",
    title: str = "",
    *,
    digits: int = 2,
    mark_name: str = "paper",
) -> str:
    """As `bars`, but a dot for each value on an axis that need not begin at 0.

    For scores that lie close together: bars cut off at the foot would lie about their ratio.
    """
    return _rows(groups, series, values, errors, marks, unit, title, digits, mark_name, False)


def _rows(
    groups: Sequence[str],
    series: Sequence[str],
    values: Values,
    errors: Values | None,
    marks: Values | None,
    unit: str,
    title: str,
    digits: int,
    mark_name: str,
    from_zero: bool,
) -> str:
    nothing = [[None] * len(series) for _ in groups]
    errors, marks = errors or nothing, marks or nothing
    for name, table in (("values", values), ("errors", errors), ("marks", marks)):
        if len(table) != len(groups) or any(len(row) != len(series) for row in table):
            raise UsageError(f"bars: {name} must be {len(groups)} groups of {len(series)} series")
    marked = any(mark is not None for row in marks for mark in row)
    several, above = len(groups) > 1, len(groups) == 1 and len(series) > 1
    canvas = Canvas()
    top = heading(canvas, title)
    if marked or (several and len(series) > 1):
        names = series if several and len(series) > 1 else ()
        top = legend(canvas, names, top, "box" if from_zero else "dot", mark_name * marked)
    cells = [
        [
            (value, half, mark, _written(value, half, mark, unit, digits, mark_name))
            for value, half, mark in zip(*rows, strict=True)
        ]
        for rows in zip(values, errors, marks, strict=True)
    ]
    right = WIDTH - max([60.0, *(wide(cell[3]) for row in cells for cell in row)]) - 26
    reach: list[float | None] = [mark for row in marks for mark in row]
    for row in cells:
        for value, half, *_ in row:
            if value is not None:
                reach += [value - (half or 0.0), value + (half or 0.0)]
    scale = around(reach, 20, right, from_zero=from_zero)
    height = (LINE + 4) * several + len(series) * (_ROW + LINE * above) + 6
    foot = top + len(groups) * height
    for tick in scale.ticks(max(2, int(right // 75))):
        canvas.line(scale(tick), top, scale(tick), foot, RULE)
        words = shown(tick) + (unit and f" {unit}")
        canvas.text(scale(tick), foot + 16, words, anchor="middle", size=13, fill=SOFT)
    said, y = [], top
    for group, row in zip(groups, cells, strict=True):
        if several:
            y += LINE + 4
            canvas.text(0, y - 5, group, bold=True, halo=True)
        for number, (name, cell) in enumerate(zip(series, row, strict=True)):
            if above:
                y += LINE
                canvas.text(0, y - 4, name, halo=True)
            _row(canvas, scale, y + _ROW / 2 - 2, number, cell[:3], from_zero)
            canvas.text(WIDTH, y + 14, cell[3], anchor="end")
            said.append(f"{group}, {name}: {cell[3]}.")
            y += _ROW
        y += 6
    return canvas.svg(title or "Scores", " ".join(said), foot + 24)


def _row(
    canvas: Canvas,
    scale: Scale,
    y: float,
    number: int,
    cell: tuple[float | None, float | None, float | None],
    from_zero: bool,
) -> None:
    value, half, mark = cell
    colour = COLOURS[number % len(COLOURS)]
    if value is not None:
        if from_zero:
            begin, end = sorted((scale(0), scale(value)))
            canvas.box(begin, y - 8, max(end - begin, 0.5), 16, colour)
        if half:
            low, high = scale(value - half), scale(value + half)
            canvas.line(low, y, high, y, INK, width=1.5)
            canvas.line(low, y - 4, low, y + 4, INK, width=1.5)
            canvas.line(high, y - 4, high, y + 4, INK, width=1.5)
        if not from_zero:
            canvas.shape(scale(value), y, number, colour, 6)
    if mark is not None:
        canvas.diamond(scale(mark), y)


def _written(
    value: float | None, half: float | None, mark: float | None, unit: str, digits: int, name: str
) -> str:
    text = "none" if value is None else f"{value:,.{digits}f}"
    if value is not None and half is not None:
        text += f" ± {half:,.{digits}f}"
    if value is not None and unit:
        text += f" {unit}"
    return text if mark is None else f"{text} ({name} {mark:,.{digits}f})"
