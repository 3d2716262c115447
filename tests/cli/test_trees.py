"""`lumos trees` as people type it."""

import json

import pytest

from lumos.cli.main import run

CONTRACT = {
    "devices",
    "edges",
    "balancer",
    "max_workload",
    "mean_workload",
    "lower_bound",
    "optimal",
    "comparisons",
    "messages",
    "bytes",
    "rounds",
    "seconds",
    "history",
}


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert run(["trees", *arguments, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1  # one JSON object and nothing else
    result: dict[str, object] = json.loads(out)
    return result


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(capsys, "demo:60", "--compare", "ideal")
    assert set(result) >= CONTRACT
    assert result["balancer"] == "optimal"
    assert result["compare"] == "none"  # it compares nothing
    assert result["randomness"] == "seeded"
    assert result["optimal"] is True
    assert result["max_workload"] == result["lower_bound"]


def test_secure_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    secure = result_of(capsys, "demo:40", "--balancer", "greedy", "--workers", "1")
    ideal = result_of(capsys, "demo:40", "--balancer", "greedy", "--compare", "ideal")
    assert secure["compare"] == "secure"
    for key in ("max_workload", "comparisons", "messages", "bytes", "rounds"):
        assert secure[key] == ideal[key]


def test_shards_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    results = []
    for shards in ("1", "7", "60"):
        result = result_of(capsys, "demo:60", "--compare", "ideal", "--shards", shards)
        for key in ("shards", "seconds", "peak_rss_mb"):
            del result[key]
        results.append(result)
    assert results[0] == results[1] == results[2]


def test_the_table_is_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["trees", "demo:60", "--compare", "ideal", "--balancer", "mcmc"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("On demo:60, the busiest device carries ")
    for words in (
        "comparisons (ideal, booked as secp256k1)",
        "randomness seeded",
        "observer",
        "least possible",
    ):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no file, no folder and no known graph"),
        (["demo", "--balancer", "best"], "must be one of none, greedy, mcmc, optimal"),
        (["demo:60", "--shards", "61"], "--shards must be between 1 and"),
        (["demo:60", "--iterations", "-1"], "--iterations must be 0 or more"),
        (["demo:60", "--workers", "0"], "--workers must be 1 or more"),
        (["demo:60", "--comparison-budget", "-1"], "--comparison-budget must be 0 or more"),
        (["demo:60", "--comparison-budget", "nan"], "--comparison-budget must be 0 or more"),
        (["demo:60", "--flavour"], "Unknown option"),
        ([], "GRAPH is missing"),
    ],
)
def test_a_mistake_gets_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["trees", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_budget_stops_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo:60", "--compare", "ideal", "--comparison-budget", "3", "--balancer", "mcmc"]
    assert run(["trees", *arguments]) == 1
    err = capsys.readouterr().err
    assert "the budget is 3" in err
    assert "--comparison-budget" in err
