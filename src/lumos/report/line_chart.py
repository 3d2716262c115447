"""Lines: values over a common x, with bands for their spread and diamonds for the paper's."""

import math
from collections.abc import Mapping, Sequence

from lumos.errors import UsageError
from lumos.report.axes import HEIGHT, RIGHT, flat_axis, heading, legend, upright_axis
from lumos.report.axes import rules as draw_rules
from lumos.report.scale import Scale, around, shown
from lumos.report.svg import COLOURS, DASHES, INK, Canvas

Course = Sequence[float | None]

_FEW = 12
"""Up to so many points are drawn one by one."""


def lines(
    x: Sequence[float],
    series: Mapping[str, tuple[Course, Course | None]],
    marks: Mapping[str, Course] | None = None,
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
        title: above the drawing; y_title stands below it, x_title at the foot.
        mark_name: what the diamonds are called.
        at_points: x are few measured settings, as ε: ticks stand at them, evenly spaced.
        rules: by name, places on x that a dashed upright line marks (not with `at_points`).
    """
    marks = marks or {}
    for name, course in [*((n, y) for n, (y, _) in series.items()), *marks.items()]:
        if len(course) != len(x):
            raise UsageError(f"lines: {name!r} has {len(course)} values for {len(x)} places")
    canvas = Canvas()
    top = legend(canvas, series, heading(canvas, title, y_title), "line", mark_name * bool(marks))
    bottom = top + HEIGHT
    up = around(_reach(series, marks), bottom, top)
    left = upright_axis(canvas, up, unit)
    places = [float(n) for n in range(len(x))] if at_points else [float(place) for place in x]
    pad = 0.4 if at_points else 0.0
    low, high = (places[0], places[-1]) if places else (0.0, 1.0)
    across = Scale(low - pad, max(high, low + 1 - pad) + pad, left, RIGHT)
    ticks = dict(zip(places, map(shown, x), strict=True))
    if not at_points:
        ticks = {tick: shown(tick) for tick in across.ticks()}
    foot = flat_axis(canvas, across, bottom, x_title, ticks)
    draw_rules(canvas, across, rules or {}, top, bottom)
    for number, (course, spread) in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        for run in _runs(course):
            at = [across(places[i]) for i in run]
            y = [value for i in run if (value := course[i]) is not None]
            if spread is not None:
                half = [spread[i] or 0.0 for i in run]
                above = [(a, up(b + c)) for a, b, c in zip(at, y, half, strict=True)]
                below = [(a, up(b - c)) for a, b, c in zip(at, y, half, strict=True)]
                canvas.path([*above, *below[::-1]], fill=colour, width=0, opacity=0.16)
            points = [(a, up(b)) for a, b in zip(at, y, strict=True)]
            canvas.path(points, stroke=colour, dash=DASHES[number % len(DASHES)])
            if len(x) <= _FEW or len(run) == 1:
                for point in points:
                    canvas.shape(*point, number, colour, 4.5)
    names = list(series)
    for name, course in marks.items():
        colour = COLOURS[names.index(name) % len(COLOURS)] if name in names else INK
        for place, value in zip(places, course, strict=True):
            if value is not None:
                canvas.diamond(across(place), up(value), colour)
    said = " ".join(_said(name, x, course, unit) for name, (course, _) in series.items())
    return canvas.svg(title or "Lines", said, foot)


def _reach(
    series: Mapping[str, tuple[Course, Course | None]], marks: Mapping[str, Course]
) -> list[float | None]:
    """Everything that the upright axis must hold."""
    found: list[float | None] = [value for course in marks.values() for value in course]
    for course, spread in series.values():
        for value, half in zip(course, spread or [None] * len(course), strict=True):
            if value is not None:
                found += [value - (half or 0.0), value + (half or 0.0)]
    return found


def _runs(course: Course) -> list[list[int]]:
    """Places of neighbouring values that are there."""
    runs: list[list[int]] = []
    for place, value in enumerate(course):
        if value is None or not math.isfinite(value):
            continue
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _said(name: str, x: Sequence[float], course: Course, unit: str) -> str:
    known = [(at, value) for at, value in zip(x, course, strict=True) if value is not None]
    if not known:
        return f"{name}: no values."
    (first, begin), (last, end) = known[0], known[-1]
    behind = f" {unit}" if unit else ""
    return f"{name}: {begin:.4g}{behind} at {shown(first)}, {end:.4g}{behind} at {shown(last)}."
