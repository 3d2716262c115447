"""Liars in simulated sums: who is excluded, how far a sum moves, and the rows of the audit."""

from typing import Any

import numpy as np
import pytest

import lumos
from lumos.audit import ATTACKS, AuditReport, Scene
from lumos.audit.attacks import poisoning
from lumos.audit.attacks.poisoning import (
    POISON,
    STRATEGIES,
    LiedRun,
    LyingClassifier,
    Strategy,
    Told,
    run_with_liars,
)
from lumos.graph import Graph
from lumos.strict.stages import Stage
from lumos.training.config import Config
from lumos.typing import Doubles

SHORT: dict[str, Any] = {"profile": "strict", "epochs": 16, "encoder_epochs": 8}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return lumos.load("demo:300")


def lied(
    graph: Graph, strategy: Strategy, number: int, *, proofs: bool = True, **settings: Any
) -> LiedRun:
    config = Config.of(**{**SHORT, **settings})
    return run_with_liars(graph, config, strategy, number, proofs=proofs, seed=1)


@pytest.mark.parametrize(
    "settings", [{}, {"tree_network": True, "epochs": 56}, {"participation": "all"}]
)
def test_without_liars_the_run_is_that_of_train(graph: Graph, settings: dict[str, Any]) -> None:
    found = lied(graph, Strategy(), 0, **settings)
    run = lumos.train(graph, seed=1, floor=False, **{**SHORT, **settings})
    assert found.accuracy == run.metrics["test_accuracy"]
    assert found.estimate == run.model.estimates["selected_accuracy"]
    assert found.choice == run.model.choice


@pytest.mark.parametrize("name", POISON)
def test_a_device_with_a_long_summand_is_as_good_as_lost(graph: Graph, name: str) -> None:
    excluded = lied(graph, POISON[name], 1)
    assert excluded.excluded == 1
    lost = lied(graph, Strategy(lies=[lambda told: np.zeros(len(told.honest))]), 1)
    assert lost.excluded == 0
    assert excluded.accuracy == lost.accuracy
    assert excluded.estimate == lost.estimate
    trusted = lied(graph, POISON[name], 1, proofs=False)
    assert trusted.excluded == 0
    assert trusted.accuracy < 0.5 * excluded.accuracy


def test_numbers_that_pass_the_free_checks_do_pass(graph: Graph) -> None:
    assert lied(graph, POISON["any numbers"], 1, proofs=False).left_out
    name = "numbers that pass the free checks"
    assert lied(graph, POISON[name], 1, proofs=False).left_out == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_liars_move_sums_by_no_more_than_what_is_proved(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every sum, with three liars; and their strategy does something at all."""
    seen: list[float] = []
    original = LyingClassifier._with_lies

    def watched(self: LyingClassifier, stage: Stage, step: int, each: bool) -> Doubles:
        total = original(self, stage, step, each)
        honest = stage.update(self, False) - self._own_sum(stage, len(total))
        bound = 3 * stage.proved_bound(step, len(total))
        seen.append(float(np.linalg.norm(total - honest)) / bound)
        return total

    monkeypatch.setattr(LyingClassifier, "_with_lies", watched)
    run = lied(graph, STRATEGIES[name], 3)
    assert run.excluded == 0
    assert max(seen) <= 1 + 1e-9
    if STRATEGIES[name].lies and name != "matrices":
        assert max(seen) == pytest.approx(1)


def test_liars_who_follow_the_protocol_change_nothing(graph: Graph) -> None:
    honest, silent = lied(graph, Strategy(), 0), lied(graph, Strategy(), 20)
    assert honest == silent


def test_forged_messages_reach_neighbours_only(graph: Graph) -> None:
    """Everything else of the strategy is honest, and it still does harm."""
    told: list[str] = []

    def watch(about: Told) -> None:
        told.append(about.stage.name)

    forged = lied(graph, Strategy(messages=True, lies=[watch]), 30)
    assert {"encoder", "selection"} <= set(told)
    assert forged.excluded == 0
    assert forged.accuracy < lied(graph, Strategy(), 0).accuracy


def rows_of(name: str, graph: Graph, **settings: Any) -> AuditReport:
    scene = Scene(graph, {**SHORT, **settings}, tasks=["classify"], seed=1)
    rows = list(ATTACKS[name](scene))
    return AuditReport(
        graph="",
        devices=graph.devices,
        profile="strict",
        settings={},
        seed=1,
        rows=rows,
        seconds={},
        lumos="",
    )


def test_the_audit_has_power_and_finds_a_simulation_without_exclusion(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poisoning, "LIARS", (1, 100))
    monkeypatch.setattr(poisoning, "STRATEGIES", {"labels": STRATEGIES["labels"]})
    report = rows_of("poisoning", graph)
    assert len(report.claimed) == len(report.powered) == len(POISON)
    assert not report.exceeded
    assert len(report.rows) == len(POISON) + 1  # 100 are more than a tenth

    original = LyingClassifier.__init__

    def trusting(self: LyingClassifier, *given: Any, **more: Any) -> None:
        original(self, *given, **{**more, "proofs": False})

    monkeypatch.setattr(LyingClassifier, "__init__", trusting)
    assert len(rows_of("poisoning", graph).exceeded) == len(POISON)


def test_sybils_are_a_tenth_and_exact_sums_have_no_bound(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poisoning, "STRATEGIES", {"selection": STRATEGIES["selection"]})
    report = rows_of("sybils", graph)
    assert {row.adversary for row in report.rows} == {
        "one owner of 30 devices",
        "one owner of 30 devices within what is proved",
    }
    assert not report.claimed
    assert all(
        row.undefended is not None and row.undefended > row.value for row in report.rows[:-1]
    )
    for name in ("poisoning", "sybils"):
        assert rows_of(name, graph, protect="none").rows == []
