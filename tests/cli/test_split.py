"""`lumos split`: its JSON, its lines for people, its refusals, and what comes of its folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumos.cli.main import run
from lumos.graph import load
from lumos.graph.facts import fingerprint
from lumos.graph.parts import PartsFolder


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json, and return its one JSON object."""

    def ask(*arguments: object) -> Any:
        assert run([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that is refused with status 2, and return its one line."""

    def ask(*arguments: object) -> str:
        assert run([*map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return ask


def test_json_has_what_is_public(answer: Callable[..., Any], tmp_path: Path) -> None:
    result = answer("split", "demo:200", tmp_path / "parts", "--parts", 4, "--seed", 1)
    graph = load("demo:200")
    assert (result["parts"], result["devices"], result["edges"]) == (4, 200, graph.edges)
    files = [*(tmp_path / "parts").iterdir()]
    assert result["bytes"] == sum(file.stat().st_size for file in files)
    assert result["seed"] == 1
    assert result["splits"]["classify"].startswith("random, 50/25/25 of the labelled devices by")
    assert result["left_out"] == {}
    facts = PartsFolder.open(result["path"]).facts("classify")
    assert facts.simulated.fingerprint == fingerprint(graph)


def test_the_folder_is_a_graph_for_every_command(
    answer: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "parts"
    answer("split", "demo:200", path, "--parts", 3)
    whole, parts = answer("data", "check", "demo:200"), answer("data", "check", path)
    assert parts == whole
    tree = ["--balancer", "greedy", "--compare", "ideal"]
    one, other = (answer("trees", graph, *tree) for graph in ("demo:200", path))
    assert (one["max_workload"], one["messages"]) == (other["max_workload"], other["messages"])
    again = answer("split", path, tmp_path / "again", "--parts", 3)  # parts of parts
    assert again["bytes"] == sum(file.stat().st_size for file in path.iterdir())
    for file in path.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_people_read_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["split", "demo:60", str(tmp_path / "parts"), "--parts", "2", "--task", "classify"]
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("demo:60: 60 devices and ")
    assert "30 devices train" in out
    assert "link: left out; split the graph again without --task classify" in out
    assert err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--parts"),
        (["--parts", "0"], "--parts must be between 1 and the number of devices (60), got 0"),
        (["--parts", "61"], "--parts must be between 1 and the number of devices (60), got 61"),
        (["--parts", "2", "--split", "absent.csv"], "--split: one that names devices or edges"),
        (["--parts", "2", "--split", "absent.csv", "--task", "link"], "there is no such file"),
        (["--parts", "2", "--label-bins", "3"], "demo has one label"),
    ],
)
def test_wrong_use_is_refused(
    words: list[str], message: str, refusal: Callable[..., str], tmp_path: Path
) -> None:
    assert message in refusal("split", "demo:60", tmp_path / "parts", *words)
    assert not (tmp_path / "parts").exists()


def test_a_folder_that_is_there_is_refused_before_anything_is_read(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    line = refusal("split", tmp_path / "no such graph", tmp_path, "--parts", "2")
    assert "is there already and not empty; choose another folder" in line
