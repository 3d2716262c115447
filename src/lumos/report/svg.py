"""An SVG written element by element: text stays text, every name is escaped, nothing is random.

Drawings are 520 units wide with text of 14, so that they can be read on a telephone 390 pixels wide
and are not too large on a desk.
"""

from collections.abc import Iterable
from html import escape

WIDTH = 520.0
TEXT = 14.0
"""Default size of text."""
INK, MUTED, GRID = "#1a1a1a", "#555555", "#d9d9d9"
"""Of text and whiskers, of text that matters less, and of grid lines."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#444444")
"""Okabe and Ito's palette, in the order of contrast on white, its orange darkened and its sky blue
left out. Colour never stands alone: dashes, shapes or words say the same."""
_LEAST = 0.72
"""Least scale of a wide drawing: text of 13 has more than 9 pixels."""
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2", "1 4")
"""One more than colours: no two of many series have both in common."""


class Canvas:
    """An SVG of fixed width and a height that is known at the end."""

    def __init__(self) -> None:
        self._elements: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "start",
        size: float = TEXT,
        bold: bool = False,
        fill: str = INK,
        halo: bool = False,
    ) -> None:
        """Words on a baseline; anchor: start, middle or end; `halo`: legible on top of lines."""
        weight = ' font-weight="600"' if bold else ""
        if halo:
            weight += ' paint-order="stroke" stroke="#ffffff" stroke-width="4"'
        self._elements.append(
            f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}" font-size="{_px(size)}"'
            f' fill="{fill}"{weight}>{escape(words)}</text>'
        )

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        stroke: str,
        *,
        width: float = 1,
        dash: str = "",
    ) -> None:
        """A straight line."""
        self._elements.append(
            f'<line x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}" stroke="{stroke}"'
            f' stroke-width="{_px(width)}"{_dashed(dash)}/>'
        )

    def path(
        self,
        points: Iterable[tuple[float, float]],
        *,
        stroke: str = "none",
        fill: str = "none",
        width: float = 2,
        dash: str = "",
        opacity: float = 1,
        step: bool = False,
    ) -> None:
        """A line through points; `step`: level up to the next point, then up or down."""
        parts: list[str] = []
        before: tuple[str, str] | None = None
        for x, y in points:
            here = (_px(x), _px(y))
            if before is None:
                parts.append(f"M{here[0]} {here[1]}")
            elif step:
                parts.append(f"H{here[0]}" + (f"V{here[1]}" if here[1] != before[1] else ""))
            elif here != before:
                parts.append(f"L{here[0]} {here[1]}")
            before = here
        faint = f' opacity="{_px(opacity)}"' if opacity < 1 else ""
        self._elements.append(
            f'<path d="{"".join(parts)}" fill="{fill}" stroke="{stroke}"'
            f' stroke-width="{_px(width)}" stroke-linejoin="round"{_dashed(dash)}{faint}/>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        stroke: str = "none",
        opacity: float | None = None,
    ) -> None:
        """A rectangle; `opacity`: of its filling, so that words on it stay legible."""
        shade = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
        self._elements.append(
            f'<rect x="{_px(x)}" y="{_px(y)}" width="{_px(width)}" height="{_px(height)}" rx="2"'
            f' fill="{fill}" stroke="{stroke}" stroke-width="1.5"{shade}/>'
        )

    def circle(
        self, x: float, y: float, radius: float, fill: str, *, stroke: str = "none", dash: str = ""
    ) -> None:
        """A disc."""
        self._elements.append(
            f'<circle cx="{_px(x)}" cy="{_px(y)}" r="{_px(radius)}" fill="{fill}" stroke="{stroke}"'
            f' stroke-width="1.8"{_dashed(dash)}/>'
        )

    def diamond(self, x: float, y: float, stroke: str = INK, size: float = 6.5) -> None:
        """A reference value, for example the paper's: an open diamond."""
        corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size), (x - size, y)]
        self.path(corners, stroke=stroke, fill="#ffffff", width=2)

    def shape(self, x: float, y: float, number: int, fill: str, size: float = 5) -> None:
        """The shape of a series: disc, square, triangle, upside-down triangle, and again."""
        if number % 4 == 0:
            self.circle(x, y, size, fill)
        elif number % 4 == 1:
            self.box(x - size + 0.5, y - size + 0.5, 2 * size - 1, 2 * size - 1, fill)
        else:
            up = -size if number % 4 == 2 else size
            self.path([(x - size, y - up), (x + size, y - up), (x, y + up)], fill=fill, width=0)

    def svg(self, title: str, description: str, height: float, width: float = WIDTH) -> str:
        """The finished drawing, with a title and a description for those who do not see it.

        Args:
            width: a wider one is for a `Figure` that is `wide`: it scrolls where it would become
                too small to be read.
        """
        sized = ""
        if width > WIDTH:
            sized = f' style="min-width: {_px(_LEAST * width)}px; max-width: {_px(width)}px"'
        return (
            f'<svg viewBox="0 0 {_px(width)} {_px(height)}" role="img"{sized}'
            f' xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
            f"<desc>{escape(description)}</desc>{''.join(self._elements)}</svg>"
        )


def text_width(words: str, size: float = TEXT) -> float:
    """Estimated width of words; generous, because no font can be measured here."""
    minus_signs = words.count("−")  # half as wide again as a digit
    return 0.57 * size * (len(words) + 0.5 * minus_signs)


def _px(number: float) -> str:
    """A length with at most one decimal."""
    return f"{round(number, 1) + 0.0:.1f}".removesuffix(".0")  # + 0.0: no minus before a zero


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""
