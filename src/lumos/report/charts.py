"""Figures as SVG text: bars and dots for scores, lines for courses, a CDF for distributions.

The paper's values are open diamonds in all of them. Missing values (None) leave a gap and are said.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lumos.errors import UsageError
from lumos.report.canvas import COLOURS, DASHES, INK, RULE, SOFT, WIDTH, Canvas, wide
from lumos.report.scale import Scale, around, shown

Values = Sequence[Sequence[float | None]]

_TOP, _LINE = 22.0, 20.0
_POINTS = 400


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
    return _rows(
        groups, series, values, errors, marks, unit, title, digits, mark_name, from_zero=True
    )


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
    return _rows(
        groups, series, values, errors, marks, unit, title, digits, mark_name, from_zero=False
    )


def lines(
    x: Sequence[float],
    series: Mapping[str, tuple[Sequence[float | None], Sequence[float | None] | None]],
    marks: Mapping[str, Sequence[float | None]] | None = None,
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "",
    mark_name: str = "paper",
    at_points: bool = False,
    rules: Mapping[str, float] | None = None,
) -> str:
    """Lines over a common x, with a band for their spread.

    Args:
        x: [points] in increasing order.
        series: by name, (values, spread or None), each [points]; None leaves a gap.
        marks: by the name of a series, the paper's values [points], drawn as diamonds in its
            colour; under any other name in black.
        unit: behind the numbers of the y axis.
        at_points: x are few measured settings, as ε: ticks stand at them, evenly spaced.
        rules: by name, places on x that a dashed upright line marks.
    """
    marks, rules = marks or {}, rules or {}
    for name, y in [*((n, y) for n, (y, _) in series.items()), *marks.items()]:
        if len(y) != len(x):
            raise UsageError(f"lines: {name!r} has {len(y)} values for {len(x)} places")
    places = [float(n) for n in range(len(x))] if at_points else list(x)
    canvas = Canvas()
    entries = [(name, number) for number, name in enumerate(series)]
    top = _heading(canvas, title, y_title and _with_unit(y_title, unit))
    top = _legend(canvas, entries, top, bool(marks), mark_name, dashed=True)
    bottom = top + 210
    reach: list[float | None] = []
    for y, spread in series.values():
        for value, half in zip(y, spread or [0.0] * len(y), strict=True):
            if value is not None:
                reach += [value - (half or 0.0), value + (half or 0.0)]
    reach += [value for y in marks.values() for value in y]
    up = around(reach, bottom, top)
    left = 12 + max(wide(shown(tick)) for tick in up.ticks())
    low, high = (places[0], places[-1]) if places else (0.0, 1.0)
    pad = 0.4 if at_points else 0.0
    across = Scale(low - pad, max(high, low + 1) + pad, left, WIDTH - 14)
    _upright_axis(canvas, up, left)
    _flat_axis(
        canvas, across, bottom, x_title, dict(zip(places, x, strict=True)) if at_points else None
    )
    _rules(canvas, across, rules, top, bottom)
    for number, (y, spread) in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        for run in _runs(y):
            here = [(across(places[i]), up(_known(y[i]))) for i in run]
            if spread is not None:
                halves = [spread[i] or 0.0 for i in run]
                band = [
                    (across(places[i]), up(_known(y[i]) + h))
                    for i, h in zip(run, halves, strict=True)
                ]
                band += [
                    (across(places[i]), up(_known(y[i]) - h))
                    for i, h in zip(run[::-1], halves[::-1], strict=True)
                ]
                canvas.path(band, fill=colour, width=0, opacity=0.16)
            canvas.path(here, stroke=colour, dash=DASHES[number % len(DASHES)])
            if at_points or len(x) <= 12 or len(run) == 1:
                for point in here:
                    canvas.shape(*point, number, colour, 4.5)
    names = list(series)
    for name, y in marks.items():
        colour = COLOURS[names.index(name) % len(COLOURS)] if name in names else INK
        for place, value in zip(places, y, strict=True):
            if value is not None:
                canvas.diamond(across(place), up(value), colour)
    said = [_course(name, x, y, unit) for name, (y, _) in series.items()]
    return canvas.svg(title or "Lines", " ".join(said), bottom + (46 if x_title else 26))


def cdf(
    series: Mapping[str, Sequence[float] | npt.NDArray[np.generic]],
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    marks: Mapping[str, float] | None = None,
    bent: bool = True,
) -> str:
    """What share of the values is at most so large, for each series.

    Args:
        series: by name, the values (none below 0 where the axis is bent).
        x_title: what the values are.
        marks: by name, numbers that a dashed upright line marks, as "paper: largest 39".
        bent: the axis is spaced as log(1 + value), for long tails.
    """
    sorted_values = {name: np.sort(np.asarray(v, float)) for name, v in series.items()}
    canvas = Canvas()
    top = _heading(canvas, title, "share of devices with at most so many, %")
    top = _legend(canvas, [(n, i) for i, n in enumerate(series)], top, False, "", dashed=True)
    bottom = top + 210
    marks = marks or {}
    largest = max([float(v[-1]) for v in sorted_values.values() if len(v)] + [*marks.values(), 1.0])
    up, left = Scale(0, 100, bottom, top), 12 + wide("100")
    across = Scale(0, largest * (1.15 if bent else 1.04), left, WIDTH - 14, bent=bent)
    _upright_axis(canvas, up, left)
    _flat_axis(canvas, across, bottom, _with_unit(x_title, unit), None)
    for number, values in enumerate(sorted_values.values()):
        if not len(values):
            continue
        steps, ends = np.unique(values, return_index=True)
        share = 100 * np.append(ends[1:], len(values)) / len(values)
        if len(steps) > _POINTS:
            some = np.unique(np.linspace(0, len(steps) - 1, _POINTS).astype(int))
            steps, share = steps[some], share[some]
        points = [(across(steps[0]), up(0.0))]
        points += [(across(s), up(p)) for s, p in zip(steps.tolist(), share.tolist(), strict=True)]
        colour = COLOURS[number % len(COLOURS)]
        canvas.path(points, stroke=colour, dash=DASHES[number % len(DASHES)], step=True)
        canvas.shape(*points[-1], number, colour)
    _rules(canvas, across, marks, top, bottom)
    said = " ".join(
        f"{name}: half of {len(v):,} have at most {shown(float(v[(len(v) - 1) // 2]))}, "
        f"the largest is {shown(float(v[-1]))}."
        for name, v in sorted_values.items()
        if len(v)
    )
    return canvas.svg(title or "Distribution", said, bottom + (46 if x_title else 26))


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
    *,
    from_zero: bool,
) -> str:
    empty = [[None] * len(series) for _ in groups]
    errors, marks = errors or empty, marks or empty
    for name, table in (("values", values), ("errors", errors), ("marks", marks)):
        if len(table) != len(groups) or any(len(row) != len(series) for row in table):
            raise UsageError(f"bars: {name} is not {len(groups)} groups of {len(series)} series")
    marked = any(mark is not None for row in marks for mark in row)
    named = len(series) > 1 and len(groups) > 1  # otherwise every row has its name above it
    canvas = Canvas()
    top = _heading(canvas, title, "")
    if named or marked:
        entries = [(name, number) for number, name in enumerate(series)] if named else []
        top = _legend(canvas, entries, top, marked, mark_name, dashed=False, boxes=from_zero)
    labels = [
        [_written(v, e, m, unit, digits, mark_name) for v, e, m in zip(*rows, strict=True)]
        for rows in zip(values, errors, marks, strict=True)
    ]
    right = WIDTH - 12 - max([wide(text) for row in labels for text in row] + [60.0])
    reach: list[float | None] = [mark for row in marks for mark in row]
    for row, halves in zip(values, errors, strict=True):
        for value, half in zip(row, halves, strict=True):
            if value is not None:
                reach += [value - (half or 0.0), value + (half or 0.0)]
    scale = around(reach, 20, right - 14, from_zero=from_zero)
    above = len(groups) == 1 and len(series) > 1
    of_group = (_LINE + 4) * (len(groups) > 1) + len(series) * (22 + _LINE * above) + 6
    foot = top + len(groups) * of_group
    for tick in scale.ticks():
        canvas.line(scale(tick), top, scale(tick), foot, RULE)
        words = shown(tick) + (unit and f" {unit}")
        canvas.text(scale(tick), foot + 16, words, anchor="middle", size=12, fill=SOFT)
    said = []
    y = top
    for group, row, halves, of_paper, texts in zip(
        groups, values, errors, marks, labels, strict=True
    ):
        if len(groups) > 1:
            y += _LINE + 4
            canvas.text(0, y - 5, group, bold=True)
        for number, (name, value, half, mark, text) in enumerate(
            zip(series, row, halves, of_paper, texts, strict=True)
        ):
            if above:
                y += _LINE
                canvas.text(0, y - 4, name)
            colour = COLOURS[number % len(COLOURS)]
            middle = y + 9
            if value is not None:
                if from_zero:
                    begin, end = sorted((scale(0), scale(value)))
                    canvas.box(begin, y + 1, max(end - begin, 0.5), 16, colour)
                else:
                    canvas.line(scale(scale.low), middle, scale(value), middle, RULE, width=1.5)
                if half:
                    _whisker(canvas, scale(value - half), scale(value + half), middle)
                if not from_zero:
                    canvas.shape(scale(value), middle, number, colour, 6)
            if mark is not None:
                canvas.diamond(scale(mark), middle)
            canvas.text(WIDTH, y + 14, text, anchor="end")
            said.append(f"{group} {name}: {text}.".strip())
            y += 22
        y += 6
    return canvas.svg(title or "Scores", " ".join(said), foot + 24)


def _written(
    value: float | None, half: float | None, mark: float | None, unit: str, digits: int, name: str
) -> str:
    text = "none" if value is None else f"{value:,.{digits}f}"
    if value is not None and half is not None:
        text += f" ± {half:,.{digits}f}"
    if value is not None and unit:
        text += f" {unit}"
    return text if mark is None else f"{text} ({name} {mark:,.{digits}f})"


def _whisker(canvas: Canvas, low: float, high: float, y: float) -> None:
    canvas.line(low, y, high, y, INK, width=1.5)
    for end in (low, high):
        canvas.line(end, y - 4, end, y + 4, INK, width=1.5)


def _heading(canvas: Canvas, title: str, below: str) -> float:
    y = 4.0
    if title:
        y += 15
        canvas.text(0, y, title, size=15, bold=True)
        y += 6
    if below:
        y += 14
        canvas.text(0, y, below, size=12.5, fill=SOFT)
        y += 6
    return y + 6


def _legend(
    canvas: Canvas,
    entries: list[tuple[str, int]],
    y: float,
    marked: bool,
    mark_name: str,
    *,
    dashed: bool,
    boxes: bool = False,
) -> float:
    """The names of the series, wrapped; returns where the drawing begins."""
    if len(entries) < 2 and not marked and not dashed:
        return y
    x, middle = 0.0, y + 8
    for name, number in [*entries, *([(mark_name, -1)] if marked else [])]:
        room = 34 + wide(name, 13) + 14
        if x and x + room > WIDTH:
            x, middle = 0.0, middle + _LINE
        colour = COLOURS[number % len(COLOURS)]
        if number < 0:
            canvas.diamond(x + 12, middle)
        elif dashed:
            canvas.line(
                x, middle, x + 26, middle, colour, width=2, dash=DASHES[number % len(DASHES)]
            )
            canvas.shape(x + 13, middle, number, colour, 4)
        elif boxes:
            canvas.box(x + 8, middle - 7, 14, 14, colour)
        else:
            canvas.shape(x + 14, middle, number, colour, 6)
        canvas.text(x + 32, middle + 5, name, size=13)
        x += room
    return middle + 18


def _upright_axis(canvas: Canvas, up: Scale, left: float) -> None:
    for tick in up.ticks():
        canvas.line(left, up(tick), WIDTH - 14, up(tick), RULE)
        canvas.text(left - 6, up(tick) + 4.5, shown(tick), anchor="end", size=12.5, fill=SOFT)


def _flat_axis(
    canvas: Canvas, across: Scale, bottom: float, x_title: str, names: Mapping[float, float] | None
) -> None:
    canvas.line(across.start, bottom, across.end, bottom, SOFT)
    for tick in names if names is not None else across.ticks():
        said = shown(names[tick]) if names is not None else shown(tick)
        canvas.line(across(tick), bottom, across(tick), bottom + 4, SOFT)
        canvas.text(across(tick), bottom + 18, said, anchor="middle", size=12.5, fill=SOFT)
    if x_title:
        canvas.text((across.start + across.end) / 2, bottom + 38, x_title, anchor="middle", size=13)


def _rules(
    canvas: Canvas, across: Scale, rules: Mapping[str, float], top: float, bottom: float
) -> None:
    """Dashed upright lines, their names one above the other so that none covers another."""
    for row, (name, place) in enumerate(rules.items()):
        x, y = across(place), bottom - 8 - 17 * row
        canvas.line(x, top, x, bottom, SOFT, dash="4 3")
        late = x + 6 + wide(name, 12.5) > WIDTH
        anchor, shift = ("end", -5) if late else ("start", 5)
        canvas.text(x + shift, y, name, anchor=anchor, size=12.5, fill=INK, halo=True)


def _runs(y: Sequence[float | None]) -> list[list[int]]:
    """Places of neighbouring values that are there."""
    runs: list[list[int]] = []
    for place, value in enumerate(y):
        if value is None or not math.isfinite(value):
            continue
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _course(name: str, x: Sequence[float], y: Sequence[float | None], unit: str) -> str:
    known = [(at, value) for at, value in zip(x, y, strict=True) if value is not None]
    if not known:
        return f"{name}: no values."
    (first, begin), (last, end) = known[0], known[-1]
    behind = f" {unit}" if unit else ""
    return f"{name}: {begin:.4g}{behind} at {shown(first)}, {end:.4g}{behind} at {shown(last)}."


def _with_unit(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit and words else words
