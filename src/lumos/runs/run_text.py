"""A run as text: what `print(run)` shows, on one screen and without any private value."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lumos.runs.answer import promise
from lumos.training.outcome import CONTROL, MAIN, OWN

if TYPE_CHECKING:
    from lumos.runs.run import Run

ARMS = {MAIN: "this run", OWN: "own", CONTROL: "control"}
_SHARES = {"accuracy": "accuracy", "macro_f1": "macro-F1", "balanced_accuracy": "balanced accuracy"}
_LINKS = {"auc": "ROC-AUC", "average_precision": "average precision", "hits_at_50": "hits@50"}
SHOWN = {
    **{
        f"{part}_{name}": (f"{part} {words}", True)
        for name, words in _SHARES.items()
        for part in ("val", "test")
        if part == "test" or name == "accuracy"
    },
    **{
        f"{part}_{name}": (f"{part} {words}", False)
        for name, words in _LINKS.items()
        for part in ("val", "test")
        if part == "test" or name == "auc"
    },
}
"""By name of a score: its heading, and whether it is written in per cent."""


def headline(run: "Run") -> str:
    """What was run, in one line."""
    about, train = run.about, run.config.train
    name = about.graph.strip() or "a graph in memory"
    return (
        f"{train.task} on {name} ({about.devices:,} devices, {about.edges:,} edges), "
        f"profile {train.profile}, seed {about.seed}"
    )


def score_table(run: "Run") -> tuple[list[str], list[list[str]]]:
    """Headings and rows: an arm in each row, the scores that people report in the columns."""
    names = [name for name in SHOWN if name in run.metrics]
    rows = [
        [words, *(_written(run.scores[arm], name) for name in names)]
        for arm, words in ARMS.items()
        if arm in run.scores
    ]
    return ["", *(SHOWN[name][0] for name in names)], rows


def run_text(run: "Run") -> str:
    """All of it."""
    columns, rows = score_table(run)
    lines = [f"Run: {headline(run)}", *aligned(columns, rows)]
    lines += textwrap.wrap(
        f"promise: {promise(run)}", 88, initial_indent="  ", subsequent_indent="    "
    )
    if run.folder is not None:
        lines.append(f"  folder: {run.folder}")
    return "\n".join(lines)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """A table as lines of text: the first column flush left, all others flush right."""
    table = [columns, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    return [
        indent
        + "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _written(scores: Mapping[str, Any], name: str) -> str:
    if name not in scores:
        return "–"
    return f"{100 * scores[name]:.2f} %" if SHOWN[name][1] else f"{scores[name]:.4f}"
