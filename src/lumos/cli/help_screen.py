"""The help of a command: a first screen that fits a terminal, and everything with `--help-all`."""

import textwrap
from dataclasses import dataclass
from typing import Any, ClassVar

from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

from lumos.cli.option_groups import rank, short_text

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
    """Whether `--help-all` asked for all options and full texts."""

    show_metavar: ClassVar[bool] = False

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one group of options, or the commands."""
        if panel.format == "command":
            shown = [(_name(entry), _text(entry.description)) for entry in panel.entries]
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


def _name(entry: HelpEntry) -> str:
    return ", ".join([*entry.positive_names, *entry.positive_shorts])


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
