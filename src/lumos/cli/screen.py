"""A run on the screen: answer, scores, guarantee, one advice; the rest is on its page."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lumos.cli.common import (
    Common,
    as_options,
    console,
    continued_by,
    print_json,
    say_runs,
)
from lumos.graph import Graph
from lumos.training.config import Config
from lumos.training.given_split import settled
from lumos.training.guarantees import cells_of

if TYPE_CHECKING:
    from lumos.evaluation.evaluate import SeededRuns
    from lumos.evaluation.result import MeanScore
    from lumos.runs.run import Run

TITLE_WIDTH = 15
"""Columns before the lines of a guarantee."""


def show(run: "Run", out: Path | None) -> None:
    """Print a run for people.

    Args:
        out: its folder, if it was written.
    """
    from lumos.runs.text import advice, answer, guarantee, score_table, split_used

    screen = console()
    paragraph(screen, answer(run))
    screen.print()
    screen.print(table_of(*score_table(run)))
    screen.print()
    for title, text in guarantee(run):
        paragraph(screen, text, title)
    if hint := advice(run):
        paragraph(screen, f"Advice: {hint}.")
    paragraph(screen, f"Split: {split_used(run)}.")
    if out is not None:
        screen.print(f"run folder: {out} (lumos predict {out}, lumos report {out})")
    else:
        screen.print("(--out FOLDER keeps it; lumos report shows what it cost and who learns what)")


def show_guarantees(result: Mapping[str, Any]) -> None:
    """Print what a run of real devices guarantees, in words and as a table.

    Args:
        result: of the coordinator.
    """
    screen = console()
    if not result.get("guarantees"):
        return
    screen.print()
    for title, text in result["guarantee"]:
        paragraph(screen, text, title)
    cells = {row["about"]: cells_of(row) for row in result["guarantees"]}
    rows = [[about, *found.values()] for about, found in cells.items()]
    screen.print()
    screen.print(table_of(["", *next(iter(cells.values()))], rows))
    screen.print()


WORDY = 40
"""Letters of a cell that is read as text, and not as a number."""


def table_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table of numbers, or of texts, with names in its first column."""
    table = Table(columns[0], box=None, header_style="")
    wordy = any(len(cell) > WORDY for row in rows for cell in row[1:])
    for name in columns[1:]:
        table.add_column(name, justify="left" if wordy else "right")
    for row in rows:
        table.add_row(*row)
    return table


def paragraph(screen: Console, text: str, title: str = "") -> None:
    """Print sentences of the library: settings as options, wrapped in a terminal.

    Args:
        title: stands before the text, which is then indented.
    """
    first = f"{title:<{TITLE_WIDTH}}" if title else ""
    text = first + as_options(text)
    if screen.is_terminal:
        width, later = min(screen.width, 100), " " * len(first)
        text = textwrap.fill(text, width, subsequent_indent=later, break_on_hyphens=False)
    screen.print(text)


# `lumos train --seeds`: several runs, their means, and paired differences of their variants.


def several_seeds(
    graph: Graph,
    config: Config,
    seeds: int,
    shards: int,
    source: Mapping[str, Any],
    split: str | None,
    out: Path | None,
    resume: bool,
    common: Common,
) -> None:
    """Train with each seed and print the means."""
    from lumos.evaluation.evaluate import train_seeds

    again = None if out is None else f"the same command with --resume continues in {out}"
    with continued_by(lambda: again):
        found = train_seeds(
            graph,
            config,
            seeds=range(common.seed, common.seed + seeds),
            shards=shards,
            source=source,
            split=settled(split),
            out=out,
            resume=resume,
            progress=say_runs,
        )
    if common.json:
        print_json(found.summary())
    else:
        show_seeds(found, config, out)


def show_seeds(found: "SeededRuns", config: Config, out: Path | None) -> None:
    """Print the means over seeds."""
    from lumos.evaluation.page import NAMES, SHORT, SIDELINES
    from lumos.training.trainer import CONTROL, MAIN, OWN

    screen, first = console(), found.first
    seeds = sorted(found.results)
    screen.print(
        Text(
            f"{first['graph']}: {first['devices']:,} devices, {first['edges']:,} edges · "
            f"{first['task']} · profile {first['profile']} · {len(seeds)} seeds ({seeds[0]} to "
            f"{seeds[-1]})"
        )
    )
    metrics = [name for name in found.metrics if name in NAMES and name not in SIDELINES]
    percent = first["task"] == "classify"
    table = Table("", box=None)
    for name in metrics:
        heading = {**NAMES, **SHORT}[name]
        table.add_column(f"{heading} %" if percent else heading, justify="right")
    for variant in found.variants:
        table.add_row(variant, *(_written(found.mean(variant, name), percent) for name in metrics))
    for variant in found.variants[1:]:
        cells = (
            _written(found.difference(variant, name), percent, signed=True) for name in metrics
        )
        table.add_row(f"{MAIN} − {variant}", *cells)
    screen.print()
    screen.print(table)
    screen.print()
    screen.print("± is the standard deviation over seeds.")
    if found.variants[1:]:
        errors = ", ".join(
            f"{_error(found.difference(variant, metrics[0]), percent)} ({MAIN} − {variant})"
            for variant in found.variants[1:]
        )
        screen.print(f"Differences are paired by seed; standard error of the first: {errors}.")
    texts = config.profile.texts(config)
    names = {OWN: texts.own, CONTROL: texts.control}
    for variant in found.variants[1:]:
        screen.print(Text(f"{variant}: {names[variant]}"))
    if out is not None:
        screen.print(Text(f"run folders: {out}/seed-{seeds[0]} … seed-{seeds[-1]}"))


def _error(score: "MeanScore", percent: bool) -> str:
    if score.se is None:
        return "unknown"
    return f"{100 * score.se:.2f}" if percent else f"{score.se:.4f}"


def _written(score: "MeanScore", percent: bool, *, signed: bool = False) -> str:
    if score.mean is None:
        return "none"
    factor, digits = (100.0, 2) if percent else (1.0, 4)
    sign = "+" if signed else ""
    text = f"{factor * score.mean:{sign}.{digits}f}"
    return text if score.sd is None else f"{text} ± {factor * score.sd:.{digits}f}"
