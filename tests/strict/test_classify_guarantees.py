"""The table of guarantees: every cell derived again, none smaller than what is true."""

from pathlib import Path
from typing import Any

import pytest
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.composition import DELTA, epsilon_of, mus

from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.guarantees import ROLES
from lumos.strict.guarantees import classify_guarantees as guarantees
from lumos.strict.guarantees import classify_reading as reading
from lumos.training.guarantees import NO_GUARANTEE as NONE

TRAINING, VALIDATION, OTHER = "training devices", "validation devices", "other devices"
LABEL = "label replaced"
FEATURES = "features replaced"
RECORD = "record replaced"
PRESENCE = "contribution to the sums zeroed"
ABSENT = "device absent"
EDGE = "edge added or removed"
OTHER_EDGE = "edge replaced at one end"
DEGREE = "degree"
QUESTIONS = (LABEL, FEATURES, RECORD, PRESENCE, ABSENT, EDGE, OTHER_EDGE, DEGREE)
NOISY: dict[str, dict[str, Any]] = {
    "defaults": {},
    "on a large graph": {"devices": 22_470, "training": 11_235, "validation": 5_617},
    "signed": {"signed": True},
    "standardised": {"signed": True, "scaling": "standard"},
    "sizes": {"scaling": "size"},
    "other levels": {"label_epsilon": 3.4567, "feature_epsilon": 3.333},
    "no propagated labels": {"propagated_labels": 0},
    "three propagated labels": {"propagated_labels": 3, "propagated_epsilon": 1.7},
    "tree network": {"tree_network": True},
    "digits": {"classes": 40, "label_epsilon": 2.0},
    "all devices": {"participation": "all"},
    "few labels": {"devices": 22_470, "training": 449, "validation": 449},
}
EXACT = ("none",)


def table(schedule: ClassifySchedule) -> dict[str, dict[str, str]]:
    return {row["about"]: row for row in guarantees(schedule)}


def numbers(cell: str) -> tuple[float, float]:
    """(ε, δ) of a cell; δ = 0 where it is pure."""
    if cell.endswith(", pure"):
        return float(cell.removeprefix("ε = ").removesuffix(", pure")), 0.0
    epsilon, delta = cell.removeprefix("(").removesuffix(")").split(", ")
    return float(epsilon), float(delta)


def sums(schedule: ClassifySchedule, role: str, question: str, changes: int = 1) -> float:
    """ε of all sums that a device of some role is in, from moves and noise alone."""
    return epsilon_of(mus(schedule, ROLES[role], question, changes), DELTA)


def truth(schedule: ClassifySchedule, role: str) -> dict[str, tuple[float, float]]:
    """(ε, δ) of each question that has an answer in numbers."""
    strict = schedule.strict
    label = strict.label_epsilon
    user = schedule.num_propagated * strict.propagated_epsilon
    answers = {
        EDGE: (user + sums(schedule, role, "edge"), DELTA),
        OTHER_EDGE: (2 * user + sums(schedule, role, "edge", changes=2), DELTA),
    }
    predicted = schedule.predicted_epsilon if schedule.all_take_part and role != TRAINING else 0.0
    features = predicted + sums(schedule, role, "features")
    if role == OTHER:
        answers = {question: (epsilon, 0.0) for question, (epsilon, _) in answers.items()}
        if schedule.all_take_part:
            answers |= {FEATURES: (features, DELTA), RECORD: (features, DELTA)}
            answers |= {PRESENCE: (sums(schedule, role, "norm"), DELTA)}
        return answers
    answers |= {
        FEATURES: (features, DELTA),
        PRESENCE: (sums(schedule, role, "norm"), DELTA),
    }
    return answers | {LABEL: (label, 0.0), RECORD: (label + features, DELTA)}


@pytest.mark.parametrize("role", [TRAINING, VALIDATION, OTHER])
@pytest.mark.parametrize("name", NOISY)
def test_every_cell_is_true_and_rounded_up(name: str, role: str) -> None:
    schedule = schedule_of(**NOISY[name])
    rows = table(schedule)
    assert tuple(rows) == QUESTIONS
    for question, (epsilon, delta) in truth(schedule, role).items():
        printed, printed_delta = numbers(rows[question][role])
        assert printed_delta == delta, question
        assert printed >= epsilon * (1 - 1e-3), question  # the oracle's own error
        assert printed <= epsilon * 1.012, question
    in_words = set(QUESTIONS) - truth(schedule, role).keys()
    for question in in_words:
        cell = rows[question][role]
        assert cell.startswith(NONE) or role == OTHER, question
        assert not any(character.isdigit() for character in cell), question


@pytest.mark.parametrize("name", NOISY)
def test_no_cell_is_below_the_account(name: str) -> None:
    """The same without the oracle's error: the closed form of the account."""
    schedule = schedule_of(**NOISY[name])
    rows = table(schedule)
    for role, of_role in ROLES.items():
        for question, asked, changes in (
            (FEATURES, "features", 1),
            (PRESENCE, "norm", 1),
            (EDGE, "edge", 1),
            (OTHER_EDGE, "edge", 2),
        ):
            if role == OTHER and question in (FEATURES, PRESENCE) and not schedule.all_take_part:
                continue
            strict = schedule.strict
            messages = {EDGE: 1, OTHER_EDGE: 2}.get(question, 0)
            epsilon = messages * schedule.num_propagated * strict.propagated_epsilon
            epsilon += present(schedule.account(changes * schedule.mu(asked, of_role)))[0]
            assert numbers(rows[question][role])[0] >= epsilon * (1 - 1e-9), question


def test_roles_are_apart() -> None:
    rows = table(schedule_of())
    assert rows[FEATURES][TRAINING] == "(8, 1e-05)"
    assert numbers(rows[FEATURES][VALIDATION])[0] < 8
    assert rows[FEATURES][OTHER] == "they never leave the device"
    assert rows[RECORD][OTHER] == "it never leaves the device"
    assert rows[LABEL][OTHER] == "not used"
    assert rows[PRESENCE][OTHER] == "no vector in any sum"
    assert numbers(rows[EDGE][OTHER]) == (8, 0)


def test_who_is_not_there_at_all_has_no_guarantee() -> None:
    rows = table(schedule_of())
    assert {rows[ABSENT][role] for role in ROLES} == {NONE}
    assert all(rows[DEGREE][role].startswith(NONE) for role in ROLES)


def test_a_label_has_one_epsilon_whatever_uses_it() -> None:
    """Messages and sums use one randomized label, so its ε counts once."""
    for expected in (3.0, 2.0):
        rows = table(schedule_of(label_epsilon=expected))
        for role in (TRAINING, VALIDATION):
            assert numbers(rows[LABEL][role]) == (expected, 0)
            features = numbers(rows[FEATURES][role])[0]
            assert numbers(rows[RECORD][role])[0] == pytest.approx(expected + features, rel=0.011)


@pytest.mark.parametrize("protect", EXACT)
def test_exact_sums_leave_no_guarantee(protect: str) -> None:
    schedule = schedule_of(protect=protect)
    rows = table(schedule)
    for role in (TRAINING, VALIDATION):
        for question in QUESTIONS:
            cell = rows[question][role]
            if question == LABEL:
                assert cell == "ε = 3, pure"  # sums see the randomized label only
            else:
                assert cell.startswith(NONE), (question, cell)
                assert "(" not in cell
        assert "ε = 8 by messages" in rows[EDGE][role]
        assert "ε = 16 by messages" in rows[OTHER_EDGE][role]
    assert rows[EDGE][OTHER] == "ε = 8, pure"  # it is in no sum


def test_without_propagated_labels_an_edge_is_in_sums_only() -> None:
    rows = table(schedule_of(propagated_labels=0))
    assert rows[EDGE][OTHER] == "ε = 0, pure"
    exact = table(schedule_of(propagated_labels=0, protect="none"))
    assert "by messages" not in exact[EDGE][TRAINING]


# How to read it.


@pytest.mark.parametrize(
    ("settings", "simulated"),
    [
        ({}, "sums were computed in the clear and randomness comes from the run seed."),
        ({"aggregate": "secure"}, "simulation: randomness comes from the run seed."),
        ({"randomness": "system"}, "simulation: sums were computed in the clear."),
        ({"aggregate": "secure", "randomness": "system"}, None),
    ],
)
def test_the_reading_says_what_a_simulation_does_not_do(
    settings: dict[str, Any], simulated: str | None
) -> None:
    sentence = reading(schedule_of(**settings), 30)
    assert "several runs add up" in sentence
    assert ("simulation" in sentence) == (simulated is not None)
    assert simulated is None or simulated in sentence


def test_with_a_book_the_reading_says_what_columns_for_life_are() -> None:
    sentence = reading(schedule_of(account=Path("account")), 30)
    assert "A label costs the largest ε of all its draws" in sentence
    assert "Columns for life count what is seen in all runs with this account" in sentence
    assert "ε = 4 for labels, 64 for propagated labels, and 31 for sums" in sentence
