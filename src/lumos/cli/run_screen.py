"""A run on the screen: the answer, the scores, the promise, one advice; the rest by `--verbose`."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from lumos.cli.common import console
from lumos.cli.wording import as_options

if TYPE_CHECKING:
    from lumos.runs.run import Run
    from lumos.training.metrics import Scores

CLASSIFY = {
    "validation": "val_accuracy",
    "test": "test_accuracy",
    "macro-F1": "test_macro_f1",
    "balanced": "test_balanced_accuracy",
}
LINK = {
    "validation": "val_auc",
    "test": "test_auc",
    "average precision": "test_average_precision",
    "hits@50": "test_hits_at_50",
}
"""Columns of the table, as far as a run has these scores."""


def show(run: "Run", out: Path | None, *, verbose: bool) -> None:
    """Print a run for people.

    Args:
        out: its folder, if it was written.
        verbose: print everything that is known of it too.
    """
    from lumos.runs.answer import advice, answer, promise, split_used

    screen = console()
    paragraph(screen, answer(run))
    screen.print()
    screen.print(score_table(run))
    screen.print()
    paragraph(screen, f"Promise: {promise(run)}" if run.promises else promise(run))
    if hint := advice(run):
        paragraph(screen, f"Advice: {hint}.")
    paragraph(screen, f"Split: {split_used(run)}.")
    if verbose:
        from lumos.cli.run_details import show_details

        show_details(run)
    if out is not None:
        screen.print(f"run folder: {out} (lumos predict {out}, lumos report {out})")
    elif not verbose:
        screen.print("(--verbose prints what it cost and who learns what; --out FOLDER keeps it)")


def score_table(run: "Run") -> Table:
    """The observer's scores of every arm."""
    texts, task = run.config.profile.texts(run.config), run.config.train.task
    columns = columns_of(task, run.metrics)
    table = Table(heading_of(task), box=None, header_style="")
    for name in columns:
        table.add_column(name, justify="right")
    arms: dict[str, Scores | None] = {
        "this run": run.metrics,
        texts.own: run.own,
        f"control: {texts.control}": run.control,
    }
    for name, scores in arms.items():
        if scores is not None:
            table.add_row(name, *(shown(scores[key], task) for key in columns.values()))
    return table


def heading_of(task: str) -> str:
    """What a table of scores shows, and that it is the observer's."""
    return "accuracy (observer), %" if task == "classify" else "ROC-AUC (observer)"


def columns_of(task: str, scores: Mapping[str, Any]) -> dict[str, str]:
    """By heading, the names of the scores that a table shows and that were measured."""
    known = CLASSIFY if task == "classify" else LINK
    return {name: key for name, key in known.items() if key in scores}


def shown(score: float, task: str) -> str:
    """A score as its table has it: in percent, or between 0 and 1 for links."""
    return f"{100 * score:.1f}" if task == "classify" else f"{score:.4f}"


def paragraph(screen: Console, text: str) -> None:
    """Print sentences of the library: settings as options, wrapped in a terminal."""
    text = as_options(text)
    width = min(screen.width, 100)
    screen.print(textwrap.fill(text, width, break_on_hyphens=False) if screen.is_terminal else text)
