"""The `lumos` command: dispatch, help, and one clear line for every mistake."""

import os
import re
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclopts import App, CycloptsError
from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

import lumos
from lumos.cli.common import RUNS, TYPED, as_options, python_only, rank, short_text
from lumos.errors import LumosError
from lumos.ranks.world import end_at_once, is_rank

HELP_ALL = "--help-all"
_WIDEST = 100
_NAMES = 22
"""Columns for the name of an option."""


@dataclass(frozen=True)
class HelpScreen:
    """Prints the help of one command; a `cyclopts` help formatter."""

    command: str
    """As it was typed; empty for `lumos --help`."""
    everything: bool
    """True if `--help-all` asked for all options and full texts."""

    show_metavar: ClassVar[bool] = False

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one group of options, or the commands."""
        if panel.format == "command":
            shown = [
                (
                    ", ".join([*entry.positive_names, *entry.positive_shorts]),
                    _text(entry.description),
                )
                for entry in panel.entries
            ]
            if self.command:
                shown = [(name, text) for name, text in shown if not name.startswith("-")]
        else:
            entries = sorted(panel.entries, key=lambda entry: rank(_setting(entry)))
            shown = [(self._names(entry), self._about(entry)) for entry in entries]
        shown = [(name, text) for name, text in shown if text]
        if not shown:
            return
        console.print(Text(f"{panel.title}:", style="bold"))
        column = 12 if panel.format == "command" else _NAMES
        for name, text in shown:
            _print(console, _row(name, text, column, _width(console)))
        if self.everything:
            console.print()

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line, and where the rest is."""
        line = _text(usage).replace("[ARGS]", "").strip()
        _print(console, line if line.startswith("Usage:") else f"Usage: {line}")
        if "OPTIONS" in line and not self.everything:
            _print(console, f"{' ' * 7}lumos {self.command} {HELP_ALL}   all options, in full")
        console.print()

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:
        """Print what the command does: all of it, or the first sentence."""
        paragraphs = _text(text).strip().split("\n\n")
        if self.command and not self.everything:
            paragraphs = paragraphs[:1]
        for paragraph in paragraphs:
            kept = paragraph.startswith("lumos ")  # examples keep their lines
            filled = textwrap.fill(" ".join(paragraph.split()), _width(console))
            words = textwrap.indent(paragraph, "  ") if kept else filled
            _print(console, words)
            console.print()

    def _names(self, entry: HelpEntry) -> str:
        names = [entry.positional_label or "", *entry.positive_names, *entry.positive_shorts]
        if self.everything:
            names += entry.negative_names
        return " ".join(name for name in names if name)

    def _about(self, entry: HelpEntry) -> str:
        """One line, or everything that is known; empty where `--help` leaves an option out."""
        default = "" if entry.default is None else str(entry.default)
        if not self.everything:
            text = short_text(self.command, _setting(entry))
            both = f"{text} [{default}]" if default else text
            return both if text and len(both) <= 78 - _NAMES else text
        parts = [" ".join(_text(entry.description).split()) or "–"]
        parts += [f"[choices: {', '.join(entry.choices)}]"] if entry.choices else []
        parts += [f"[default: {default}]"] if default else []
        parts += ["[required]"] if entry.required else []
        return " ".join(parts)


def _setting(entry: HelpEntry) -> str:
    """Name of an option as Python has it."""
    name = entry.positive_names[0] if entry.positive_names else entry.positional_label or ""
    return name.lstrip("-").replace("-", "_").lower()


def _text(content: Any) -> str:
    """Plain text of what cyclopts made of a text."""
    content = getattr(content, "primary_renderable", content)
    return str(getattr(content, "plain", content or ""))


def _row(name: str, text: str, column: int, width: int) -> str:
    """An option and its text, beside each other where the name is short enough."""
    indent = " " * (column + 2)
    first = f"  {name:{column}}" if len(name) < column else f"  {name}\n{indent}"
    lines = textwrap.wrap(text, width - len(indent), break_on_hyphens=False)
    return first + f"\n{indent}".join(lines)


def _width(console: Console) -> int:
    return min(console.width, _WIDEST)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the number of the signal."""

app = App(
    name="lumos",
    help="""Federated graph learning where every device is one vertex.

  lumos train demo                       a first run, in seconds
  lumos train demo --out runs/demo       the same, saved in a folder
  lumos report runs/demo                 an HTML page about that run
  lumos train demo --profile paper       the paper's design
  lumos train --help                     the common options""",
    help_format="plaintext",
    version=lumos.__version__,
    version_format="plaintext",
    suppress_keyboard_interrupt=False,
)
_COMMANDS = {
    "train": "Train a model across devices without pooling their data.",
    "predict": "Predict with a trained model.",
    "report": "Write an HTML page about a run.",
    "evaluate": "Compare Lumos with other systems on one graph, over several seeds.",
    "baseline": "Train one system that Lumos is compared with.",
    "audit": "Attack a run and compare the result with the guarantees.",
    "budget": "Print how much information a randomized label keeps.",
    "split": "Write a graph in parts, for several processes or devices.",
    "pki": "Issue certificates and configure NATS for a deployment.",
    "up": "Train on this machine with one process per device.",
    "device": "Run one device of a deployment.",
    "coordinator": "Run the coordinator of a deployment.",
    "trees": "Assign every edge to one of its two devices.",
    "data": "List, fetch and check graphs.",
}
"""In the order of `lumos --help`."""
_PLACES = {
    "report": "predict:report",
    "baseline": "evaluate:baseline",
    "split": "data:split",
    "pki": "pki:app",
    "device": "devices:device",
    "coordinator": "devices:coordinator",
    "data": "data:app",
}
"""Module and function of the commands whose module has another name, or that have subcommands."""
for _place, (_command, _help) in enumerate(_COMMANDS.items()):
    _function = _PLACES.get(_command, f"{_command}:{_command}")
    app.command(f"lumos.cli.{_function}", name=_command, help=_help, sort_key=_place)


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0: done, 1: failed, 2: bad usage or input, 130: interrupted."""
    status = run(arguments)
    if status and is_rank():
        end_at_once(status)
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    TYPED.set(words)
    try:
        _execute(words)
    except CycloptsError as error:
        if name := _python_setting(words):
            option = "--" + name.replace("_", "-")
            return _fail(f"lumos {words[0]} has no option {option}; use lumos.train({name}=…)", 2)
        return _fail(f"{_missing(' '.join(str(error).split()))} Type: {_help_for(words)}", 2)
    except LumosError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt as interrupt:  # its argument, if any, says how to go on
        return _fail("; ".join(["interrupted", *map(str, interrupt.args)]), INTERRUPTED)
    except BrokenPipeError:
        # The reader went away (`lumos … | head`): nothing to report, and nowhere to report it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    return 0


def _missing(line: str) -> str:
    """Return a message of cyclopts, with its words for a missing argument made plain."""
    return re.sub(
        r'^Command ".*" parameter (\S+) requires an argument\.',
        lambda found: found[1] + (" needs a value." if found[1][0] == "-" else " is missing."),
        line,
    )


def _help_for(words: list[str]) -> str:
    """Return the help of the command that was typed; of all of them if there is none such."""
    chain, _, _ = app.parse_commands(words)
    return " ".join(["lumos", *chain, "--help"])


def _python_setting(words: list[str]) -> str | None:
    """Return the first setting among the options of a run that only Python has."""
    if words[:1] not in RUNS:
        return None
    typed = (word.partition("=")[0] for word in words if word.startswith("--"))
    names = (option[2:].removeprefix("no-").replace("-", "_") for option in typed)
    return next((name for name in names if name in python_only()), None)


def _execute(words: list[str]) -> None:
    everything = HELP_ALL in words
    words = ["--help" if word == HELP_ALL else word for word in words]
    if {"--help", "-h"} & {*words}:
        chain, _, _ = app.parse_commands(words)
        command = " ".join(word for word in chain if not word.startswith("-"))
        app.help_formatter = HelpScreen(command, everything)
    elif not words:
        app.help_formatter = HelpScreen("", everything)
    app(words, exit_on_error=False, print_error=False, result_action="return_value")


def _fail(line: str, status: int) -> int:
    print(f"lumos: {as_options(line)}", file=sys.stderr)
    return status
