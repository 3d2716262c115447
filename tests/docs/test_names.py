"""Names of modules, objects and options that the documentation mentions exist."""

import re
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_links import ROOT, markdown_pages

from lumos.cli.main import app

PAGES = [name for name in markdown_pages() if name != "CHANGELOG.md"]
"""The changelog has names of the past."""
DOTTED = re.compile(r"(?<![\w./-])lumos(?:\.\w+)+")
ENTRY_POINTS = re.compile(r"lumos\.(balancer|encoder|system|profile|transport|attack)")
"""Groups of entry points, which are no modules."""
FILE = re.compile(r"lumos\.\w*(?:json|toml|service|html)")
COMMAND = re.compile(r"(?:`|^(?:\w*\$|RUN|CMD) )lumos [^`\n]*", re.MULTILINE)
ALONE = re.compile(r"`(--[a-z][^`\n]*)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, an object of one, or a field of a class."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if is_dataclass(found) and part in {field.name for field in fields(found)}:
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@cache
def options() -> frozenset[str]:
    """Return the options of all commands, and of the programs outside the wheel."""
    texts = [app.generate_docs(output_format="markdown", include_hidden=True)]
    for folder in ("benchmarks", "reproduce"):
        texts += [path.read_text("utf-8") for path in (ROOT / folder).rglob("*.py")]
    return frozenset(OPTION.findall("\n".join(texts))) | {"--help", "--help-all"}


def unknown_names(text: str) -> list[str]:
    """Return the dotted names in a text that do not exist."""
    names = set(DOTTED.findall(text))
    return sorted(
        name
        for name in names
        if not ENTRY_POINTS.fullmatch(name) and not FILE.fullmatch(name) and not exists(name)
    )


def unknown_options(text: str) -> list[str]:
    """Return the options in a text's commands, or alone in a code span, that do not exist."""
    spans = COMMAND.findall(text) + ALONE.findall(text)
    return sorted({option for span in spans for option in OPTION.findall(span)} - options())


@pytest.mark.parametrize("page", PAGES)
def test_every_dotted_name_exists(page: str) -> None:
    assert unknown_names(Path(ROOT, page).read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_option_exists(page: str) -> None:
    assert unknown_options(Path(ROOT, page).read_text("utf-8")) == []


def test_the_tests_would_notice() -> None:
    assert unknown_names("`lumos.train`, `lumos.trian`, `lumos.runs.loop.Loop`") == [
        "lumos.runs.loop.Loop",
        "lumos.trian",
    ]
    assert unknown_options("`--epsilon 2 --epsilno 3`\n$ lumos train demo --sed 1") == [
        "--epsilno",
        "--sed",
    ]
