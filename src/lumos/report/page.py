"""The page and its blocks. Whatever a block is given is text and is escaped; only figures are SVG.

The file holds everything: one style sheet, figures as inline SVG, no script, nothing to fetch. A
content security policy in its head says so to the browser.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import lumos
from lumos.errors import UsageError

_NUMBER = re.compile(r"[-+−–]?[\d,.]*\d(\s?±\s?[\d,.]+)?(\s?(%|MB|s|ms|points?))?|–|")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text, separated by empty lines; words in `backticks` are code."""

    text: str

    kind, beside = "text", False

    @property
    def paragraphs(self) -> list[str]:
        """One string for each paragraph."""
        return [" ".join(part.split()) for part in self.text.split("\n\n") if part.strip()]


@dataclass(frozen=True)
class Code:
    """Something to type or to copy, kept as it is."""

    text: str
    caption: str = ""

    kind, beside = "code", False


@dataclass(frozen=True)
class Fact:
    """One number that matters, what it is, and what to know about it."""

    value: str
    name: str
    note: str = ""
    strong: bool = False
    """The number that the page is about."""


@dataclass(frozen=True)
class Facts:
    """A row of numbers, large enough to be read first."""

    facts: Sequence[Fact]

    kind, beside = "facts", False


@dataclass(frozen=True)
class Table:
    """A table. The first cell of a row is its heading.

    Args:
        columns: headings.
        rows: cells as they are to be shown; None is shown as –. Columns of numbers are set flush
            right.
        caption: what the table shows; never empty.
        beside: shares a row with figures where there is room.
        stacked: on a narrow screen every row becomes a block of "heading: cell" lines. For tables
            with words in them; a table of numbers scrolls sideways instead.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | None]]
    caption: str
    stacked: bool = False
    beside: bool = False

    kind = "table"

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise UsageError(f"table {self.caption!r}: rows must have {len(self.columns)} cells")

    @property
    def cells(self) -> list[list[str]]:
        """The rows as text."""
        return [[_cell_text(cell) for cell in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """[columns] whether a column holds numbers only."""
        columns = zip(*self.cells, strict=True) if self.rows else ((),) * len(self.columns)
        return [all(_NUMBER.fullmatch(cell) for cell in column) for column in columns]


@dataclass(frozen=True)
class Figure:
    """A drawing made by this package, and the sentence below it.

    Args:
        svg: an inline SVG with a title and a description, as `bars`, `lines` … return it.
        caption: one or two sentences; words in `backticks` are code.
        wide: takes the whole width; others share a row where there is room.
    """

    svg: str
    caption: str
    wide: bool = False

    kind = "figure"

    @property
    def beside(self) -> bool:
        """Whether it shares a row with others."""
        return not self.wide

    @property
    def markup(self) -> Markup:
        """The SVG, not escaped: this package drew it and escaped every name in it."""
        return Markup(self.svg)  # noqa: S704


Block = Text | Code | Facts | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """Name of the place in the page, made from the title."""
        plain = unicodedata.normalize("NFKD", self.title).lower()
        return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "section"


@dataclass(frozen=True)
class Page:
    """A page: title, summary in plain words, sections.

    Args:
        title: heading of the page.
        summary: paragraphs (text) and blocks that a stranger reads first.
        sections: the rest, in order; the page lists their titles at its top.
        subtitle: one line below the title.
    """

    title: str
    summary: Sequence[str | Block]
    sections: Sequence[Section] = ()
    subtitle: str = ""

    def html(self) -> str:
        """The whole page as text. The same page gives the same text."""
        anchors = [section.anchor for section in self.sections]
        if len(set(anchors)) < len(anchors):
            raise UsageError("report: two sections have the same title")
        return _TEMPLATES.get_template("page.html").render(
            page=self,
            summary=[Text(part) if isinstance(part, str) else part for part in self.summary],
            version=lumos.__version__,
        )

    def write(self, path: Path) -> Path:
        """Write the page to a file, in folders that are made for it, and return its path."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.html(), "utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
        return path


def _cell_text(cell: str | int | None) -> str:
    if cell is None:
        return "–"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _inline(text: str) -> Markup:
    """Text with `code` between backticks; options, as --seed, are code too."""
    parts = [str(escape(part)) for part in text.split("`")]
    parts[::2] = [_OPTION.sub(r'<code class="option">\g<0></code>', part) for part in parts[::2]]
    if len(parts) % 2 == 0:  # an odd backtick is a backtick
        parts[-2:] = ["`".join(parts[-2:])]
    for place in range(1, len(parts), 2):
        parts[place] = f"<code>{parts[place]}</code>"
    return Markup("".join(parts))  # noqa: S704


_TEMPLATES = Environment(
    loader=PackageLoader("lumos.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters["inline"] = _inline
