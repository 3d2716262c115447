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

LEVEL_LINE, LEVEL_GAP = 16.0, 16.0
"""Between names of levels, and from the end of a level to its name."""
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


def y_axis(canvas: Canvas, scale: Scale, unit: str = "", end: float = RIGHT) -> float:
    """Tick labels at the left and grid lines up to `end`; returns the x where those begin."""
    labels = {tick: format_tick(tick) + (unit and f" {unit}") for tick in scale.ticks()}
    left = 10 + max(text_width(label, 13) for label in labels.values())
    for tick, label in labels.items():
        canvas.line(left, scale(tick), end, scale(tick), GRID)
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


def draw_levels(
    canvas: Canvas, scale: Scale, levels: Mapping[str, float], left: float, right: float
) -> None:
    """Dashed horizontal lines, each with its name at the right; names keep apart from each other.

    Args:
        scale: of the y axis.
    """
    ordered = sorted(levels.items(), key=lambda level: scale(level[1]))  # the highest first
    middles = _apart([scale(number) for _, number in ordered], LEVEL_LINE)
    for (name, number), middle in zip(ordered, middles, strict=True):
        y = scale(number)
        canvas.line(left, y, right, y, MUTED, dash="4 3")
        canvas.line(right, y, right + LEVEL_GAP - 3, middle, MUTED)
        canvas.text(right + LEVEL_GAP, middle + 4.5, name, size=13)


def levels_width(names: Iterable[str]) -> float:
    """What names of levels need to the right of a drawing."""
    return max((LEVEL_GAP + text_width(name, 13) for name in names), default=0.0)


def _apart(places: list[float], least: float) -> list[float]:
    """The places, in ascending order, moved so that neighbours are at least so far apart.

    Those that are too close become a group around their own mean.
    """
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _begin(groups[-1], least) < _end(groups[-2], least) + least:
            last = groups.pop()
            groups[-1] += last
    return [_begin(group, least) + n * least for group in groups for n in range(len(group))]


def _begin(group: list[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


def _end(group: list[float], least: float) -> float:
    return _begin(group, least) + least * (len(group) - 1)


def draw_notes(canvas: Canvas, notes: Iterable[str], y: float) -> float:
    """Small lines of text below a drawing; returns the y where it ends."""
    for note in notes:
        y += 16
        canvas.text(0, y, note, size=12, fill=MUTED)
    return y + 6
