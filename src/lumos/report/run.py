"""The page of one run: everything it shows is in the run's folder."""

from pathlib import Path

from lumos.report.page import Page
from lumos.report.record import Record
from lumos.report.sections import (
    cost,
    messages,
    protection,
    rerun,
    scores,
    settings,
    training,
    trees,
)
from lumos.report.summary import subtitle, summary, title


def page_of(path: Path) -> Page:
    """The page of the run in a folder.

    Raises:
        InputError: it is no run folder, the run is not finished, or a file is damaged.
    """
    record = Record.open(path)
    parts = (scores, training, messages, protection, trees, cost, settings, rerun)
    return Page(
        title=title(record),
        subtitle=subtitle(record),
        summary=summary(record),
        sections=[part.section(record) for part in parts],
    )
