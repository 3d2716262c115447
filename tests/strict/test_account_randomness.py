"""Randomness of runs with an account: where it lies does not matter, what it has does.

Two runs that share their noise must use the same draws of labels, or the difference of their sums
is exact.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.strict.linking import linked
from tests.strict.linking import run_with_wire as link_with_wire
from tests.strict.strictly import federation, run_with_wire, small, strict

from lumos.graph import Graph
from lumos.ldp.account import FILE
from lumos.runs.run import Run
from lumos.storage import read_arrays

pytestmark = pytest.mark.usefixtures("short")

TASKS = ("classify", "link")


@pytest.fixture
def graph() -> Graph:
    return small(60, edges=240)


def trained(task: str, graph: Graph, **settings: Any) -> Run:
    short = {"encoder_epochs": 2, "epochs": 8}
    return linked(graph, **settings) if task == "link" else strict(graph, **{**short, **settings})


def sent(task: str, graph: Graph, **settings: Any) -> Any:
    """Every message of a run, round by round."""
    short = {"encoder_epochs": 2, "epochs": 8}
    if task == "link":
        return link_with_wire(graph, **settings)[1].rounds
    return run_with_wire(graph, **{**short, **settings})[1].rounds


def secrets(graph: Graph, **settings: Any) -> np.ndarray:
    """[devices, 8] words that only the secrets of a run give."""
    (shard,) = federation(graph, **settings).shards
    return shard.randomness.words(np.arange(len(shard)), "a test", 0, 8)


def charges(folder: Path) -> list[np.ndarray]:
    """Everything that an account has charged."""
    arrays = read_arrays(folder / FILE)
    return [array for name, array in arrays.items() if name.startswith("charges/")]


@pytest.mark.parametrize("task", TASKS)
def test_two_new_accounts_give_one_run(task: str, graph: Graph, tmp_path: Path) -> None:
    """The same messages, bit by bit: whoever sees both runs has seen one."""
    one, two = (sent(task, graph, account=tmp_path / name) for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize("task", TASKS)
def test_an_account_that_was_moved_repeats_its_runs_for_nothing(
    task: str, graph: Graph, tmp_path: Path
) -> None:
    before, after = tmp_path / "account", tmp_path / "elsewhere"
    first = sent(task, graph, account=before)
    trained(task, graph, account=before, seed=1)  # others may use it meanwhile
    charged = charges(before)
    before.rename(after)
    assert sent(task, graph, account=after)[-3:] == first[-3:]
    for now, then in zip(charges(after), charged, strict=True):
        assert_array_equal(now, then)


@pytest.mark.parametrize("task", TASKS)
def test_a_higher_limit_makes_no_other_run(task: str, graph: Graph, tmp_path: Path) -> None:
    trained(task, graph, account=tmp_path)
    charged = charges(tmp_path)
    limits = {"lifetime_propagated_epsilon": 100.0, "lifetime_feature_epsilon": 100.0}
    limits |= {"lifetime_epsilon": 9.0} if task == "classify" else {}
    trained(task, graph, account=tmp_path, **limits)
    for now, then in zip(charges(tmp_path), charged, strict=True):
        assert_array_equal(now, then)


def test_accounts_of_other_content_share_no_coin(graph: Graph, tmp_path: Path) -> None:
    """Their draws of labels differ, so the same noise would give away the difference of sums."""
    new, used, other = (tmp_path / name for name in ("new", "used", "other"))
    for seed, folder in ((7, used), (8, other)):
        trained("classify", graph, account=folder, seed=seed)
    draws = [read_arrays(folder / FILE)["draws/values"] for folder in (used, other)]
    assert (draws[0] != draws[1]).any()
    found = [secrets(graph, account=folder, seed=0) for folder in (new, used, other)]
    for one in range(3):
        for two in range(one):
            assert not (found[one] == found[two]).all(axis=1).any()


def test_copies_share_randomness_until_they_differ(graph: Graph, tmp_path: Path) -> None:
    account, copy = tmp_path / "account", tmp_path / "copy"
    trained("classify", graph, account=account, seed=7)
    shutil.copytree(account, copy)
    assert_array_equal(secrets(graph, account=account), secrets(graph, account=copy))
    trained("classify", graph, account=copy, seed=8, label_epsilon=2.0)
    # The run of seed 0 began before, and is the same in both; that of seed 1 begins now.
    assert_array_equal(secrets(graph, account=account), secrets(graph, account=copy))
    one, two = (secrets(graph, account=folder, seed=1) for folder in (account, copy))
    assert not (one == two).all(axis=1).any()


def test_the_control_has_no_account(graph: Graph, tmp_path: Path) -> None:
    trained("classify", graph, account=tmp_path, seed=7)
    one, two = (secrets(graph, control=True, **more) for more in ({}, {"account": tmp_path}))
    assert_array_equal(one, two)
    assert not (one == secrets(graph, account=tmp_path)).all(axis=1).any()
