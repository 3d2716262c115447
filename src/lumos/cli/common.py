"""What every command shares: its common options, its JSON, its table, its progress bar."""

import json as jsonlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every command understands."""

    json: Annotated[bool, Parameter(negative="")] = False
    """Print one JSON object on standard output, and nothing else there."""
    seed: int = 0
    """Run seed, of public coins, and in a simulation of the device secrets too."""
    shards: int = 1
    """Number of shards, which share nothing but the exchange; the result is the same."""
    data_dir: Annotated[Path | None, Parameter(env_var="LUMOS_DATA")] = None
    """Folder of the graphs (also LUMOS_DATA)."""


def say(text: str) -> None:
    """Write a line for people: to standard error, so that standard output stays parseable."""
    print(text, file=sys.stderr, flush=True)


def console() -> Console:
    """A console on standard output; plain text when it is not a terminal."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_json(result: Mapping[str, Any] | list[Any]) -> None:
    """Print the one JSON object of a command."""
    print(jsonlib.dumps(result, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress_bar(what: str) -> Iterator["Bar"]:
    """Show progress on standard error when it is a terminal; otherwise do nothing."""
    if not sys.stderr.isatty():
        yield Bar(None, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, note="")
        yield Bar(progress, task)


class Bar:
    """A progress bar, or its silent twin."""

    def __init__(self, progress: Progress | None, task: Any) -> None:
        self._progress = progress
        self._task = task

    def __call__(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report that `done` of `total` is finished."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total, note=note)
