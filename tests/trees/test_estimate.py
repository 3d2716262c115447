"""What a run will cost: asked of its balancer, and announced where much is compared in secret."""

import pytest

import lumos
from lumos.cli.trees import announce
from lumos.graph import Graph, load
from lumos.trees.balance import balance, expected_comparisons
from lumos.trees.balancers import Compare, TreeSettings


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


@pytest.mark.parametrize(("compare", "announced"), [("secure", True), ("ideal", False)])
def test_many_secret_comparisons_are_announced(
    compare: Compare, announced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("lumos.cli.trees.say", said.append)
    graph = load("demo:1000", features=False)
    announce(graph, TreeSettings(balancer="mcmc", iterations=1, compare=compare))
    announce(graph, TreeSettings(balancer="none", compare=compare))
    assert not said
    announce(graph, TreeSettings(balancer="mcmc", iterations=1000, compare=compare))
    assert [text[:6] for text in said] == ["About "] * announced


@pytest.fixture
def nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a run that compares nothing starts workers")

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
def test_no_workers_without_comparisons(graph: Graph, settings: TreeSettings) -> None:
    """`none`, and so every strict run, and `optimal`."""
    assert settings.compare == "secure"
    balanced = balance(graph, settings)
    assert balanced.compare == "none"
    assert balanced.ledger.comparisons == 0
