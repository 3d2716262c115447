"""Verdicts: exceeded only beyond doubt, at chance only of an attacker that could tell."""

import json

import pytest

from lumos.audit.table import (
    EXCEEDED,
    NO_BOUND,
    WITHIN,
    Area,
    AuditReport,
    AuditRow,
    Estimate,
    Exactly,
    Proportion,
)


def row(estimate: Estimate, **fields: object) -> AuditRow:
    """A row about nothing."""
    about = {"attack": "a", "adversary": "one", "about": "x", "measure": "accuracy"}
    return AuditRow(**(about | {"estimate": estimate} | fields))  # type: ignore[arg-type]


def report(*rows: AuditRow) -> AuditReport:
    """Of these rows."""
    return AuditReport(
        graph="g",
        devices=3,
        profile="strict",
        settings={},
        seed=0,
        rows=list(rows),
        seconds={"a": 1.0},
        lumos="0",
    )


@pytest.mark.parametrize(
    ("hits", "trials", "verdict"), [(80, 100, WITHIN), (8000, 10000, EXCEEDED), (1, 10, WITHIN)]
)
def test_a_bound_is_exceeded_by_the_lower_end_only(hits: int, trials: int, verdict: str) -> None:
    evaluated = row(Proportion(hits, trials), bound=0.75)
    assert report(evaluated).verdict(evaluated) == verdict


def test_more_rows_need_more_evidence() -> None:
    doubtful = row(Proportion(830, 1000), bound=0.78)
    assert report(doubtful).verdict(doubtful) == EXCEEDED
    assert report(*[doubtful] * 40).verdict(doubtful) == WITHIN


def test_a_note_is_written_once() -> None:
    noted = [row(Exactly(1.0), attack=name, note="n") for name in ("a", "a", "b")]
    assert report(*noted, row(Exactly(1.0))).notes() == ["a, 2 rows: n", "b, x: n"]


def test_without_a_claim_nothing_is_exceeded() -> None:
    evaluated = row(Exactly(1.0))
    assert report(evaluated).verdict(evaluated) == NO_BOUND
    assert report(evaluated).exceeded == []


def test_at_chance_needs_a_mechanism_that_is_known_and_a_sample_that_could_tell() -> None:
    few, many = (row(Area(0.5, n, n), chance=0.5, knows_mechanism=True) for n in (100, 10**5))
    assert "would show 0.02" in report(few).advantage(few)
    assert report(many).advantage(many) == "at chance"
    blind = row(Area(0.5, 10**5, 10**5), chance=0.5)
    assert report(blind).advantage(blind) == "+0.000, not shown"
    found = row(Area(0.7, 1000, 1000), chance=0.5)
    assert report(found).advantage(found) == "+0.200"


def test_a_report_survives_json() -> None:
    made = report(
        row(Proportion(8, 10), bound=0.5, bound_is="cell"), row(Exactly(2.0)), row(Area(0.6, 5, 5))
    )
    assert AuditReport.from_json(json.loads(json.dumps(made.to_json()))) == made
