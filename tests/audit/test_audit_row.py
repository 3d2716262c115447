"""Verdicts: exceeded only beyond doubt, at chance only of an attacker that could tell."""

import json

import pytest

from lumos.audit.table import (
    EXCEEDED,
    NO_BOUND,
    NO_POWER,
    WITHIN,
    Area,
    AuditReport,
    AuditRow,
    CertifiedEpsilon,
    Estimate,
    Exactly,
    Mean,
    NoiseRatio,
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
    ("hits", "trials", "verdict"), [(80, 100, WITHIN), (8000, 10000, EXCEEDED), (1, 10, NO_POWER)]
)
def test_a_bound_is_exceeded_by_the_lower_end_only(hits: int, trials: int, verdict: str) -> None:
    evaluated = row(Proportion(hits, trials), bound=0.75)
    assert report(evaluated).verdict(evaluated) == verdict


@pytest.mark.parametrize(
    ("found", "bound", "verdict"),
    [
        (Proportion(5, 8), 0.4, NO_POWER),  # 8 of 8: 0.0005^(1/8) = 0.387
        (Proportion(5, 9), 0.4, WITHIN),  # 9 of 9: 0.0005^(1/9) = 0.430
        (Proportion(50_000, 100_000), 1.0, NO_POWER),  # a share is never above 1
        (Area(0.5, 50, 50), 0.99, WITHIN),
        (Area(0.5, 0, 50), 0.5, NO_POWER),
        (CertifiedEpsilon(50, 100, 50, 100), 3.0, NO_POWER),
        (CertifiedEpsilon(150, 300, 150, 300), 3.0, WITHIN),
        (CertifiedEpsilon(150, 300, 150, 300, tests=10**9), 3.0, NO_POWER),
        (Mean(0.1, 0.2, 10), 1.0, WITHIN),
        (NoiseRatio(100.0, 10), 1.0, WITHIN),
        (Exactly(0.0), 0.0, WITHIN),
    ],
)
def test_a_row_that_could_not_have_failed_has_no_power(
    found: Estimate, bound: float, verdict: str
) -> None:
    evaluated = row(found, bound=bound)
    assert report(evaluated).verdict(evaluated) == verdict
    assert report(evaluated).powered == [evaluated] * (verdict == WITHIN)


@pytest.mark.parametrize("trials", [5, 10, 40, 200])
@pytest.mark.parametrize("bound", [0.3, 0.6, 0.9])
def test_power_is_that_of_the_best_of_all_results(trials: int, bound: float) -> None:
    """By trying every number of hits: some exceed the bound exactly where there is power."""
    every = [row(Proportion(hits, trials), bound=bound) for hits in range(trials + 1)]
    verdicts = {report(each).verdict(each) for each in every}
    assert (EXCEEDED in verdicts) == (NO_POWER not in verdicts)


def test_power_is_counted_apart() -> None:
    strong, idle = row(Proportion(50, 100), bound=0.75), row(Proportion(1, 2), bound=0.75)
    made = report(strong, idle, row(Exactly(1.0)))
    assert made.power.startswith("1 of 2 rows with a bound had power")
    content = made.to_json()
    assert (content["claimed"], content["powered"], content["exceeded"]) == (2, 1, 0)
    assert [line["verdict"] for line in content["rows"]] == [WITHIN, NO_POWER, NO_BOUND]


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
    assert report(few).advantage(few).endswith(", not shown")
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
