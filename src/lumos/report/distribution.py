"""The cumulative distribution: what share of the values is at most so large."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from lumos.report.axes import HEIGHT, RIGHT, flat_axis, heading, legend, rules, upright_axis
from lumos.report.scale import Scale, shown
from lumos.report.svg import COLOURS, DASHES, Canvas

_MOST = 400
"""Steps of one line that are drawn."""


def cdf(
    series: Mapping[str, Sequence[float] | npt.NDArray[np.generic]],
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "share of devices with at most so many",
    marks: Mapping[str, float] | None = None,
    bent: bool = True,
) -> str:
    """What share of the values is at most so large, for each series.

    Args:
        series: by name, the values, none below 0.
        unit: behind the title of the x axis.
        title: above the drawing; y_title stands below it, x_title at the foot.
        marks: by name, numbers that a dashed upright line marks, as "paper: largest 39".
        bent: the axis is spaced as log(1 + value), for long tails.
    """
    known = {name: np.sort(np.asarray(values, float)) for name, values in series.items()}
    known = {name: values for name, values in known.items() if len(values)}
    canvas = Canvas()
    top = legend(canvas, known, heading(canvas, title, y_title), "line")
    bottom = top + HEIGHT
    left = upright_axis(canvas, up := Scale(0, 100, bottom, top), "%")
    largest = max([1.0, *(marks or {}).values(), *(values[-1] for values in known.values())])
    across = Scale(0, largest * (1.15 if bent else 1.04), left, RIGHT, bent=bent)
    foot = flat_axis(
        canvas,
        across,
        bottom,
        f"{x_title}, {unit}" if unit else x_title,
        {tick: shown(tick) for tick in across.ticks()},
    )
    rules(canvas, across, marks or {}, top, bottom)
    for number, values in enumerate(known.values()):
        steps, share = shares(values)
        points = [(across(steps[0]), up(0.0))]
        points += [(across(s), up(p)) for s, p in zip(steps.tolist(), share.tolist(), strict=True)]
        colour = COLOURS[number % len(COLOURS)]
        canvas.path(points, stroke=colour, dash=DASHES[number % len(DASHES)], step=True)
        canvas.shape(*points[-1], number, colour)
    said = " ".join(
        f"{name}: half of {len(values):,} have at most {shown(values[(len(values) - 1) // 2])}, "
        f"the largest is {shown(values[-1])}."
        for name, values in known.items()
    )
    return canvas.svg(title or "Distribution", said, foot)


def shares(
    values: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The distinct values, and what per cent of all is at most each; 400 of them at most."""
    steps, begins = np.unique(np.sort(values), return_index=True)
    share = 100 * np.append(begins[1:], len(values)) / len(values)
    some = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MOST)).astype(int))
    return steps[some], share[some]
