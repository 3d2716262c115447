"""Versions of results: whoever changes numbers raises the version."""

import json
from typing import Any

import pytest
from tests.experiments.golden import FILE, check, computed, golden_cells

from lumos.experiments.cell import Cell
from lumos.experiments.result_versions import VERSIONS, result_kind, version_of
from lumos.training.profile import PAPER, STRICT

GOLDEN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("kind", VERSIONS)
def test_numbers_are_those_of_the_version(kind: str) -> None:
    if problem := check(kind, GOLDEN, computed(golden_cells()[kind])):
        pytest.fail(problem, pytrace=False)


@pytest.mark.parametrize("kind", VERSIONS)
def test_every_kind_has_golden_cells(kind: str) -> None:
    assert golden_cells()[kind]
    assert GOLDEN.keys() == VERSIONS.keys()


def test_profiles_have_versions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VERSIONS, f"train/{PAPER}", 7)
    monkeypatch.setitem(VERSIONS, f"train/{STRICT} classify", 8)
    monkeypatch.setitem(VERSIONS, f"train/{STRICT} link", 9)
    assert version_of(Cell.of("train", "demo", profile=PAPER)) == 7
    assert version_of(Cell.of("train", "demo", profile=STRICT)) == 8
    assert version_of(Cell.of("train", "demo")) == 8
    assert version_of(Cell.of("train", "demo", profile=STRICT, task="link")) == 9
    assert result_kind(Cell.of("trees", "demo")) == "trees"


RESULT = {"messages": 7, "ledger": {"a": ["x", 3, 4]}, "test_auc": 0.5, "final_loss": 2.0}


@pytest.mark.parametrize(
    ("change", "noticed"),
    [
        ({}, False),
        ({"final_loss": 2.00001, "test_auc": 0.500001}, False),  # another BLAS
        ({"final_loss": 2.001}, True),
        ({"test_auc": 0.501}, True),
        ({"test_auc": None}, True),
        ({"messages": 8}, True),
        ({"ledger": {"a": ["x", 3, 5]}}, True),
        ({"ledger": {"b": ["x", 3, 4]}}, True),
        ({"ledger": {"a": ["y", 3, 4]}}, True),
        ({"another": 1}, False),  # kept results do not have it, and are still right
    ],
)
def test_what_counts_as_a_change(change: dict[str, Any], noticed: bool) -> None:
    golden = {"trees": {"version": VERSIONS["trees"], "results": {"cell": RESULT}}}
    problem = check("trees", golden, {"cell": {**RESULT, **change}})
    assert bool(problem) is noticed
    if noticed:
        assert "raise 'trees' in VERSIONS" in problem
        assert "python -m tests.experiments.golden" in problem


def test_a_missing_cell_and_an_older_version_are_noticed() -> None:
    golden = {"trees": {"version": VERSIONS["trees"], "results": {"cell": RESULT}}}
    assert "other cells of 'trees':\n  cell" in check("trees", golden, {})
    golden["trees"]["version"] = VERSIONS["trees"] - 1
    assert "write them" in check("trees", golden, {"cell": RESULT})
    assert "write them" in check("trees", {}, {"cell": RESULT})
