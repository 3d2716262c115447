"""What a run will cost: asked of its balancer, and timed only where something is compared."""

import pytest

import lumos
from lumos.cli.trees import announce
from lumos.crypto.groups import GROUPS
from lumos.graph import Graph, load
from lumos.trees import balance as estimate
from lumos.trees.balance import (
    balance,
    comparisons_per_second,
    expected_comparisons,
    expected_seconds,
)
from lumos.trees.balancers import TreeSettings


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load("demo:60", features=False)


def test_exact_where_nothing_is_repeated(graph: Graph) -> None:
    for balancer in ("none", "greedy", "optimal"):
        settings = TreeSettings(balancer=balancer, compare="ideal")
        counted = balance(graph, settings).ledger.comparisons
        assert expected_comparisons(graph, settings) == counted


def test_about_right_for_mcmc() -> None:
    graph = load("demo:1000", features=False)
    settings = TreeSettings(balancer="mcmc", iterations=100, compare="ideal")
    counted = balance(graph, settings).ledger.comparisons
    assert counted / 2 < expected_comparisons(graph, settings) < 2 * counted


def test_seconds_are_comparisons_at_the_measured_rate(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "comparisons_per_second", lambda _, workers: 10.0 * workers)
    settings = TreeSettings(balancer="greedy", workers=3)
    assert expected_seconds(graph, settings) == graph.edges / 30


def test_the_rate_grows_with_the_workers() -> None:
    for name in GROUPS:
        group = GROUPS[name]
        assert comparisons_per_second(group, 1) > 0
        assert comparisons_per_second(group, 1000) > 20 * comparisons_per_second(group, 1)


@pytest.fixture
def nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a run that compares nothing starts workers or times comparisons")

    monkeypatch.setattr(estimate, "comparisons_per_second", refuse)
    monkeypatch.setattr("lumos.trees.balance.make_pool", refuse)
    monkeypatch.setattr("lumos.trees.balance.SecureComparer", refuse)


@pytest.mark.usefixtures("nothing_is_compared")
@pytest.mark.parametrize(
    "settings",
    [
        TreeSettings(balancer="none"),
        TreeSettings(balancer="optimal"),
        lumos.Config.of(profile="strict").trees,
    ],
)
def test_no_workers_and_no_timing_without_comparisons(graph: Graph, settings: TreeSettings) -> None:
    """`none`, and so every strict run, and `optimal`."""
    assert settings.compare == "secure"
    announce(graph, settings, "seeded")
    balanced = balance(graph, settings)
    assert balanced.compare == "none"
    assert balanced.ledger.comparisons == 0


@pytest.mark.usefixtures("nothing_is_compared")
def test_ideal_comparisons_are_not_timed(graph: Graph) -> None:
    settings = TreeSettings(balancer="greedy", compare="ideal")
    assert expected_seconds(graph, settings) == 0
    assert balance(graph, settings).compare == "ideal"
