"""What figures share: heading, legend, axes, marked places."""

from collections.abc import Iterable, Mapping
from typing import Literal

from lumos.report.scale import Scale, shown
from lumos.report.svg import COLOURS, DASHES, INK, RULE, SOFT, WIDTH, Canvas, wide

LINE = 20.0
"""From one line of text to the next."""
HEIGHT = 210.0
"""Of the inner part of a figure with two axes."""
RIGHT = WIDTH - 14
"""Where its axes end."""

Style = Literal["line", "box", "dot"]


def heading(canvas: Canvas, title: str, below: str = "") -> float:
    """Title, and a softer line below it; returns where the rest begins."""
    y = 4.0
    if title:
        y += 15
        canvas.text(0, y, title, size=15, bold=True)
        y += 6
    if below:
        y += 14
        canvas.text(0, y, below, size=13, fill=SOFT)
        y += 6
    return y + 6


def legend(canvas: Canvas, names: Iterable[str], y: float, style: Style, mark: str = "") -> float:
    """The names of the series, and that of the diamonds; returns where the rest begins."""
    x, middle = 0.0, y + 8
    for number, name in [*enumerate(names), *([(-1, mark)] if mark else [])]:
        room = 34 + wide(name, 13) + 14
        if x and x + room > WIDTH:
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
        x += room
    return middle + 18


def upright_axis(canvas: Canvas, up: Scale, unit: str = "") -> float:
    """Ticks at the left and lines across; returns where they begin."""
    names = {tick: shown(tick) + (unit and f" {unit}") for tick in up.ticks()}
    left = 10 + max(wide(name, 13) for name in names.values())
    for tick, name in names.items():
        canvas.line(left, up(tick), RIGHT, up(tick), RULE)
        canvas.text(left - 6, up(tick) + 4.5, name, anchor="end", size=13, fill=SOFT)
    return left


def flat_axis(
    canvas: Canvas, across: Scale, y: float, title: str, names: Mapping[float, str]
) -> float:
    """Ticks at the bottom and the title of the axis; returns where the figure ends."""
    canvas.line(across.start, y, across.end, y, SOFT)
    for tick, name in names.items():
        canvas.line(across(tick), y, across(tick), y + 4, SOFT)
        canvas.text(across(tick), y + 18, name, anchor="middle", size=13, fill=SOFT)
    if not title:
        return y + 26
    canvas.text((across.start + across.end) / 2, y + 38, title, anchor="middle", size=13)
    return y + 46


def rules(
    canvas: Canvas, across: Scale, places: Mapping[str, float], top: float, bottom: float
) -> None:
    """Dashed upright lines, their names one above the other so that none covers another."""
    for row, (name, place) in enumerate(places.items()):
        x, y = across(place), bottom - 8 - 17 * row
        canvas.line(x, top, x, bottom, SOFT, dash="4 3")
        late = x + 6 + wide(name, 13) > WIDTH
        anchor, shift = ("end", -5) if late else ("start", 5)
        canvas.text(x + shift, y, name, anchor=anchor, size=13, fill=INK, halo=True)
