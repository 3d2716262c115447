"""The page of one run, made from a `lumos.Run` alone."""

from pathlib import Path

from lumos.report.page import Page
from lumos.report.sections import (
    audit,
    classes,
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
from lumos.runs.run import Run

_SECTIONS = (
    scores,
    classes,
    training,
    messages,
    protection,
    audit,
    trees,
    cost,
    settings,
    rerun,
)


def write_page(run: Run, path: Path) -> Path:
    """Write the page of a run to a file, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    return page_of(run).write(path)


def page_of(run: Run) -> Page:
    """The page of a run; without trees, classes or an audit it has no section of them."""
    has = {
        trees: run.config.profile.texts(run.config).trees is not None,
        audit: audit.has_audit(run),
        classes: classes.has_classes(run),
    }
    return Page(
        title=title(run),
        subtitle=subtitle(run),
        summary=summary(run),
        sections=[module.section(run) for module in _SECTIONS if has.get(module, True)],
    )
