"""A fragment of HTML for notebooks: complete in itself, without scripts, on light and dark themes.

Text has the colour of the notebook around it. Drawings are made for a light page: their ink becomes
that colour too, and what they leave white becomes transparent.
"""

from collections.abc import Sequence

from markupsafe import Markup, escape

_LIGHTER = {"#0072b2": "#2b8cc8", "#d55e00": "#e0701a", "#444444": "#808080"}
"""Colours of series that are too dark on a dark notebook, and what they become on any."""
_STYLE = """
.lumos { max-width: 60rem; line-height: 1.45; }
.lumos p { margin: .3em 0; }
.lumos table { border-collapse: collapse; margin: .5em 0; font-size: inherit; }
.lumos th, .lumos td { padding: .25em .8em .25em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid rgba(128, 128, 128, .35); background: transparent; }
.lumos .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lumos thead th { border-bottom: 2px solid rgba(128, 128, 128, .6); }
.lumos tbody th { font-weight: 500; }
.lumos .soft { opacity: .8; font-size: .92em; }
.lumos svg { display: block; width: 100%; max-width: 31rem; height: auto; }
.lumos svg text { font-family: inherit; }
.lumos svg [fill="#1a1a1a"], .lumos svg [fill="#555555"] { fill: currentColor; }
.lumos svg [stroke="#1a1a1a"], .lumos svg [stroke="#555555"] { stroke: currentColor; }
.lumos svg [stroke="#d9d9d9"] { stroke: currentColor; stroke-opacity: .2; }
.lumos svg [fill="#ffffff"] { fill: none; }
.lumos svg [stroke="#ffffff"] { stroke: none; }
""" + "".join(
    f'.lumos svg [fill="{dark}"] {{ fill: {light}; }}\n'
    f'.lumos svg [stroke="{dark}"] {{ stroke: {light}; }}\n'
    for dark, light in _LIGHTER.items()
)

Cell = str | int | float | None


def fragment(*parts: Markup) -> str:
    """The parts, with the style that they need."""
    style = Markup(f"<style>{_STYLE}</style>")  # noqa: S704
    return str(Markup('<div class="lumos">{}{}</div>').format(style, Markup("").join(parts)))


def title(kind: str, words: str) -> Markup:
    """What it is, in one line."""
    return Markup("<p><b>{}</b> {}</p>").format(kind, words)


def paragraph(words: str) -> Markup:
    """A line of text that matters less."""
    return Markup('<p class="soft">{}</p>').format(words)


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    """A table; the first cell of a row is its heading, and numbers are set flush right."""
    written = [[_written(cell) for cell in row] for row in rows]
    numeric = [
        all(cell == "–" or cell[:1].isdigit() or cell[:1] in "+−" for cell in column)
        for column in zip(*written, strict=True)
    ] or [False] * len(columns)
    head = Markup("").join(
        Markup("<th{}>{}</th>").format(_class(number), column)
        for number, column in zip(numeric, columns, strict=True)
    )
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(
                Markup("<{0}{1}>{2}</{0}>").format("td" if place else "th", _class(number), cell)
                for place, (number, cell) in enumerate(zip(numeric, row, strict=True))
            )
        )
        for row in written
    )
    return Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)


def drawing(svg: str, caption: str) -> Markup:
    """A figure of this package, which has escaped every name in it, and a sentence below."""
    return Markup("{}{}").format(Markup(svg), paragraph(caption.replace("`", "")))  # noqa: S704


def listed(sentences: Sequence[str]) -> Markup:
    """Sentences, one each line."""
    return Markup("").join(paragraph(sentence) for sentence in sentences)


def _class(numeric: bool) -> Markup:
    return Markup(' class="number"') if numeric else Markup("")


def _written(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(escape(cell).unescape())
