"""`lumos budget` as people type it."""

import inspect
import json
import math
from typing import Any

import pytest

from lumos.cli.budget import budget
from lumos.cli.main import run
from lumos.ldp.mechanisms import COIN, MECHANISMS, make_mechanism
from lumos.training.profile import PROFILES, STRICT


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["budget", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def numbers_of(name: str, epsilon: float) -> dict[str, Any]:
    """What 4 neighbours keep of 18 randomized labels."""
    made = make_mechanism(18, epsilon, name)
    return {
        "epsilon": epsilon,
        "classes": 18,
        "degree": 4,
        "mechanism": name,
        **made.parameters(),
        "bytes": made.width,
        "says_the_truth": made.truth / COIN,
        "says_a_certain_other": made.other / COIN,
        "bits_per_label": made.information(),
        "share_error": math.sqrt(made.variance() / 4),
        "clean_neighbours": 4 * made.information() / math.log2(18),
    }


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_figures_are_those_of_the_mechanism(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "--label-epsilon",
        "2",
        "--classes",
        "18",
        "--degree",
        "4",
        "--mechanism",
        name,
    )
    result, made = result_of(capsys, *arguments), make_mechanism(18, 2.0, name)
    if name == "digits":
        assert (result["places"], result["base"]) == (2, 5)
    assert result == {**numbers_of(name, 2.0), "propagated_label": numbers_of(name, 4.0)}
    assert run(["budget", *arguments]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"mechanism {name}" in out
    assert f"{made.truth / COIN:.4f}" in out


def test_auto_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert result_of(capsys, "--label-epsilon", "2", "--classes", "18")["mechanism"] == "digits"
    assert result_of(capsys, "--label-epsilon", "2", "--classes", "4")["mechanism"] == "krr"


def test_defaults_are_those_of_the_profile() -> None:
    settings = PROFILES[STRICT].settings()
    defaults = inspect.signature(budget).parameters
    for name in ("label_epsilon", "mechanism", "propagated_epsilon"):
        assert defaults[name].default == getattr(settings, name)
    assert defaults["propagated_labels"].default == settings.num_propagated(2000, 6)


def test_no_propagated_labels(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--propagated-labels", "0", "--classes", "100", "--mechanism", "krr")
    assert result_of(capsys, *arguments)["propagated_label"] is None
    assert run(["budget", *arguments]) == 0
    assert "propagated" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--degree", "0"], "degree"),
        (["--propagated-labels", "4"], "--propagated-labels must be 0 to 3"),
        (["--propagated-epsilon", "inf"], "finite"),
        (["--label-epsilon", "0"], "epsilon"),
        (["--label-epsilon", "inf"], "finite"),
        (["--classes", "1"], "a release needs at least 2 labels"),
    ],
)
def test_mistakes(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err
