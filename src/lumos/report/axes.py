"""What figures share: heading, legend, axes, reference lines."""

from collections.abc import Iterable, Mapping
from typing import Literal

from lumos.report.scale import Scale, format_tick
from lumos.report.svg import COLOURS, DASHES, GRID, INK, MUTED, WIDTH, Canvas, text_width

LINE = 20.0
"""From one line of text to the next."""
HEIGHT = 210.0
"""Of the inner part of a figure with two axes."""
RIGHT = WIDTH - 14
"""Where its axes end."""

MARK_NAME = "the paper"
"""What diamonds are called by default."""

Style = Literal["line", "box", "dot"]


def heading(canvas: Canvas, title: str, subtitle: str = "") -> float:
    """Title, and a softer line below it; returns where the rest begins."""
    y = 4.0
    if title:
        y += 15
        canvas.text(0, y, title, size=15, bold=True)
        y += 6
    if subtitle:
        y += 14
        canvas.text(0, y, subtitle, size=13, fill=MUTED)
        y += 6
    return y + 6


def legend(canvas: Canvas, names: Iterable[str], y: float, style: Style, mark: str = "") -> float:
    """The names of the series, and that of the diamonds; returns where the rest begins."""
    x, middle = 0.0, y + 8
    for number, name in [*enumerate(names), *([(-1, mark)] if mark else [])]:
        width = 34 + text_width(name, 13) + 14
        if x and x + width > WIDTH:
            x, middle = 0.0, middle + LINE
        colour = COLOURS[number % len(COLOURS)]
        if number < 0:
            canvas.diamond(x + 13, middle)
        elif style == "line":
            dash = DASHES[number % len(DASHES)]
            canvas.line(x, middle, x + 26, middle, colour, width=2, dash=dash)
            canvas.shape(x + 13, middle, number, colour, 4)
        elif style == "box":
            canvas.box(x + 6, middle - 7, 14, 14, colour)
        else:
            canvas.shape(x + 13, middle, number, colour, 6)
        canvas.text(x + 32, middle + 5, name, size=13)
        x += width
    return middle + 18


def y_axis(canvas: Canvas, scale: Scale, unit: str = "") -> float:
    """Tick labels at the left and grid lines; returns the x where those begin."""
    labels = {tick: format_tick(tick) + (unit and f" {unit}") for tick in scale.ticks()}
    left = 10 + max(text_width(label, 13) for label in labels.values())
    for tick, label in labels.items():
        canvas.line(left, scale(tick), RIGHT, scale(tick), GRID)
        canvas.text(left - 6, scale(tick) + 4.5, label, anchor="end", size=13, fill=MUTED)
    return left


def x_axis(
    canvas: Canvas, scale: Scale, y: float, title: str, labels: Mapping[float, str]
) -> float:
    """Ticks at the bottom and the title of the axis; returns the y where the figure ends."""
    canvas.line(scale.start, y, scale.end, y, MUTED)
    for tick, label in labels.items():
        canvas.line(scale(tick), y, scale(tick), y + 4, MUTED)
        canvas.text(scale(tick), y + 18, label, anchor="middle", size=13, fill=MUTED)
    if not title:
        return y + 26
    canvas.text((scale.start + scale.end) / 2, y + 38, title, anchor="middle", size=13)
    return y + 46


def draw_reference_lines(
    canvas: Canvas, scale: Scale, numbers: Mapping[str, float], top: float, bottom: float
) -> None:
    """Dashed vertical lines by name; names are stacked so that none covers another."""
    for row, (name, number) in enumerate(numbers.items()):
        x, y = scale(number), bottom - 8 - 17 * row
        canvas.line(x, top, x, bottom, MUTED, dash="4 3")
        at_the_edge = x + 6 + text_width(name, 13) > WIDTH
        anchor, shift = ("end", -5) if at_the_edge else ("start", 5)
        canvas.text(x + shift, y, name, anchor=anchor, size=13, fill=INK, halo=True)
