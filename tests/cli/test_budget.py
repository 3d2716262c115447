"""`lumos budget` as people type it."""

import json
import math
from typing import Any

import pytest
from tests.encode.mechanisms.stranger import registered

from lumos.cli.main import run
from lumos.encode.mechanisms import COIN, MECHANISMS, make_mechanism


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["budget", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


@pytest.mark.parametrize("name", MECHANISMS.names())
def test_the_figures_are_those_of_the_mechanism(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--epsilon", "2", "--classes", "18", "--degree", "4", "--mechanism", name)
    result, made = result_of(capsys, *arguments), make_mechanism(18, 2.0, name)
    assert result == {
        "epsilon": 2.0,
        "classes": 18,
        "degree": 4,
        "mechanism": name,
        **({"places": 2, "base": 5} if name == "digits" else {}),
        "bytes": made.width,
        "says_the_truth": made.truth / COIN,
        "says_a_certain_other": made.other / COIN,
        "bits_per_symbol": made.information(),
        "share_error": math.sqrt(made.variance() / 4),
        "clean_neighbours": 4 * made.information() / math.log2(18),
    }
    assert run(["budget", *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"mechanism {name}" in out
    assert f"{made.truth / COIN:.4f}" in out


def test_auto_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert result_of(capsys, "--epsilon", "2", "--classes", "18")["mechanism"] == "digits"
    assert result_of(capsys, "--epsilon", "2", "--classes", "4")["mechanism"] == "krr"


def test_a_registered_mechanism_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    with registered():
        loud = result_of(capsys, "--mechanism", "loud")
    assert (loud.pop("mechanism"), loud.pop("bytes")) == ("loud", 3)
    krr = result_of(capsys, "--mechanism", "krr")
    assert (krr.pop("mechanism"), krr.pop("bytes")) == ("krr", 1)
    assert loud == krr
    assert run(["budget", "--mechanism", "loud"]) == 2
    assert "auto, krr, digits, oue, multibit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--degree", "0"], "degree"),
        (["--epsilon", "0"], "epsilon"),
        (["--epsilon", "inf"], "finite"),
        (["--classes", "1"], "at least 2 symbols"),
    ],
)
def test_mistakes(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err
