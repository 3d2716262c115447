"""Bars and dots: groups of rows, a value in each, its number beside it.

The paper's values are open diamonds. A missing value (None) is written as "none".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lumos.errors import UsageError
from lumos.report.axes import LINE, MARK_NAME, Style, heading, legend
from lumos.report.scale import Scale, fit_scale, format_tick
from lumos.report.svg import COLOURS, GRID, INK, MUTED, WIDTH, Canvas, text_width

Values = Sequence[Sequence[float | None]]
Singles = Sequence[Sequence[Sequence[float]]]

_ROW = 22.0
"""Height of a row."""


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
    mark_name: str = MARK_NAME,
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
    chart = _Chart(groups, series, unit, title, digits, mark_name, from_zero=True)
    return chart.draw(values, errors, marks)


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
    mark_name: str = MARK_NAME,
    singles: Singles | None = None,
) -> str:
    """As `bars`, but a dot for each value on an axis that need not begin at 0.

    For scores that lie close together: bars that do not begin at 0 would misstate their ratio.

    Args:
        singles: [groups][series] the values that a mean is of, as those of single seeds: each is
            a thin vertical stroke.
    """
    chart = _Chart(groups, series, unit, title, digits, mark_name, from_zero=False)
    return chart.draw(values, errors, marks, singles)


@dataclass(frozen=True)
class _Cell:
    """One row of a chart."""

    value: float | None
    error: float | None
    mark: float | None
    singles: Sequence[float]
    label: str

    @property
    def extent(self) -> list[float | None]:
        """What the axis must hold."""
        if self.value is None:
            return [self.mark, *self.singles]
        half = self.error or 0.0
        return [self.mark, *self.singles, self.value - half, self.value + half]


@dataclass(frozen=True)
class _Chart:
    """Everything but the numbers."""

    groups: Sequence[str]
    series: Sequence[str]
    unit: str
    title: str
    digits: int
    mark_name: str
    from_zero: bool

    def draw(
        self,
        values: Values,
        errors: Values | None,
        marks: Values | None,
        singles: Singles | None = None,
    ) -> str:
        """The finished SVG."""
        cells = self._cells(values, errors, marks, singles)
        flat = [cell for row in cells for cell in row]
        canvas = Canvas()
        top = self._top(canvas, any(cell.mark is not None for cell in flat))
        right = WIDTH - max([60.0, *(text_width(cell.label) for cell in flat)]) - 26
        extent = [number for cell in flat for number in cell.extent]
        scale = fit_scale(extent, 20, right, from_zero=self.from_zero)
        first = text_width(self._tick(scale.low), 13) / 2  # it stands in the middle below its tick
        scale = fit_scale(extent, max(20.0, first), right, from_zero=self.from_zero)
        group_height = (LINE + 4) * self._grouped + 6
        group_height += len(self.series) * (_ROW + LINE * self._named_rows)
        bottom = top + len(self.groups) * group_height
        for tick in scale.ticks(max(2, int(right // 75))):
            canvas.line(scale(tick), top, scale(tick), bottom, GRID)
            label = self._tick(tick)
            canvas.text(scale(tick), bottom + 16, label, anchor="middle", size=13, fill=MUTED)
        for number, (group, row) in enumerate(zip(self.groups, cells, strict=True)):
            self._draw_group(canvas, scale, top + number * group_height, group, row)
        description = " ".join(
            f"{group}, {name}: {cell.label}."
            for group, row in zip(self.groups, cells, strict=True)
            for name, cell in zip(self.series, row, strict=True)
        )
        return canvas.svg(self.title or "Scores", description, bottom + 24)

    def _tick(self, number: float) -> str:
        return format_tick(number) + (self.unit and f" {self.unit}")

    @property
    def _grouped(self) -> bool:
        """Whether groups have headings."""
        return len(self.groups) > 1

    @property
    def _named_rows(self) -> bool:
        """Whether names of the series stand above their rows instead of in a legend."""
        return len(self.groups) == 1 and len(self.series) > 1

    def _cells(
        self,
        values: Values,
        errors: Values | None,
        marks: Values | None,
        singles: Singles | None,
    ) -> list[list[_Cell]]:
        nothing = [[None] * len(self.series) for _ in self.groups]
        none: Singles = [[()] * len(self.series) for _ in self.groups]
        tables = {"values": values, "errors": errors or nothing, "marks": marks or nothing}
        for name, table in [*tables.items(), ("singles", singles or none)]:
            wrong = any(len(row) != len(self.series) for row in table)
            if wrong or len(table) != len(self.groups):
                raise UsageError(
                    f"bars: {name} must be {len(self.groups)} groups of {len(self.series)} series"
                )
        return [
            [
                _Cell(value, error, mark, single, self._label(value, error, mark))
                for (value, error, mark), single in zip(
                    zip(*rows, strict=True), of_group, strict=True
                )
            ]
            for rows, of_group in zip(
                zip(*tables.values(), strict=True), singles or none, strict=True
            )
        ]

    def _label(self, value: float | None, error: float | None, mark: float | None) -> str:
        text = "none" if value is None else f"{value:,.{self.digits}f}"
        if value is not None and error is not None:
            text += f" ± {error:,.{self.digits}f}"
        if value is not None and self.unit:
            text += f" {self.unit}"
        return text if mark is None else f"{text} ({self.mark_name} {mark:,.{self.digits}f})"

    def _top(self, canvas: Canvas, marked: bool) -> float:
        """Heading and legend; returns where the rows begin."""
        top = heading(canvas, self.title)
        several = self._grouped and len(self.series) > 1
        if not (marked or several):
            return top
        names = self.series if several else ()
        style: Style = "box" if self.from_zero else "dot"
        return legend(canvas, names, top, style, self.mark_name * marked)

    def _draw_group(
        self, canvas: Canvas, scale: Scale, y: float, group: str, row: Sequence[_Cell]
    ) -> None:
        if self._grouped:
            y += LINE + 4
            canvas.text(0, y - 5, group, bold=True, halo=True)
        for number, (name, cell) in enumerate(zip(self.series, row, strict=True)):
            if self._named_rows:
                y += LINE
                canvas.text(0, y - 4, name, halo=True)
            self._draw_cell(canvas, scale, y + _ROW / 2 - 2, number, cell)
            canvas.text(WIDTH, y + 14, cell.label, anchor="end")
            y += _ROW

    def _draw_cell(self, canvas: Canvas, scale: Scale, y: float, number: int, cell: _Cell) -> None:
        colour = COLOURS[number % len(COLOURS)]
        for single in cell.singles:
            canvas.line(scale(single), y - 8, scale(single), y + 8, colour, width=1.5)
        if cell.value is not None:
            if self.from_zero:
                begin, end = sorted((scale(0), scale(cell.value)))
                canvas.box(begin, y - 8, max(end - begin, 0.5), 16, colour)
            if cell.error:
                low, high = scale(cell.value - cell.error), scale(cell.value + cell.error)
                canvas.line(low, y, high, y, INK, width=1.5)
                canvas.line(low, y - 4, low, y + 4, INK, width=1.5)
                canvas.line(high, y - 4, high, y + 4, INK, width=1.5)
            if not self.from_zero:
                canvas.shape(scale(cell.value), y, number, colour, 6)
        if cell.mark is not None:
            canvas.diamond(scale(cell.mark), y)
