"""Which systems are compared, and which settings reach which of them."""

from typing import Any

import pytest

from lumos.errors import UsageError
from lumos.evaluation.result import COMPARED, EvaluatedSystem, chosen_systems

ALL = {key: EvaluatedSystem(key) for key in (*COMPARED, "naive")}
LPGNN = ("lpgnn", "lpgnn-own", "lpgnn-blink")


def test_the_default_systems() -> None:
    systems, left_out = chosen_systems(None, "classify", {})
    assert [one.key for one in systems] == [
        *("strict", "own", "control", "paper", "lpgnn-blink", "lpgnn", "lpgnn-own"),
        *("blink", "gap", "own-unprotected", "centralized"),
    ]
    assert {one.key: one.local for one in systems if one.local} == {
        "strict": "own",
        "control": "own",
        "paper": "own-unprotected",
        "lpgnn": "lpgnn-own",
        "lpgnn-blink": "lpgnn-own",
        **dict.fromkeys(("blink", "gap", "centralized"), "own-unprotected"),
    }
    assert left_out == {}
    assert len({one.name for one in systems}) == len(systems)


def test_a_system_that_cannot_do_the_task_is_left_out_with_its_reason() -> None:
    systems, left_out = chosen_systems(None, "link", {})
    assert "lpgnn" not in [one.key for one in systems]
    assert [one.name for one in systems if one.key == "own"] == ["own degree in strict"]
    assert left_out["LPGNN"].startswith("lpgnn cannot predict links")
    with pytest.raises(UsageError, match="lpgnn cannot predict links"):
        chosen_systems(["lpgnn"], "link", {})


def test_strict_own_and_control_are_one_run() -> None:
    strict, own, control = (
        ALL[key].run_settings({}, control=True) for key in ("strict", "own", "control")
    )
    assert strict == own == control
    assert own["control"] is True
    assert "control" not in ALL["strict"].run_settings({}, control=False)
    other = ALL["own-unprotected"]
    assert (other.kind, other.run_settings({}, control=True)["system"]) == ("baseline", "own")


@pytest.mark.parametrize(
    ("setting", "value", "reach"),
    [
        ("epsilon", 1.0, {"paper"}),
        ("label_epsilon", 2.0, {"strict", "own", "control", "naive", *LPGNN}),
        ("feature_epsilon", 4.0, {"strict", "own", "control", "naive", *LPGNN}),
        ("edge_epsilon", 9.0, {"lpgnn-blink", "blink", "gap", "naive"}),
        ("backbone", "gat", {"paper", "centralized", "naive", "blink", *LPGNN}),
        ("low", -1.0, {"paper", "naive", *LPGNN}),
        ("hidden", 8, set(ALL) - {"strict", "own", "control"}),
    ],
)
def test_a_setting_reaches_the_systems_that_have_it(
    setting: str, value: Any, reach: set[str]
) -> None:
    given = {setting: value}
    found = {key for key, one in ALL.items() if one.applying(given)}
    assert found == reach
    runs = {key: one.run_settings(given, control=False) for key, one in ALL.items()}
    assert {key for key, run in runs.items() if run.get(setting) == value} == reach


@pytest.mark.parametrize(
    ("keys", "given", "message"),
    [
        (["gcn"], {}, "there is no 'gcn'; there are strict, own, control"),
        ([], {}, "at least one is needed"),
        (None, {"epsilon": -1.0}, "`epsilon` must be above 0"),
        (None, {"profile": "paper"}, "`profile` is chosen by evaluate itself"),
        (None, {"control": False}, "`control` is chosen by evaluate itself"),
        (["centralized"], {"feature_epsilon": 1.0}, "`feature_epsilon` is a setting of none"),
        (None, {"nonsense": 1}, "`nonsense` is a setting of none"),
    ],
)
def test_mistakes_are_named(keys: list[str] | None, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen_systems(keys, "classify", given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
