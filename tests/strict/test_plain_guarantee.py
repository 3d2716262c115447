"""The guarantee in plain words has the worst figure of every row, and hides no row."""

from typing import Any

import pytest
from scipy.stats import norm

from lumos.secagg.noise import mu_for
from lumos.strict.accounting import AccountView
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.guarantees import ROLES, classify_guarantees, link_guarantees
from lumos.strict.link.stages import LinkSchedule
from lumos.strict.texts import classify_in_words, link_in_words
from lumos.training.config import Config
from lumos.training.guarantees import cells_of, guess_bound, told_apart

Rows = list[dict[str, Any]]
EVERYONE = "These bounds hold against everyone who sees every message, every sum and the model"


def schedule_of(**settings: Any) -> ClassifySchedule:
    return ClassifySchedule(
        config=Config.of(**settings), devices=2000, training=1000, validation=500, classes=4
    )


def classify(**settings: Any) -> tuple[Rows, dict[str, str]]:
    table = classify_guarantees(schedule_of(**settings))
    return table, dict(classify_in_words(table, 4))


def links(**settings: Any) -> tuple[Rows, dict[str, str]]:
    schedule = LinkSchedule(config=Config.of(task="link", **settings), devices=2000)
    table = link_guarantees(schedule)
    return table, dict(link_in_words(table))


def test_the_defaults() -> None:
    table, words = classify()
    by_row = {row["about"]: row for row in table}
    assert by_row["label replaced"]["training devices"] == "ε = 3, pure"
    assert by_row["features replaced"]["training devices"] == "(8, 1e-05)"
    assert list(words) == ["Label", "Features", "Edge", "Not protected", ""]
    assert words["Label"] == (
        "ε = 3 (label replaced): two equally likely labels are told apart in at most 95.3 % of "
        "cases (weak). An attacker who would guess it in 25 % of cases without this device (4 "
        "equally likely classes) guesses it in at most 87 %; one who is already 90 % sure, in at "
        "most 99.4 %."
    )
    features = 100 * norm.cdf(mu_for(8.0, 1e-5) / 2)
    assert features == pytest.approx(79.75, abs=0.05)
    assert words["Features"].startswith(
        "(8, 1e-05) (features replaced): two equally likely alternatives are told apart in at most "
        "79.8 % of cases; (11, 1e-05) (record replaced): at most 95.7 % of cases (weak)."
    )
    assert words["Not protected"] == "device absent, degree."
    assert words[""] == f"{EVERYONE}.".replace("bounds", "bounds (weak: above 90 %)")


@pytest.mark.parametrize("about", ["edge added or removed", "edge replaced at one end"])
def test_the_worst_role_of_an_edge(about: str) -> None:
    table, words = classify()
    cells = cells_of(next(row for row in table if row["about"] == about)).values()
    worst = max(float(cell[1:].split(",")[0]) for cell in cells if cell[0] == "(")
    assert f"({worst:g}, 1e-05) ({about}): " in words["Edge"]


def test_the_number_of_a_row_is_that_of_its_worst_role() -> None:
    """Randomized messages and sums are composed, and devices of every role are covered."""
    schedule = schedule_of()
    by_row = {row["about"]: row for row in classify_guarantees(schedule)}
    spent = [schedule.disclosed(role) for role in ROLES.values()]
    expected = {
        "label replaced": [(each.label, 0.0) for each in spent],
        "features replaced": [(0.0, each.mu["features"]) for each in spent],
        "record replaced": [(each.label, each.mu["record"]) for each in spent],
        "contribution to the sums zeroed": [(0.0, each.mu["norm"]) for each in spent],
        "edge added or removed": [(each.propagated_labels, each.mu["edge"]) for each in spent],
        "edge replaced at one end": [
            (2 * each.propagated_labels, 2 * each.mu["edge"]) for each in spent
        ],
    }
    for about, amounts in expected.items():
        bound = max(told_apart(*amount) for amount in amounts)
        assert by_row[about]["told_apart"] == pytest.approx(bound)
        assert by_row[about]["weak"] == (bound > 0.9)
    for about in by_row.keys() - expected.keys():
        assert by_row[about]["told_apart"] is None
        assert by_row[about]["weak"] is False


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0, 20.0])
def test_no_adverb_stands_for_a_number(epsilon: float) -> None:
    _, words = classify(label_epsilon=epsilon, feature_epsilon=50.0)
    assert "hardly" not in " ".join(words.values())
    assert words["Label"].startswith(f"ε = {epsilon:g} (label replaced): ")
    assert f"guesses it in at most {100 * guess_bound(epsilon, 0.25):.3g} %" in words["Label"]
    # e^2.2/(1 + e^2.2) is 90 %, and e^8/(1 + e^8) is above 99.9 %
    expected = "(no useful bound)" if epsilon >= 8 else "(weak)" if epsilon > 2.2 else "of cases. "
    assert expected in words["Label"]


def test_exact_sums_guarantee_nothing_about_features() -> None:
    _, words = classify(protect="none")
    assert "Features" not in words
    assert "Edge" not in words
    for about in ("features replaced", "record replaced", "edge added or removed"):
        assert about in words["Not protected"]


def test_with_a_book_all_runs_are_counted_too() -> None:
    schedule = schedule_of()
    spent = {name: schedule.disclosed(role) for name, role in ROLES.items()}
    twice = {
        name: each._replace(label=2 * each.label, mu={k: 2 * mu for k, mu in each.mu.items()})
        for name, each in spent.items()
    }
    account = AccountView(life=twice, newly=dict.fromkeys(spent, 0.0))
    table = classify_guarantees(schedule, account)
    words = dict(classify_in_words(table, 4))
    assert words["Label"].startswith(
        "ε = 3 (label replaced): two equally likely labels are told apart in at most 95.3 % of "
        "cases (weak), in all runs with this account ε = 6: at most 99.8 % of cases (weak). "
    )
    assert f"guesses it in at most {100 * guess_bound(6, 0.25):.3g} %" in words["Label"]
    features = next(row for row in table if row["about"] == "features replaced")
    assert features["told_apart_for_life"] > 0.9 > features["told_apart"]
    assert features["weak"]
    asked = {name: each._replace(answers=3) for name, each in twice.items()}
    table = classify_guarantees(schedule, AccountView(life=asked, newly=account.newly))
    words = dict(classify_in_words(table, 4))
    assert ", in all runs with this account: no guarantee" in words["Features"]


def test_links() -> None:
    table, words = links()
    assert table[0]["by score queries"].endswith("34 bits at most in 16 score queries")
    assert words == {
        "Label": "not used.",
        "Features": "(8, 1e-05) (features replaced): two equally likely alternatives are told "
        "apart in at most 79.8 % of cases. Score queries add: 34 bits at most in 16 score queries.",
        "Not protected": "edge added or removed, degree, device absent.",
        "": "These bounds hold against everyone who sees every sum and the model, but no score "
        "query.",
    }
    _, words = links(protect="none")
    assert words["Features"] == "Score queries add: 34 bits at most in 16 score queries."
    assert words["Not protected"].startswith("features replaced, ")
    _, words = links(score_queries=0)
    assert words["Features"].endswith(
        "Score queries add: 2 bits for each asker, any number of them."
    )
    _, words = links(query_epsilon=0.5)
    assert words["Features"].endswith(
        "Score queries add: ε = 0.5 for each score query, 8 for all of them."
    )
