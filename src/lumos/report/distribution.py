"""The cumulative distribution: what share of the values is at most so large."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lumos.report.axes import HEIGHT, RIGHT, draw_reference_lines, heading, legend, x_axis, y_axis
from lumos.report.scale import Scale, format_tick
from lumos.report.svg import COLOURS, DASHES, Canvas
from lumos.typing import Doubles

_MAX_STEPS = 400
"""Steps of one line that are drawn."""


def cdf(
    series: Mapping[str, Sequence[float] | npt.NDArray[np.generic]],
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "share of devices with at most so many",
    marks: Mapping[str, float] | None = None,
    logarithmic: bool = True,
) -> str:
    """What share of the values is at most so large, for each series.

    Args:
        series: by name, the values, none below 0.
        unit: behind the title of the x axis.
        title: above the drawing; y_title stands below it, x_title at the bottom.
        marks: by name, numbers that a dashed vertical line marks, as "paper: largest 39".
        logarithmic: the x axis is spaced as log(1 + value), for long tails.
    """
    sorted_values = {name: np.sort(np.asarray(values, float)) for name, values in series.items()}
    curves = {name: values for name, values in sorted_values.items() if len(values)}
    canvas = Canvas()
    top = legend(canvas, curves, heading(canvas, title, y_title), "line")
    bottom = top + HEIGHT
    y_scale = Scale(0, 100, bottom, top)
    left = y_axis(canvas, y_scale, "%")
    largest = max([1.0, *(marks or {}).values(), *(values[-1] for values in curves.values())])
    room = 1.15 if logarithmic else 1.04
    x_scale = Scale(0, largest * room, left, RIGHT, logarithmic=logarithmic)
    end = x_axis(
        canvas,
        x_scale,
        bottom,
        f"{x_title}, {unit}" if unit else x_title,
        {tick: format_tick(tick) for tick in x_scale.ticks()},
    )
    draw_reference_lines(canvas, x_scale, marks or {}, top, bottom)
    for number, values in enumerate(curves.values()):
        steps, share = shares(values)
        points = [(x_scale(steps[0]), y_scale(0.0))]
        points += [
            (x_scale(step), y_scale(percent))
            for step, percent in zip(steps.tolist(), share.tolist(), strict=True)
        ]
        colour = COLOURS[number % len(COLOURS)]
        canvas.path(points, stroke=colour, dash=DASHES[number % len(DASHES)], step=True)
        canvas.shape(*points[-1], number, colour)
    description = " ".join(_describe(name, values) for name, values in curves.items())
    return canvas.svg(title or "Distribution", description, end)


def shares(values: Doubles) -> tuple[Doubles, Doubles]:
    """The distinct values, and what per cent of all is at most each; 400 of them at most."""
    steps, begins = np.unique(np.sort(values), return_index=True)
    share = 100 * np.append(begins[1:], len(values)) / len(values)
    some = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MAX_STEPS)).astype(int))
    return steps[some], share[some]


def _describe(name: str, values: Doubles) -> str:
    """A curve in words: its median and its largest value."""
    median = values[(len(values) - 1) // 2]
    return (
        f"{name}: half of {len(values):,} have at most {format_tick(median)}, "
        f"the largest is {format_tick(values[-1])}."
    )
