"""A run in a notebook: scores of all arms, what was learnt, the promise."""

from lumos.report.display.fragment import drawing, fragment, listed, paragraph, table, title
from lumos.report.sections.training import curve
from lumos.runs.run import Run
from lumos.runs.text import headline, promise, score_table


def show_run(run: Run) -> str:
    """HTML of a run."""
    parts = [title("Run", headline(run)), table(*score_table(run))]
    if run.control is None:
        parts.append(paragraph("No control was run: train(…, control=True) adds one."))
    if (figure := curve(run)) is not None:
        parts.append(drawing(figure.svg, figure.caption))
    parts += [
        paragraph(f"Promise: {promise(run)}".replace("`", "")),
        listed(run.model.cautions),
    ]
    if run.folder is not None:
        parts.append(paragraph(f"Folder: {run.folder}"))
    return fragment(*parts)
