"""The files of a run, and its page as a tree of elements."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from tests.report.page_reading import Node, read, tables

import lumos
from lumos.report.run_page import page_of


def result_of(run: Path) -> dict[str, Any]:
    """What `result.json` holds."""
    result: dict[str, Any] = json.loads((run / "result.json").read_text("utf-8"))
    return result


@cache
def html(run: Path) -> str:
    """The page of a run folder as text; folders of one test session do not change."""
    return page_of(lumos.load_run(run)).html()


@cache
def page(run: Path) -> Node:
    """The page of a run folder."""
    return read(html(run))


def table(run: Path, caption: str) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the one table whose caption holds these words."""
    (content,) = [part for name, part in tables(page(run)).items() if caption in name]
    return content


def changed(run: Path, to: Path, file: str = "result.json", **values: Any) -> Path:
    """A copy of a run's folder with other values in one of its files."""
    shutil.copytree(run, to)
    (to / file).write_text(json.dumps(json.loads((run / file).read_text("utf-8")) | values))
    return to
