"""Lines: values over a common x, with bands for their spread and diamonds for reference values."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lumos.errors import UsageError
from lumos.report.axes import (
    HEIGHT,
    MARK_NAME,
    RIGHT,
    draw_levels,
    draw_notes,
    draw_reference_lines,
    heading,
    legend,
    levels_width,
    x_axis,
    y_axis,
)
from lumos.report.scale import Scale, fit_scale, format_tick
from lumos.report.svg import COLOURS, DASHES, INK, Canvas

Values = Sequence[float | None]
Point = tuple[float, float]
Series = Mapping[str, tuple[Values, Values | None]]

_FEW = 12
"""Up to so many points are drawn one by one."""


def lines(
    x: Sequence[float],
    series: Series,
    marks: Mapping[str, Values] | None = None,
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "",
    mark_name: str = MARK_NAME,
    at_points: bool = False,
    reference_lines: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    height: float = HEIGHT,
    least: float | None = None,
) -> str:
    """Lines over a common x, with a band for their spread.

    Args:
        x: [points] in increasing order.
        series: by name, (values, spread or None), each [points]; None leaves a gap.
        marks: by the name of a series, the paper's values [points], drawn as diamonds in its
            colour; under any other name in black.
        unit: behind the numbers of the y axis.
        title: above the drawing; y_title stands below it, x_title at the bottom.
        mark_name: what the diamonds are called.
        at_points: x are few measured settings, as ε: ticks stand at them, evenly spaced.
        reference_lines: by name, numbers on x that a dashed vertical line marks (not with
            `at_points`).
        levels: by name, numbers on y that a dashed horizontal line marks, named at the right.
        notes: lines of small text at the bottom.
        height: of the inner part.
        least: where the y axis begins; lines are cut off below it.
    """
    marks, levels = marks or {}, levels or {}
    for name, values in [*((n, y) for n, (y, _) in series.items()), *marks.items()]:
        if len(values) != len(x):
            raise UsageError(f"lines: {name!r} has {len(values)} values for {len(x)} places")
    canvas = Canvas()
    top = legend(canvas, series, heading(canvas, title, y_title), "line", mark_name * bool(marks))
    bottom, right = top + height, RIGHT - levels_width(levels)
    extent = [*_extent(series, marks), *levels.values()]
    if least is not None:
        extent = [least, *(value for value in extent if value is not None and value >= least)]
    y_scale = fit_scale(extent, bottom, top)
    left = y_axis(canvas, y_scale, unit, right)
    places = [float(n) for n in range(len(x))] if at_points else [float(place) for place in x]
    margin = 0.4 if at_points else 0.0
    low, high = (places[0], places[-1]) if places else (0.0, 1.0)
    x_scale = Scale(low - margin, max(high, low + 1 - margin) + margin, left, right)
    ticks = dict(zip(places, map(format_tick, x), strict=True))
    if not at_points:
        ticks = {tick: format_tick(tick) for tick in x_scale.ticks()}
    end = x_axis(canvas, x_scale, bottom, x_title, ticks)
    draw_reference_lines(canvas, x_scale, reference_lines or {}, top, bottom)
    draw_levels(canvas, y_scale, levels, left, right)
    across = [x_scale(place) for place in places]
    for number, (values, spread) in enumerate(series.values()):
        _draw_series(canvas, y_scale, number, across, values, spread)
    names = list(series)
    for name, values in marks.items():
        colour = COLOURS[names.index(name) % len(COLOURS)] if name in names else INK
        for position, value in zip(across, values, strict=True):
            if value is not None:
                canvas.diamond(position, y_scale(value), colour)
    description = " ".join(_describe(name, x, values, unit) for name, (values, _) in series.items())
    return canvas.svg(title or "Lines", description, draw_notes(canvas, notes, end))


def _draw_series(
    canvas: Canvas,
    y_scale: Scale,
    number: int,
    across: Sequence[float],
    values: Values,
    spread: Values | None,
) -> None:
    """One line with its band; `across`: [points] positions on the x axis."""
    colour = COLOURS[number % len(COLOURS)]
    for segment in _segments(values):
        at = [across[i] for i in segment]
        y = [value for i in segment if (value := values[i]) is not None]
        bottom = y_scale.start
        if spread is not None:
            half = [spread[i] or 0.0 for i in segment]
            above = [(a, y_scale(b + c)) for a, b, c in zip(at, y, half, strict=True)]
            below = [(a, y_scale(b - c)) for a, b, c in zip(at, y, half, strict=True)]
            band = [*_cut(above, bottom), *_cut(below, bottom)[::-1]]
            canvas.path(band, fill=colour, width=0, opacity=0.16)
        points = [(a, y_scale(b)) for a, b in zip(at, y, strict=True)]
        canvas.path(_cut(points, bottom), stroke=colour, dash=DASHES[number % len(DASHES)])
        if len(across) <= _FEW or len(segment) == 1:
            for point in points:
                if point[1] <= bottom:
                    canvas.shape(*point, number, colour, 4.5)


def _cut(points: Sequence[Point], bottom: float) -> list[Point]:
    """A line through points, without what is below `bottom`; y grows downwards."""
    kept: list[Point] = []
    for (x1, y1), (x2, y2) in pairwise([points[0], *points]):
        if (y1 > bottom) != (y2 > bottom):
            kept.append((x1 + (x2 - x1) * (bottom - y1) / (y2 - y1), bottom))
        if y2 <= bottom:
            kept.append((x2, y2))
    return kept


def _extent(series: Series, marks: Mapping[str, Values]) -> list[float | None]:
    """Everything that the y axis must hold."""
    extent: list[float | None] = [value for values in marks.values() for value in values]
    for values, spread in series.values():
        for value, half in zip(values, spread or [None] * len(values), strict=True):
            if value is not None:
                extent += [value - (half or 0.0), value + (half or 0.0)]
    return extent


def _segments(values: Values) -> list[list[int]]:
    """Indices of finite values, those of neighbours together."""
    segments: list[list[int]] = []
    for index, value in enumerate(values):
        if value is None or not math.isfinite(value):
            continue
        if segments and segments[-1][-1] == index - 1:
            segments[-1].append(index)
        else:
            segments.append([index])
    return segments


def _describe(name: str, x: Sequence[float], values: Values, unit: str) -> str:
    """A line in words: where it begins and ends."""
    known = [(at, value) for at, value in zip(x, values, strict=True) if value is not None]
    if not known:
        return f"{name}: no values."
    (first, begin), (last, end) = known[0], known[-1]
    behind = f" {unit}" if unit else ""
    return (
        f"{name}: {begin:.4g}{behind} at {format_tick(first)}, "
        f"{end:.4g}{behind} at {format_tick(last)}."
    )
