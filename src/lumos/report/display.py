"""Results in a notebook: fragments of HTML that are complete in themselves, without scripts.

Text has the colour of the notebook around it, light or dark, and so has the ink of drawings; what
they leave white is transparent.
"""

from collections.abc import Sequence

from markupsafe import Markup, escape

from lumos.audit.table import AuditReport
from lumos.report.run_scores import curve
from lumos.runs.run import Run
from lumos.runs.text import guarantee_text, headline, score_table

_STYLE = """
.lumos { max-width: 60rem; line-height: 1.45; --ink: currentColor; --soft: currentColor;
  --rule: rgba(128, 128, 128, .3); --paper: transparent; --series-1: #2b8cc8;
  --series-2: #e0701a; --series-6: #808080; }
.lumos p { margin: .3em 0; }
.lumos table { border-collapse: collapse; margin: .5em 0; font-size: inherit; }
.lumos th, .lumos td { padding: .25em .8em .25em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid rgba(128, 128, 128, .35); background: transparent; }
.lumos .number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lumos thead th { border-bottom: 2px solid rgba(128, 128, 128, .6); }
.lumos tbody th { font-weight: 500; }
.lumos .soft { opacity: .8; font-size: .92em; }
.lumos svg { display: block; width: 100%; max-width: 31rem; height: auto; }
"""

Cell = str | int | float | None


def fragment(*parts: Markup) -> str:
    """Return the parts, with the style that they need."""
    style = Markup(f"<style>{_STYLE}</style>")  # noqa: S704
    return str(Markup('<div class="lumos">{}{}</div>').format(style, Markup("").join(parts)))


def title(kind: str, words: str) -> Markup:
    """Return what a result is, in one line."""
    return Markup("<p><b>{}</b> {}</p>").format(kind, words)


def paragraph(words: str) -> Markup:
    """Return a line of text that matters less."""
    return Markup('<p class="soft">{}</p>').format(words)


def warned(words: str) -> Markup:
    """Return a warning, which must not be overlooked."""
    return Markup("<p><b>Warning:</b> {}.</p>").format(words.replace("`", ""))


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    """Return a table; the first cell of a row is its heading, and numbers are set flush right."""
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
    """Return a figure of this package, which has escaped every name in it, and its caption."""
    return Markup("{}{}").format(Markup(svg), paragraph(caption.replace("`", "")))  # noqa: S704


def listed(sentences: Sequence[str]) -> Markup:
    """Return sentences, one each line."""
    return Markup("").join(paragraph(sentence) for sentence in sentences)


def _class(numeric: bool) -> Markup:
    return Markup(' class="number"') if numeric else Markup("")


def _written(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(escape(cell).unescape())


def show_run(run: Run) -> str:
    """Return a run: scores of all variants, what was learnt, the guarantee."""
    parts = [title("Run", headline(run)), table(*score_table(run))]
    if run.control is None:
        parts.append(paragraph("No control was run: train(…, control=True) adds one."))
    if (figure := curve(run)) is not None:
        parts.append(drawing(figure.svg, figure.caption))
    parts += [
        paragraph(guarantee_text(run).replace("`", "")),
        *(warned(warning) for warning in run.warnings),
    ]
    if run.folder is not None:
        parts.append(paragraph(f"Folder: {run.folder}"))
    return fragment(*parts)


def show_audit(report: AuditReport) -> str:
    """Return an audit."""
    rows = [
        [row.adversary, row.about, *report.figures(row), report.verdict(row)] for row in report.rows
    ]
    columns = ["adversary", "target", "measured", "interval", "without these messages", "bound"]
    columns.append("verdict")
    name = report.graph.strip() or "a graph in memory"
    words = (
        f"{len(report.claimed)} of {len(report.rows)} rows have a bound that is claimed; "
        f"{len(report.exceeded)} exceed it. {report.power} Attacks refute a claim or fail to; they "
        "prove none."
    )
    head = title("Audit", f"of {name}, profile {report.profile}, seed {report.seed}")
    return fragment(head, paragraph(words), table(columns, rows))
