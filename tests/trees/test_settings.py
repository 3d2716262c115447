"""A wrong setting is one line that names the option and the value."""

from typing import Any

import pytest
from tests.trees.naive import path

from lumos.errors import UsageError
from lumos.trees.balance import balance
from lumos.trees.balancers import TreeSettings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"iterations": -1}, r"`iterations` .*-1"),
        ({"workers": 0}, r"`workers` .*0"),
        ({"workers": -3}, r"`workers` .*-3"),
        ({"comparison_budget": -0.5}, r"`comparison_budget` .*-0.5"),
        ({"comparison_budget": float("nan")}, r"`comparison_budget` .*nan"),
        ({"group": "ristretto"}, r"group.*auto, ed25519, secp256k1.*ristretto"),
    ],
)
def test_settings(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TreeSettings(**wrong)


@pytest.mark.parametrize("shards", [0, -2, 5])
def test_shards(shards: int) -> None:
    with pytest.raises(UsageError, match=rf"`shards` must be between 1 and .*\(4\), got {shards}"):
        balance(path(4), TreeSettings(compare="ideal"), shards=shards)


def test_settings_compare_and_print() -> None:
    assert TreeSettings(iterations=5) == TreeSettings(iterations=5)
    assert TreeSettings(iterations=5) != TreeSettings(iterations=6)
    assert "iterations=5" in repr(TreeSettings(iterations=5))
    assert TreeSettings().balancer == "optimal"
    assert TreeSettings().compare == "secure"


def test_no_iterations_is_the_greedy_start() -> None:
    none = TreeSettings(balancer="mcmc", iterations=0, compare="ideal")
    start = TreeSettings(balancer="greedy", compare="ideal")
    balanced = balance(path(6), none)
    assert balanced.keep.tolist() == balance(path(6), start).keep.tolist()
    assert balanced.history == [(0, 2)]
