"""The page and its blocks. Whatever a block is given is text and is escaped; only figures are SVG.

The file holds everything: one style sheet, figures as inline SVG, no script, nothing to fetch. A
content security policy in its head says so to the browser.
"""

import re
import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import lumos
from lumos.errors import UsageError
from lumos.report.charts import MAX_CLASSES, confusion, dots, is_wide

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
        """True if it shares a row with others."""
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
        summary: paragraphs (text) and blocks that are read first.
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


# Blocks made from plain numbers: of one run, or of several runs together.

ClassRows = Sequence[Mapping[str, Any]]
"""[classes] of `class`, `devices`, `precision`, `recall` and `f1`, as `run.metrics` has them in
`test_per_class`."""

HOW_TO_READ = "Devices, and their share in the row; an empty cell is 0. The diagonal is right."
_MEASURES = {"precision": "precision", "recall": "recall", "f1": "F1"}


def per_class_table(rows: ClassRows, beside: Mapping[str, ClassRows], caption: str) -> Table:
    """Return precision, recall and F1 of each class in per cent, and F1 of others beside it.

    Args:
        rows: scores of the run.
        beside: by name, scores that are compared with it, as the local model and the control; the
            first has all measures, the others F1.
        caption: caption of the table. Of many classes it has the largest, and the caption says so.
    """
    largest = list(range(len(rows)))
    if len(rows) > MAX_CLASSES:
        caption += f" (the {MAX_CLASSES} largest of {len(rows):,})"
        largest = sorted(largest, key=lambda place: -int(rows[place]["devices"]))[:MAX_CLASSES]
    shown = [("", rows, list(_MEASURES))]
    for name, others in beside.items():
        shown.append((f"{name}: ", others, list(_MEASURES) if len(shown) == 1 else ["f1"]))
    columns = [name + _MEASURES[measure] for name, _, measures in shown for measure in measures]
    cells: list[list[str | int | None]] = [
        [
            str(rows[place]["class"]),
            int(rows[place]["devices"]),
            *(f"{100 * of[place][name]:.1f}" for _, of, measures in shown for name in measures),
        ]
        for place in largest
    ]
    return Table(["class", "devices", *columns], cells, caption)


def confusion_block(
    names: Sequence[str], counts: Sequence[Sequence[int]], title: str, caption: str = HOW_TO_READ
) -> Figure | Table:
    """Return a heat map; of more classes than can be drawn, a table of the largest confusions.

    Args:
        names: [classes] names of the classes.
        counts: [classes][classes]: row: true class, column: predicted class.
        title: title of the drawing or the table.
        caption: a sentence below the drawing.
    """
    if len(names) <= MAX_CLASSES:
        return Figure(confusion(names, counts, title), caption, wide=is_wide(names))
    rows: list[list[str | int | None]] = [
        [names[true], names[taken], count, f"{100 * count / sum(counts[true]):.0f} %"]
        for count, true, taken in largest_confusions(counts)[:MAX_CLASSES]
    ]
    right = sum(counts[number][number] for number in range(len(names)))
    about = f"{title}: the largest confusions among {len(names):,} classes ({right:,} are right)"
    return Table(["true class", "taken for", "devices", "share of the class"], rows, about)


def largest_confusions(counts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Return (devices, true class, predicted class) of all confusions, the largest first."""
    wrong = [
        (count, true, taken)
        for true, row in enumerate(counts)
        for taken, count in enumerate(row)
        if true != taken and count
    ]
    return sorted(wrong, key=lambda found: (-found[0], found[1], found[2]))


def seeds_figure(
    scores: Mapping[str, Sequence[float]],
    title: str,
    *,
    unit: str = "",
    digits: int = 2,
    caption: str = "",
    styles: Mapping[str, int] | None = None,
) -> Figure:
    """Draw the mean of each system, its standard deviation over seeds, and every seed by itself.

    Args:
        scores: by name of the system, a score for each seed; none where it could not be run.
        title: above the drawing.
        unit: behind every number, as "%".
        digits: decimals of the numbers.
        caption: a sentence more below the drawing.
        styles: by name of the system, the number of its colour and shape; by default its place.
    """
    means = [statistics.fmean(values) if values else None for values in scores.values()]
    spread = [statistics.stdev(values) if len(values) > 1 else None for values in scores.values()]
    most = max((len(values) for values in scores.values()), default=0)
    drawing = dots(
        [title],
        list(scores),
        [means],
        [spread],
        unit=unit,
        title=title,
        digits=digits,
        singles=[[values if len(values) > 1 else () for values in scores.values()]],
        styles=styles,
    )
    about = "One seed."
    if most > 1:
        about = (
            f"Means of {most} seeds; a stroke is one seed. ± is the standard deviation over seeds."
        )
    return Figure(drawing, f"{about} The axis does not begin at 0. {caption}".rstrip())
