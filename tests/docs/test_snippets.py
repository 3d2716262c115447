"""Every command and every snippet of README, tutorial and how-to pages runs as it stands there."""

import os
import re
import shlex
import warnings
from pathlib import Path

import pytest
from tests.docs.snippets import Snippet, commands, matches, printed, snippets

from lumos.cli.main import run as lumos_command
from lumos.graph.catalog import CATALOG

ROOT = Path(__file__).parents[2]
TYPED = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
"""Python and commands are run."""
READ = [ROOT / "docs" / name for name in ("architecture.md", "faq.md", "trees.md", "errata.md")]
"""Python is run; commands are long runs on real graphs, which `make evidence` repeats."""
MAKE = {"demo", "test"}
"""Targets that pages name; CI runs the second, and test_examples runs the first in small."""
REAL = re.compile(r"\b(" + "|".join(map(re.escape, CATALOG)) + r")\b")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def here(text: str) -> bool:
    """Whether the real graphs that a snippet names are on this machine."""
    folder = os.environ.get("LUMOS_DATA")
    return not REAL.search(text) or bool(folder and Path(folder).is_dir())


@pytest.mark.parametrize("page", [*TYPED, *READ], ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(page):
        if snippet.not_run:
            continue
        if snippet.language == "python" and here(snippet.text):
            _python(page, snippet, names, capfd)
        elif snippet.language == "console" and page in TYPED:
            _console(page, snippet, capfd)


def _python(
    page: Path, snippet: Snippet, names: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    where = f"{page.name}, line {snippet.line}"
    code = compile("\n" * snippet.line + snippet.text, str(page), "exec")
    with warnings.catch_warnings():
        # PyG itself uses what torch calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(code, names)  # noqa: S102
    missing = matches(printed(snippet.text), capfd.readouterr().out)
    assert not missing, f"{where}: {missing!r} was not printed"


def _console(page: Path, snippet: Snippet, capfd: pytest.CaptureFixture[str]) -> None:
    for command in commands(snippet.text):
        where = f"{page.name}, below line {snippet.line}: {command.words}"
        program, *arguments = shlex.split(command.words)
        if program == "make":
            assert set(arguments) <= MAKE, where
            continue
        if program == "python":
            assert (ROOT / arguments[0]).is_file(), where  # test_examples runs it
            continue
        assert program == "lumos", f"{where}: mark it with <!-- not run: why -->"
        if not here(command.words):
            continue
        status = lumos_command(arguments)
        out, err = capfd.readouterr()
        assert status == 0, f"{where}: {err}"
        missing = matches(command.output, out)
        assert not missing, f"{where}: {missing!r} is not in\n{out}"


@pytest.mark.parametrize("page", [*TYPED, *READ], ids=lambda page: page.name)
def test_what_is_not_run_says_why(page: Path) -> None:
    for snippet in snippets(page):
        assert "not run" not in snippet.mark or len(snippet.not_run) > 20
        assert snippet.language in ("python", "console", "text", "json", "toml")
