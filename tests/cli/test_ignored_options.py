"""An option that cannot have an effect is refused in one line that says when it has one."""

import dataclasses
from math import inf
from pathlib import Path
from typing import Any

import pytest

from lumos.cli.common import TYPED, as_options
from lumos.cli.main import run
from lumos.errors import UsageError
from lumos.training.config import COMMON, Config, Task
from lumos.training.profile import PROFILES

PAPER, LINK = ["--profile", "paper"], ["--task", "link"]
LITERAL = {"profile": "paper"}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lumos: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "option", "needs"),
    [
        (["--compare", "ideal"], "--compare", "--profile paper"),
        (["--iterations", "5"], "--iterations", "--profile paper"),
        (["--backbone", "gat"], "--backbone", "--tree-network"),
        (
            ["--propagated-labels", "0", "--propagated-epsilon", "1"],
            "--propagated-epsilon",
            "with propagated labels",
        ),
        (["--score-queries", "9"], "--score-queries", "--task link"),
        ([*LINK, "--label-epsilon", "2"], "--label-epsilon", "--task classify"),
        ([*PAPER, "--feature-epsilon", "2"], "--feature-epsilon", "--profile strict"),
        ([*PAPER, "--balancer", "greedy", "--iterations", "5"], "--iterations", "mcmc"),
        (
            ["--randomness", "system", "--checkpoint-every", "5", "--out", "never-made"],
            "--checkpoint-every",
            "--randomness seeded",
        ),
        (["--checkpoint-every", "5"], "--checkpoint-every", "--out"),
        (["--resume"], "--resume", "--out"),
    ],
)
def test_train(
    capsys: pytest.CaptureFixture[str], arguments: list[str], option: str, needs: str
) -> None:
    line = refused(capsys, "train", "demo:60", *arguments)
    assert line.startswith(f"lumos: {option} ")
    assert needs in line
    assert option == needs or "has no effect with" in line or "needs" in line


@pytest.mark.parametrize(
    ("settings", "name", "needs"),
    [
        ({"workers": 2}, "workers", "profile='paper'"),
        ({"comparison_budget": 5}, "comparison_budget", "profile='paper'"),
        ({"pool": "sum"}, "pool", "profile='paper'"),
        ({"virtual_nodes": True}, "virtual_nodes", "profile='paper'"),
        ({"patience": 5}, "patience", "profile='paper'"),
        ({"learning_rate": 0.1}, "learning_rate", "tree_network"),
        ({"tree_network": True, "heads": 2}, "heads", "backbone='gat'"),
        ({"protect": "none", "clip": 1}, "clip", "protect='noise'"),
        ({"protect": "none", "feature_epsilon": 1}, "feature_epsilon", "protect='noise'"),
        ({"protect": "none", "delta": 0.1}, "delta", "protect='noise'"),
        ({"lifetime_epsilon": 5}, "lifetime_epsilon", "account"),
        ({"lifetime_propagated_epsilon": 5}, "lifetime_propagated_epsilon", "account"),
        ({"task": "link", "lifetime_feature_epsilon": 5}, "lifetime_feature_epsilon", "account"),
        ({**LITERAL, "balancer": "none", "workers": 2}, "workers", "greedy, mcmc"),
        ({**LITERAL, "compare": "ideal", "workers": 2}, "workers", "compare='secure'"),
        ({**LITERAL, "balancer": "optimal", "comparison_budget": 5}, "comparison_budget", "mcmc"),
        ({**LITERAL, "heads": 2}, "heads", "backbone='gat'"),
        ({**LITERAL, "layers": 1, "hidden": 8}, "hidden", "more"),
        ({**LITERAL, "bins": True}, "bins", "epsilon=inf"),
        ({**LITERAL, "epsilon": inf, "recovery": "literal"}, "recovery", "finite `epsilon`"),
    ],
)
def test_settings_of_python(settings: dict[str, Any], name: str, needs: str) -> None:
    with pytest.raises(UsageError, match=f"`{name}` has no effect with") as caught:
        Config.asked(**settings)
    assert needs in str(caught.value)


def test_a_setting_that_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "train", "demo:60", "--no-virtual-nodes", "--learning-rate=1")
    assert "has no option --virtual-nodes; use lumos.train(virtual_nodes=…)" in line


@pytest.mark.parametrize(
    ("arguments", "option", "needs"),
    [
        (["--iterations", "5"], "--iterations", "mcmc"),
        (["--workers", "2"], "--workers", "greedy, mcmc"),
        (["--comparison-budget", "2"], "--comparison-budget", "greedy, mcmc"),
        (
            ["--balancer", "greedy", "--compare", "ideal", "--workers", "2"],
            "--workers",
            "--compare secure",
        ),
    ],
)
def test_trees(
    capsys: pytest.CaptureFixture[str], arguments: list[str], option: str, needs: str
) -> None:
    line = refused(capsys, "trees", "demo:60", *arguments)
    assert line.startswith(f"lumos: {option} has no effect with")
    assert needs in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["lpgnn", "demo:60", "--feature-epsilon", "inf", "--one-bit"],
        ["blink", "demo:60", "--edge-epsilon", "inf", "--variant", "hybrid"],
        ["centralized", "demo:60", "--feature-epsilon", "3"],
    ],
)
def test_baseline(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert f"{arguments[-1] if arguments[-1][0] == '-' else arguments[-2]} has no effect" in (
        refused(capsys, "baseline", *arguments)
    )


def test_audit(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--shards", "--control", "--no-floor", "--checkpoint-every"):
        assert f"Unknown option: {option}" in refused(capsys, "audit", "demo:60", option)


def test_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    quick = ["--profile", "paper", "--balancer", "none", "--epochs", "1", "--no-floor"]
    assert run(["train", "demo:60", *quick, "--out", folder]) == 0
    capsys.readouterr()
    for more in (["--seed", "3"], ["--directed", "symmetrise"], ["--epsilon", "3"]):
        assert "own se" in refused(capsys, "audit", folder, *more)
    for more in (
        ["--top", "3"],
        ["--workers", "3"],
        ["--scores", "secure"],
        ["--scores", "ideal"],
        ["--seed", "3"],
    ):
        line = refused(capsys, "predict", folder, *more)
        assert line.startswith(f"lumos: {more[0]} has no effect")
        assert line.rstrip().endswith("leave it out")


@pytest.mark.parametrize("profile", ["strict", "paper"])
@pytest.mark.parametrize("task", ["classify", "link"])
def test_whole_dictionaries_of_settings_are_still_taken(profile: str, task: Task) -> None:
    config = Config.of(profile=profile, task=task)
    assert Config.of(**config.flat()) == config


@pytest.mark.parametrize("profile", ["strict", "paper"])
@pytest.mark.parametrize("task", ["classify", "link"])
def test_every_reason_says_when(profile: str, task: Task) -> None:
    flat = Config.of(profile=profile, task=task).flat()
    fields = {
        field.name
        for group in (*COMMON.values(), *(PROFILES[name].settings for name in PROFILES))
        for field in dataclasses.fields(group)
    }
    for name in fields - {"profile", "task", "account"}:
        line = reason(profile=profile, task=task, **{name: flat.get(name)})
        if line:
            assert f"`{name}` has no effect with" in line
            assert "only with" in line or "which have no tree network" in line


def reason(**settings: Any) -> str:
    """Why settings are refused; empty where they are taken."""
    try:
        Config.asked(**settings)
    except UsageError as error:
        return str(error)
    return ""


def test_advice_that_only_python_can_follow_says_so() -> None:
    """A warning of `lumos train` names a setting that is no option of the command."""
    text = "public bounds (`feature_bounds`) or `scaling='standard'` would help"
    token = TYPED.set(["train", "demo"])
    try:
        assert as_options(text) == (
            "public bounds (--feature-bounds) or `scaling='standard'` in Python would help"
        )
    finally:
        TYPED.reset(token)
