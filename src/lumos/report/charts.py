"""Charts drawn by matplotlib and returned as inline SVG.

Colours are variables of the page around a chart, with the colours of a light page as fallback, so
the same drawing serves light pages, dark pages, notebooks and files. Text stays text and every name
is escaped. A drawing is 440 units wide with text of 12 and 13, which is legible on a phone of 390
pixels. The same numbers give the same bytes. matplotlib is imported by the first chart.
"""

import functools
import hashlib
import io
import math
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from lumos.errors import UsageError
from lumos.training.profile import PAPER as PAPER_PROFILE
from lumos.training.profile import STRICT
from lumos.typing import Doubles, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 440.0, 210.0
"""Width of a drawing, and height of the inner part of one with two axes."""
MAX_CLASSES = 20
"""Classes that a heat map can show."""
MAX_BRANCHES = 7
"""Branches of a tree that are drawn; the drawing says how many more there are."""
INK, MUTED, GRID, PAPER = "#1a1a1a", "#555555", "#d9d9d9", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#444444")
"""Okabe and Ito's palette in the order of contrast on white, its orange darkened and its sky blue
left out. Colour never stands alone: dashes, shapes or words say the same."""
SYSTEM_STYLES = {
    PAPER_PROFILE: 0, "literal": 6,
    STRICT: 1, "control": 13,
    "centralized": 2,
    "lpgnn": 3, "lpgnn-blink": 9,
    "naive": 4, "blink": 10, "gap": 16,
    "own": 5, "own-unprotected": 11, "lpgnn-own": 17,
}  # fmt: skip
"""By system, the number of its colour and shape in every chart. Relatives share a colour, which is
the rest of the number by six, and differ in shape or dashes."""
RIGHT, WRONG = "#0073b2", "#d55f00"
"""Cells of a heat map on the diagonal, and all others. They do not change on a dark page."""

P = ParamSpec("P")
R = TypeVar("R")
Values = Sequence[float | None]
Grid = Sequence[Values]

_TEXT, _SMALL = 13.0, 12.0
_LINE = 18.0
"""Distance between lines of text."""
_CHARACTER = 0.57
"""Estimated width of a character over its size; generous, because fonts differ between devices."""
_DASHES: tuple[Any, ...] = (
    "solid", (0, (7, 4)), (0, (2, 3)), (0, (9, 3, 2, 3)), (0, (12, 4)), (0, (4, 2)), (0, (1, 4)),
)  # fmt: skip
"""One more than colours: no two of many series have both in common."""
_REFERENCES: tuple[dict[str, Any], ...] = tuple(
    {"color": MUTED, "linestyle": (0, dash), "linewidth": 1.2} for dash in ((4, 3), (1, 2))
)
_DIAMOND: dict[str, Any] = {
    "linestyle": "none",
    "marker": "D",
    "markersize": 8,
    "markerfacecolor": PAPER,
    "markeredgecolor": INK,
    "markeredgewidth": 2,
    "clip_on": False,
    "zorder": 5,
}
_SHAPES = ("o", "s", "^", "v")
_FEW = 12
"""Number of points up to which each is marked."""
_MAX_STEPS = 400
"""Steps of a distribution that are drawn."""
_CELL = 42.0
"""Least width of a cell of a heat map, and its height."""
_FAINT, _DEEP = 0.08, 0.7
"""Opacity of a cell with a share of 0 and of 1: words have a contrast of 4.5 on both."""
_PREFERRED = 5
"""Most branches of the tree that is drawn, where a device has no more."""
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--soft",
    GRID: "--rule",
    PAPER: "--paper",
    **{colour: f"--series-{number}" for number, colour in enumerate(COLOURS, 1)},
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lumos",
    "text.parse_math": False,
    "font.size": _SMALL,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.axisbelow": True,
    "axes.autolimit_mode": "round_numbers",
    "axes.xmargin": 0,
    "axes.ymargin": 0,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
    "grid.color": GRID,
    "lines.linewidth": 2,
}


def _styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a function under the style of this module, whatever the user's matplotlib is set to."""

    @functools.wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> R:
        return _drawn(functools.partial(draw, *args, **kwargs))

    return styled


def _drawn(draw: "functools.partial[R]") -> R:
    """Return what a function draws under the style of this module."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser's font has it
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        return draw()


def bars(
    groups: Sequence[str], series: Sequence[str], values: Grid, *more: Any, **options: Any
) -> str:
    """Draw the values of `dots` as horizontal bars from 0; arguments are those of `dots`."""
    return dots(groups, series, values, *more, **options, from_zero=True)


@_styled
def dots(
    groups: Sequence[str],
    series: Sequence[str],
    values: Grid,
    errors: Grid | None = None,
    marks: Grid | None = None,
    unit: str = "",
    title: str = "",
    *,
    digits: int = 2,
    mark_name: str = "the paper",
    singles: Sequence[Sequence[Sequence[float]]] | None = None,
    from_zero: bool = False,
    styles: Mapping[str, int] | None = None,
) -> str:
    """Draw grouped values as dots, each below its name and its number.

    The axis need not begin at 0, for scores that lie close together: bars that do not begin at 0
    would misstate their ratio.

    Args:
        groups: names of the groups, from top to bottom.
        series: names of the values of each group.
        values: [groups][series]; None where there is nothing, which is written as "none".
        errors: [groups][series] spread, drawn as a whisker to both sides and written as ±.
        marks: [groups][series] reference values, drawn as diamonds and written beside.
        unit: behind every number, as "%".
        title: above the drawing.
        digits: decimals of the numbers.
        mark_name: name of the diamonds.
        singles: [groups][series] the values behind a mean, as those of single seeds: each is a thin
            vertical stroke.
        from_zero: draw bars from 0 instead of dots.
        styles: by name of a series, the number of its colour and shape; by default its place.
    """
    tables: dict[str, Sequence[Sequence[Any]] | None]
    tables = {"values": values, "errors": errors, "marks": marks, "singles": singles}
    full = [table or [[None] * len(series)] * len(groups) for table in tables.values()]
    for name, table in zip(tables, full, strict=True):
        if len(table) != len(groups) or any(len(row) != len(series) for row in table):
            raise UsageError(f"bars: {name} must be {len(groups)} groups of {len(series)} series")
    several = len(groups) > 1
    marked = any(mark is not None for row in full[2] for mark in row)
    texts: list[tuple[float, float, str, dict[str, Any]]] = []
    drawn, described, y = [], [], 0.0
    for group, *rows in zip(groups, *full, strict=True):
        if several and len(series) > 1:
            y += _LINE + 2
            texts.append((0, y - 4, group, {"weight": "bold"}))
        for place, (name, *cell) in enumerate(zip(series, *rows, strict=True)):
            number = (styles or {}).get(name, place)
            label = _written(cell[0], cell[1], cell[2], unit, digits, mark_name)
            described.append(f"{group}, {name}: {label}.")
            shown = _cut(group if several and len(series) == 1 else name, WIDTH - 10)
            texts.append((0, y + _LINE - 4, shown, {}))
            y += _LINE
            if _width(f"{shown} {label}") > WIDTH - 20:
                y += _LINE
            texts.append((1, y - 4, label, {"ha": "right"}))
            drawn.append((y + 9, number, cell))
            y += 20
        y += 5
    names = {mark_name: _DIAMOND} if marked else {}
    figure, axes = _canvas(title, "", names, y + 24)
    axes.set_ylim(y, 0)
    axes.set_yticks([])
    axes.grid(axis="x")
    for x, bottom, words, style in texts:
        _write(axes, x, bottom, words, **style)
    for middle, number, cell in drawn:
        _draw_row(axes, middle, number, *cell, from_zero=from_zero)
    axes.locator_params("x", nbins=5)
    axes.autoscale_view(scaley=False)
    axes.xaxis.set_major_formatter(lambda tick, _: format_tick(tick) + (unit and f" {unit}"))
    return _svg(figure, title or "Scores", " ".join(described))


def _draw_row(
    axes: "Axes",
    y: float,
    number: int,
    value: float | None,
    error: float | None,
    mark: float | None,
    singles: Sequence[float] | None,
    *,
    from_zero: bool,
) -> None:
    colour = COLOURS[number % len(COLOURS)]
    if singles:
        axes.vlines(singles, y - 8, y + 8, colour, linewidth=1.5)
    if value is not None and from_zero:
        axes.barh(y, value, 13, color=colour)
    if value is not None and error:
        axes.errorbar(value, y, xerr=error, color=INK, capsize=4, linewidth=1.5, capthick=1.5)
    if value is not None and not from_zero:
        shape = _SHAPES[number % len(_SHAPES)]
        axes.plot(value, y, shape, color=colour, markersize=10, clip_on=False, zorder=4)
    if mark is not None:
        axes.plot(mark, y, **_DIAMOND)


def _written(
    value: float | None,
    error: float | None,
    mark: float | None,
    unit: str,
    digits: int,
    mark_name: str,
) -> str:
    """Return a cell in words, as "90.00 ± 0.50 % (the paper 77.40)"."""
    text = "none" if value is None else f"{value:,.{digits}f}"
    if value is not None and error is not None:
        text += f" ± {error:,.{digits}f}"
    if value is not None and unit:
        text += f" {unit}"
    return text if mark is None else f"{text} ({mark_name} {mark:,.{digits}f})"


@_styled
def lines(
    x: Sequence[float],
    series: Mapping[str, tuple[Values, Values | None]],
    marks: Mapping[str, Values] | None = None,
    unit: str = "",
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "",
    mark_name: str = "the paper",
    at_points: bool = False,
    reference_lines: Mapping[str, float] | None = None,
    levels: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    height: float = HEIGHT,
    least: float | None = None,
    styles: Mapping[str, int] | None = None,
) -> str:
    """Draw lines over a common x, with a band for their spread.

    Args:
        x: [points] in increasing order.
        series: by name, (values, spread or None), each [points]; None leaves a gap.
        marks: by the name of a series, reference values [points], drawn as diamonds in its colour;
            under any other name in black.
        unit: behind the numbers of the y axis.
        title: above the drawing; y_title stands below it, x_title at the bottom.
        mark_name: name of the diamonds.
        at_points: x are few measured settings, as ε: ticks stand at them, evenly spaced.
        reference_lines: by name, numbers on x that a dashed vertical line marks.
        levels: by name, numbers on y that a dashed horizontal line marks, named at the right.
        notes: lines of small text at the bottom.
        height: height of the inner part.
        least: begin of the y axis; lines are cut off below it.
        styles: by name of a series, the number of its colour and shape; by default its place.
    """
    marks, levels, names = marks or {}, levels or {}, list(series)
    for name, values in [*((n, y) for n, (y, _) in series.items()), *marks.items()]:
        if len(values) != len(x):
            raise UsageError(f"lines: {name!r} has {len(values)} values for {len(x)} places")
    numbers = [(styles or {}).get(name, place) for place, name in enumerate(names)]
    legend = {name: _line(number) for number, name in zip(numbers, names, strict=True)}
    legend |= {mark_name: _DIAMOND} if marks else {}
    references = dict(zip(reference_lines or {}, cycle(_REFERENCES), strict=False))
    figure, axes = _canvas(title, y_title, legend | references, height + 40, notes)
    for name, style in references.items():
        axes.axvline((reference_lines or {})[name], **style)
    at = np.arange(len(x), dtype=float) if at_points else np.asarray(x, float)
    for number, (values, spread) in zip(numbers, series.values(), strict=True):
        y = _finite(values)
        known = np.pad(np.isfinite(y), 1)
        alone = known[1:-1] & ~known[:-2] & ~known[2:]
        marked = None if len(x) <= _FEW else np.flatnonzero(alone).tolist()
        axes.plot(at, y, **_line(number), markevery=marked)
        if spread is not None:
            half = np.nan_to_num(_finite(spread))
            colour = COLOURS[number % len(COLOURS)]
            axes.fill_between(at, y - half, y + half, color=colour, alpha=0.16, linewidth=0)
    for name, values in marks.items():
        colour = COLOURS[numbers[names.index(name)] % len(COLOURS)] if name in names else INK
        axes.plot(at, _finite(values), **_DIAMOND | {"markeredgecolor": colour})
    for number_on_y in levels.values():
        axes.axhline(number_on_y, **_REFERENCES[0])
    low, high = (at[0], at[-1]) if len(at) else (0.0, 1.0)
    margin = 0.4 if at_points else 0.0
    axes.set_xlim(low - margin, max(high, low + 1 - margin) + margin)
    axes.locator_params(nbins=6)
    if least is not None:
        axes.set_ylim(bottom=least)
    axes.xaxis.set_major_formatter(lambda tick, _: format_tick(tick))
    if at_points:
        axes.set_xticks(at, [format_tick(place) for place in x])
    axes.set_xlabel(_cut(x_title, 0.8 * WIDTH))
    axes.grid(axis="y")
    axes.yaxis.set_major_formatter(lambda tick, _: format_tick(tick) + (unit and f" {unit}"))
    _name_levels(axes, levels, height)
    about = " ".join(_course(name, x, values, unit) for name, (values, _) in series.items())
    return _svg(figure, title or "Lines", about)


def _name_levels(axes: "Axes", levels: Mapping[str, float], height: float) -> None:
    """Write names of horizontal lines at the right, from the top down and apart from each other."""
    low, high = axes.get_ylim()
    gap = (high - low) * _LINE / height
    y = math.inf
    for name, number in sorted(levels.items(), key=lambda level: -level[1]):
        y = min(number, y - gap)
        axes.annotate(
            _cut(name, 0.4 * WIDTH),
            (1, number),
            (1.04, y),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            arrowprops={"arrowstyle": "-", "color": MUTED, "shrinkA": 0, "shrinkB": 0},
        )


def _course(name: str, x: Sequence[float], values: Values, unit: str) -> str:
    """Return a line in words: where it begins and ends."""
    known = [(at, value) for at, value in zip(x, values, strict=True) if value is not None]
    if not known:
        return f"{name}: no values."
    (first, begin), (last, end) = known[0], known[-1]
    behind = f" {unit}" if unit else ""
    return (
        f"{name}: {begin:.4g}{behind} at {format_tick(first)}, "
        f"{end:.4g}{behind} at {format_tick(last)}."
    )


@_styled
def cdf(
    series: Mapping[str, Sequence[float] | npt.NDArray[np.generic]],
    title: str = "",
    *,
    x_title: str = "",
    y_title: str = "share of devices with at most so many",
    marks: Mapping[str, float] | None = None,
) -> str:
    """Draw, for each series, the share of its values that is at most so large.

    Args:
        series: by name, the values, none below 0. The x axis is spaced as log(1 + value), for long
            tails.
        title: above the drawing; y_title stands below it, x_title at the bottom.
        marks: by name, numbers that a dashed vertical line marks, as "paper: largest 39".
    """
    values = {name: np.sort(np.asarray(of_name, float)) for name, of_name in series.items()}
    curves = {name: ordered for name, ordered in values.items() if len(ordered)}
    legend = {name: _line(number) for number, name in enumerate(curves)}
    references = dict(zip(marks or {}, cycle(_REFERENCES), strict=False))
    figure, axes = _canvas(title, y_title, legend | references, HEIGHT + 40)
    for name, style in references.items():
        axes.axvline((marks or {})[name], **style)
    most = 1.15 * max([1.0, *(marks or {}).values(), *(ordered[-1] for ordered in curves.values())])
    axes.set_xscale("function", functions=(np.log1p, np.expm1))
    axes.set_xlim(0, most)
    ticks = [0.0]
    for tick in (n * 10.0**power for power in range(12) for n in (1, 2, 5)):
        if tick <= most and math.log1p(tick) - math.log1p(ticks[-1]) > math.log1p(most) / 9:
            ticks.append(tick)
    axes.set_xticks(ticks, [format_tick(tick) for tick in ticks])
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20), [f"{share} %" for share in range(0, 101, 20)])
    axes.grid(axis="y")
    axes.set_xlabel(_cut(x_title, 0.8 * WIDTH))
    for number, ordered in enumerate(curves.values()):
        steps, share = shares(ordered)
        style = _line(number) | {"drawstyle": "steps-post", "clip_on": False}
        axes.plot([steps[0], *steps], [0, *share], **style, markevery=[-1])
    about = " ".join(
        f"{name}: half of {len(values):,} have at most "
        f"{format_tick(values[(len(values) - 1) // 2])}, the largest is {format_tick(values[-1])}."
        for name, values in curves.items()
    )
    return _svg(figure, title or "Distribution", about)


def shares(values: Doubles) -> tuple[Doubles, Doubles]:
    """Return at most 400 of the distinct values, and the per cent of all that is at most each."""
    steps, begins = np.unique(np.sort(values), return_index=True)
    share = 100 * np.append(begins[1:], len(values)) / len(values)
    some = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _MAX_STEPS)).astype(int))
    return steps[some], share[some]


@_styled
def confusion(names: Sequence[str], counts: Sequence[Sequence[int]], title: str = "") -> str:
    """Draw how many devices of each class are taken for which class, with their share of the class.

    Args:
        names: [classes] names of the classes.
        counts: [classes][classes]: row: true class, column: predicted class.
        title: above the drawing.
    """
    from matplotlib.patches import Rectangle

    classes = len(names)
    if len(counts) != classes or any(len(row) != classes for row in counts):
        raise UsageError(f"confusion: counts must be {classes} rows of {classes} numbers")
    if not 1 <= classes <= MAX_CLASSES:
        raise UsageError(f"confusion: 1 to {MAX_CLASSES} classes can be drawn, got {classes}")
    room = _room(names)
    width = max(WIDTH, room + classes * _CELL)
    fits = all(_width(name) + 6 <= (width - room) / classes for name in names)
    subtitle = "rows: true class, columns: predicted class"
    figure, axes = _canvas(title, subtitle, {}, classes * _CELL + 24, width=width)
    axes.set_xlim(0, classes)
    axes.set_ylim(classes, 0)
    middles = np.arange(classes) + 0.5
    numbers = [f" {number}" * (not fits) for number in range(1, classes + 1)]
    columns = [_plain(name) for name in names] if fits else numbers
    axes.set_xticks(middles, columns)
    rows = [_cut(name, room - 8 - _width(n)) + n for name, n in zip(names, numbers, strict=True)]
    axes.set_yticks(middles, rows, color=INK)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    for row, of_class in enumerate(counts):
        for column, count in enumerate(of_class):
            share = count / max(1, sum(of_class))
            alpha = _FAINT + (_DEEP - _FAINT) * share if count else _FAINT / 2
            cell = Rectangle((column + 0.02, row + 0.02), 0.96, 0.96, linewidth=0)
            cell.set(facecolor=RIGHT if row == column else WRONG, alpha=round(alpha, 2))
            axes.add_patch(cell)
            if count:
                middle = column + 0.5
                axes.text(middle, row + 0.45, short_count(count), ha="center", weight="bold")
                axes.text(middle, row + 0.83, f"{100 * share:.0f} %", ha="center")
    about = " ".join(_row_in_words(names, row, counts[row]) for row in range(classes))
    return _svg(figure, title or "Confusion matrix", about)


def is_wide(names: Sequence[str]) -> bool:
    """Return whether the matrix of these classes needs a figure of the whole width."""
    return _room(names) + len(names) * _CELL > WIDTH


def _room(names: Sequence[str]) -> float:
    """Return the width of the names of rows, which have their number where columns have numbers."""
    return max(60.0, min(150.0, max(_width(f"{_plain(name)} 20") for name in names) + 8))


def short_count(count: int) -> str:
    """Return a count in five characters at most."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
    return f"{count:,}"


def _row_in_words(names: Sequence[str], row: int, of_class: Sequence[int]) -> str:
    """Return how many devices of a class are right, and what most of the others are taken for."""
    total = sum(of_class)
    if not total:
        return f"{names[row]}: no devices."
    text = f"{names[row]}: {of_class[row]:,} of {total:,} are right"
    others = [(count, name) for name, count in zip(names, of_class, strict=True)]
    del others[row]
    count, name = max(others, key=lambda other: other[0], default=(0, ""))
    return f"{text}, {count:,} are taken for {name}." if count else f"{text}."


@_styled
def tree(branches: int, own: str, other: str, *, virtual_nodes: bool = True) -> str:
    """Draw the tree of a device that has so many branches (figure 2 of the paper), or its star.

    Vertices are named by what they are, never by an id.

    Args:
        own: contents of the leaves of the device itself.
        other: contents of the leaves of its neighbours.
        virtual_nodes: the paper's tree; a star otherwise.
    """
    disc: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": COLOURS[0]}
    square = disc | {"marker": "s", "color": COLOURS[1]}
    nobody = disc | {"markerfacecolor": PAPER, "markeredgecolor": MUTED, "markeredgewidth": 1.8}
    legend = {f"the device: {own}": disc}
    if branches:
        legend[f"one of its neighbours: {other}"] = square
    if branches and virtual_nodes:
        legend["nobody: a root, and a parent for each branch"] = nobody
    deep = 2 if virtual_nodes else 1
    figure, axes = _canvas("", "", legend, 70.0 * deep * bool(branches) + 40)
    axes.set_axis_off()
    axes.set_xlim(-0.5, 0.5)
    axes.set_ylim(deep * bool(branches) + 0.25, -0.25)
    drawn = min(branches, MAX_BRANCHES)
    slots = drawn + (branches > drawn)
    gap = 1 / max(1, slots)
    across = [gap * (slot + 0.5) - 0.5 for slot in range(slots)]
    edge: dict[str, Any] = {"color": MUTED, "linewidth": 1.5, "zorder": 1}
    for x in across[:drawn]:
        axes.plot([0, x], [0, 1], **edge)
        if virtual_nodes:
            axes.plot([x - gap / 4, x, x + gap / 4], [2, 1, 2], **edge)
            axes.plot(x, 1, **nobody, markersize=16)
            axes.plot(x - gap / 4, 2, **disc, markersize=17)
        axes.plot(x + gap / 4 * virtual_nodes, deep, **square, markersize=16)
    if branches > drawn:
        axes.plot([0, across[-1]], [0, 1], **edge | {"linestyle": (0, (3, 3))})
        more = f"{branches - drawn:,} more"
        axes.text(across[-1], 1.15, more, ha="center", va="top", color=MUTED)
    axes.plot(0, 0, **(nobody if branches and virtual_nodes else disc), markersize=22)
    if not branches:
        axes.text(0.05, 0, "the device alone: nobody is in its tree", va="center")
    parts = "neighbours"
    if virtual_nodes:
        parts = "branches, each with a leaf of the device and one of a neighbour"
    shape = "A root joins" if virtual_nodes else "The device is joined to"
    return _svg(figure, "The tree of a sample device", f"{shape} {branches:,} {parts}.")


def moderate(workload: Ints) -> tuple[int, int]:
    """Return the branches of a moderate tree that some device has, and how many devices have it.

    The size nearest to the median of devices that have a branch, but to 5 at most so that it can be
    drawn; of two as near, the smaller. Without any branch: 0, and all devices.
    """
    sizes, counts = np.unique(workload[workload > 0], return_counts=True)
    if not len(sizes):
        return 0, len(workload)
    wanted = min(float(np.median(workload[workload > 0])), _PREFERRED)
    nearest = int(np.argmin(np.abs(sizes - wanted)))
    return int(sizes[nearest]), int(counts[nearest])


def format_tick(number: float) -> str:
    """Return a number as people write it at an axis."""
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:,.4f}".rstrip("0").rstrip(".") if abs(number) < 1e9 else f"{number:.0e}"
    return text.replace("-", "−") if text != "-0" else "0"


def _canvas(
    title: str,
    subtitle: str,
    legend: Mapping[str, Mapping[str, Any]],
    inner: float,
    notes: Sequence[str] = (),
    *,
    width: float = WIDTH,
) -> tuple["Figure", "Axes"]:
    """Return an empty drawing with its heading, its legend and its notes.

    Args:
        legend: by name, the style of a line.
        inner: height of the axes with their ticks and titles.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    most = int(width / (_CHARACTER * _TEXT))
    heading = [(line, 15.0, "bold", INK) for line in textwrap.wrap(_plain(title), most - 6)]
    heading += [(line, _TEXT, "normal", MUTED) for line in textwrap.wrap(_plain(subtitle), most)]
    below = [line for note in notes for line in textwrap.wrap(_plain(note), most)]
    columns = 2 if all(_width(name) < width / 2 - 50 for name in legend) else 1
    top = 21.0 * len(heading) + 4
    left, bottom = (
        top + 20.0 * math.ceil(len(legend) / columns) + 4 * bool(legend),
        17.0 * len(below),
    )
    height = left + inner + bottom
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    figure.patch.set_visible(False)
    for number, (words, size, weight, colour) in enumerate(heading):
        y = 1 - (21.0 * number + 16) / height
        figure.text(0, y, words, size=size, weight=weight, color=colour)
    for number, words in enumerate(reversed(below)):
        figure.text(0, (17.0 * number + 4) / height, words, color=MUTED)
    if legend:
        shown = figure.legend(
            [Line2D([], [], **style) for style in legend.values()],
            ["-"] * len(legend),  # a name that begins with _ would be left out
            loc="upper left", bbox_to_anchor=(0, 1 - top / height), ncols=columns, frameon=False,
            borderpad=0, borderaxespad=0, handlelength=2.4, labelspacing=0.5, columnspacing=1.5,
        )  # fmt: skip
        for text, name in zip(shown.get_texts(), legend, strict=True):
            text.set_text(_cut(name, width / columns - 36))
    rect = (0, bottom / height, 1, inner / height)
    figure.set_layout_engine("constrained", rect=rect, w_pad=2 / 72, h_pad=2 / 72)
    axes = figure.subplots()
    axes.patch.set_visible(False)
    return figure, axes


def _line(number: int) -> dict[str, Any]:
    """Return the style of a series."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
        "marker": _SHAPES[number % len(_SHAPES)],
        "markersize": 7,
    }


def _write(axes: "Axes", x: float, y: float, words: str, **style: Any) -> None:
    """Write words in a row of the axes, legible on top of lines; they do not move the axes."""
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
    text = axes.text(x, y, _plain(words), transform=axes.get_yaxis_transform(), bbox=box, **style)
    text.set_in_layout(False)


def _finite(values: Values) -> Doubles:
    """Return the values as an array, NaN where there is none or no finite one."""
    known = np.array([math.nan if value is None else value for value in values], float)
    return np.where(np.isfinite(known), known, math.nan)


def _plain(words: str) -> str:
    """Return words in one line, without characters that XML cannot hold."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())


def _width(words: str) -> float:
    return _CHARACTER * _SMALL * len(words)


def _cut(words: str, room: float) -> str:
    """Return words that fit into the room."""
    words, most = _plain(words), int(room / (_CHARACTER * _SMALL))
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


def _svg(figure: "Figure", title: str, description: str) -> str:
    """Return a drawing as inline SVG, with a title and a description for those who do not see it.

    Ids are made from the contents, so that drawings of one page do not share them. A wide drawing
    has a least width, below which it is scrolled.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg")
    root = ET.fromstring(written.getvalue())  # noqa: S314
    width = figure.get_figwidth() * 72
    style = f"font: {_SMALL:g}px {_FONT}; fill: var(--ink, {INK}); stroke-linejoin: round"
    if width > WIDTH:
        style += f"; min-width: {0.8 * width:.0f}px; max-width: {1.15 * width:.0f}px"
    svg = ET.Element("svg", xmlns=_SVG[1:-1], viewBox=_rounded(root.attrib["viewBox"]), role="img")
    svg.set("style", style)
    ET.SubElement(svg, "title").text = _plain(title)
    ET.SubElement(svg, "desc").text = _plain(description)
    _copy(root, svg)
    text = ET.tostring(svg, "unicode")
    names = dict.fromkeys(re.findall(r'(?:href="|url\()#(\w+)', text))
    salt = hashlib.sha256(text.encode()).hexdigest()[:6]
    new = {name: f"c{salt}-{number}" for number, name in enumerate(names)}
    text = re.sub(r'(href="#|url\(#)(\w+)', lambda found: found[1] + new[found[2]], text)
    return re.sub(r' id="(\w+)"', lambda found: f' id="{new[found[1]]}"', text)


def _copy(source: ET.Element, target: ET.Element) -> None:
    """Copy what is drawn: no metadata, no style sheet, no idle groups, no id of a group."""
    for child in source:
        tag = child.tag.removeprefix(_SVG)
        if tag in ("metadata", "style"):
            continue
        kept = {
            "href" if name == _HREF else name: _restyled(value)
            if name == "style"
            else _rounded(value)
            for name, value in child.attrib.items()
            if not (name == "id" and tag == "g") and "rotate(-0 " not in value
        }
        if (tag == "g" and not kept) or (tag == "defs" and child[0].tag == f"{_SVG}style"):
            _copy(child, target)
            continue
        copied = ET.SubElement(target, tag, kept)
        copied.text = child.text if tag == "text" else None
        _copy(child, copied)


def _rounded(value: str) -> str:
    """Return an attribute whose numbers have at most two decimals."""
    return re.sub(
        r"-?\d+\.\d+",
        lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."),
        " ".join(value.split()),
    )


def _restyled(style: str) -> str:
    """Return a style whose colours are variables of the page, and whose font is the page's."""
    inherited = ("font-family", f"font-size: {_SMALL:g}px")
    parts = [part.strip() for part in style.split(";") if not part.strip().startswith(inherited)]
    style = _rounded("; ".join(parts))
    for colour, variable in _VARIABLES.items():
        style = style.replace(colour, f"var({variable}, {colour})")
    return style
