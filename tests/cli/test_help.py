"""`--help` fits a screen, in groups; `--help-all` has everything; no option is without a group."""

import importlib
import inspect
import re
from collections.abc import Iterator

import pytest
from docstring_parser import parse

from lumos.cli.common import COMMANDS, OPTIONS, short_text
from lumos.cli.main import app, run
from lumos.training.config import TRAIN_OPTIONS

WIDTH, HEIGHT = 80, 40
MAX_OPTIONS = 45
"""Of `lumos train`: whoever adds one decides which other is for Python alone."""
COMMAND_NAMES = ["train", "trees", "baseline", "predict", "audit", "budget", "report"]
GROUPS = ["Data", "Task", "Privacy", "Model", "Trees", "Run", "Every command"]


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run([*arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def options_in(lines: list[str]) -> list[str]:
    return [found[0] for line in lines if (found := re.findall(r"^  (--[a-z-]+)", line))]


def options_of_commands() -> Iterator[tuple[str, str]]:
    """Every command and every option that it takes, as the parser knows them."""
    names = [name for name in app if not name.startswith("-")]
    for name in names:
        commands = [[name]]
        if name in ("data", "pki"):
            commands = [[name, sub] for sub in app[name] if not sub.startswith("-")]
        for command in commands:
            _, apps, _ = app.parse_commands(command)
            for argument in apps[-1].assemble_argument_collection():
                if argument.parse and argument.show:
                    yield " ".join(command), argument.name.lstrip("-").replace("-", "_")


def test_every_option_of_every_command_has_a_group() -> None:
    missing = {(command, option) for command, option in options_of_commands()}
    missing = {each for each in missing if each[1].lower() not in OPTIONS}
    assert missing == set(), "add these to lumos.cli.common.OPTIONS"


def test_every_option_with_a_group_is_one_of_a_command() -> None:
    found = {option.lower() for _, option in options_of_commands()}
    assert set(OPTIONS) - found == set(), "remove these from lumos.cli.common.OPTIONS"


@pytest.mark.parametrize("command", COMMAND_NAMES)
def test_the_first_screen_fits(capsys: pytest.CaptureFixture[str], command: str) -> None:
    lines = help_of(capsys, command, "--help")
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == [group for group in GROUPS if group in titles]  # in this order, no other
    for line in lines:
        assert not line.startswith(" " * 20)  # a text that goes on in another line


def test_short_texts_are_short() -> None:
    own = [text for texts in COMMANDS.values() for text in texts.values()]
    for text in [*own, *(placed.short for placed in OPTIONS.values())]:
        assert len(text) <= 56
        assert not text.endswith(".")


def test_experts_ask_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    first = options_in(help_of(capsys, "train", "--help"))
    lines = help_of(capsys, "train", "--help-all")
    everything = options_in(lines)
    assert set(first) < set(everything)
    assert "--encoder-epochs" in everything
    assert "--encoder-epochs" not in first
    assert len(everything) == len(set(everything)) <= MAX_OPTIONS
    options = {"--" + name.replace("_", "-") for name in TRAIN_OPTIONS}
    assert options <= set(everything)
    text = " ".join(" ".join(lines).split())
    assert "[choices: classify, link]" in text
    assert "[default: 300 for paper; 61 for strict (7 for link)]" in text
    assert "(`backbone`)" not in text  # settings are options here


def test_all_commands_in_order_and_a_first_example(capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(capsys, "--help")
    assert len(lines) <= HEIGHT
    assert any(line.startswith("  lumos train demo ") for line in lines)
    names = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    assert names[:3] == ["train", "predict", "report"]
    assert set(names) >= {name for name in app if not name.startswith("-")} - {"-h"}
    assert help_of(capsys) == lines  # without any argument too


def test_help_goes_with_any_place(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["data", "fetch", "--help"], ["data", "--help"], ["data", "check", "-h"]):
        assert "Usage: lumos data" in help_of(capsys, *arguments)[0]
    assert "--json" in options_in(help_of(capsys, "data", "fetch", "--help-all"))


def test_an_unknown_option_is_for_experts() -> None:
    assert short_text("train", "unheard_of") == ""


def test_every_parameter_of_a_command_is_described() -> None:
    """Also those of the short help; groups of settings describe theirs in their dataclasses."""
    groups = {"common", "options", "reading"}
    for module in ("audit", "budget", "data", "devices", "evaluate", "predict", "train"):
        commands = importlib.import_module(f"lumos.cli.{module}")
        for name, command in vars(commands).items():
            text = inspect.getdoc(command) or ""
            if not inspect.isfunction(command) or "Parameters\n" not in text:
                continue
            described = {parameter.arg_name for parameter in parse(text).params}
            assert described == set(inspect.signature(command).parameters) - groups, name


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("train demo:60 --label-epsilonn 3", "train"),
        ("train demo:60 --label-epsilon many", "train"),
        ("train", "train"),
        ("evaluate demo --nothing", "evaluate"),
        ("data check", "data check"),
        ("pki init --nothing", "pki init"),
        ("trian demo", ""),
    ],
)
def test_errors_about_options_name_the_help_of_the_command(
    typed: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(typed.split()) == 2
    said = capsys.readouterr().err
    assert said.endswith(f" Type: {' '.join(['lumos', *command.split(), '--help'])}\n")
    assert said.count("\n") == 1
