"""What every command shares: its common options, its JSON, its screen."""

import json as jsonlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from lumos.cli.option_groups import placed
from lumos.errors import UsageError

TYPED: ContextVar[list[str]] = ContextVar("typed")
"""The words of the command line, for a command that starts others like itself."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Options that every command understands."""

    seed: Annotated[int, placed("seed")] = 0
    """Run seed, of public coins, and in a simulation of the device secrets too."""
    shards: Annotated[int, placed("shards")] = 1
    """Number of shards, which share nothing but the exchange; the result is the same."""
    data_dir: Annotated[
        Path | None, placed("data_dir", env_var="LUMOS_DATA", show_env_var=False)
    ] = None
    """Folder of the graphs (also LUMOS_DATA)."""
    json: Annotated[bool, placed("json", negative="", show_default=False)] = False
    """Print one JSON object on standard output, and nothing else there."""
    verbose: Annotated[bool, placed("verbose", negative="", show_default=False)] = False
    """Print everything that is known, not the answer alone."""

    def refuse(self, *names: str, because: str) -> None:
        """Refuse common options that have no effect here.

        Args:
            names: of `seed` and `shards`.
            because: why, after a colon.

        Raises:
            UsageError: one of them was given.
        """
        for name in names:
            if getattr(self, name) != getattr(Common, name):
                raise UsageError(f"`{name}` has no meaning here: {because}; leave it out")


@contextmanager
def continued_by(hint: str | None) -> Iterator[None]:
    """Let Ctrl-C inside say how to go on; nothing where nothing was written."""
    try:
        yield
    except KeyboardInterrupt:
        if hint is None:
            raise
        raise KeyboardInterrupt(hint) from None


def say_runs(done: float, total: float | None, note: str) -> None:
    """Progress by whole runs: a line after each."""
    say(f"{done:g} of {total:g}: {note}")


def say(text: str) -> None:
    """Write a line for people: to standard error, so that standard output stays parseable."""
    print(text, file=sys.stderr, flush=True)


def console() -> Console:
    """A console on standard output that takes every text as it is: names may hold anything."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def print_json(result: Mapping[str, Any] | list[Any]) -> None:
    """Print the one JSON object of a command."""
    print(jsonlib.dumps(result, ensure_ascii=False, allow_nan=False))
