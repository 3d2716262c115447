"""The account against Google's `dp-accounting`: its PLD accountant knows nothing of ours.

Every sum of a run is given to it as a Gaussian mechanism of its own, as noise over the move that a
question is about; it discretises privacy losses and composes them numerically. What it
printed (version 0.6.0) is kept here too.
"""

import math
from collections import Counter
from typing import Any

import pytest
from tests.narrow import present
from tests.strict.classifying import schedule_of
from tests.strict.composition import DELTA, mus
from tests.strict.linking import schedule as link_schedule
from tests.strict.test_classify_guarantees import numbers

from lumos.ldp.account import EDGE, FEATURES, NORM
from lumos.secagg.noise import epsilon_for
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.features import STAGES
from lumos.strict.guarantees import ROLES, SUMS
from lumos.strict.guarantees import classify_guarantees as of_labels
from lumos.strict.guarantees import link_guarantees as of_links
from lumos.training.split import Role

FACEBOOK: dict[str, Any] = {"devices": 22_470, "training": 11_235, "validation": 5_617}
TRAINING, VALIDATION = "training devices", "validation devices"
STEP = 1e-3
"""Of the privacy losses that the library rounds to."""

PRINTED: dict[tuple[str, str], float] = {
    (TRAINING, FEATURES): 8.0000,
    (TRAINING, NORM): 5.7623,
    (TRAINING, EDGE): 0.3986,
    (VALIDATION, FEATURES): 0.6530,
    (VALIDATION, NORM): 2.7375,
    (VALIDATION, EDGE): 0.9483,
    ("links", FEATURES): 7.9999,
    ("links", NORM): 5.4208,
}
"""ε at δ = 1e-5 by the library, for the sums of Facebook at the defaults."""


def by_library(given: list[float], delta: float = DELTA) -> float:
    """ε of Gaussian mechanisms, as the library composes them; it takes equal ones together."""
    pld = pytest.importorskip("dp_accounting.pld")
    event = pytest.importorskip("dp_accounting.dp_event")
    accountant: Any = pld.PLDAccountant(value_discretization_interval=STEP)
    for mu, count in Counter(given).items():
        accountant.compose(event.GaussianDpEvent(1 / mu), count)
    return float(accountant.get_epsilon(delta))


def moved(schedule: ClassifySchedule, role: str, question: str) -> list[float]:
    """Moves over noise of every sum that a device of some role is in, zeros left out."""
    return [mu for mu in mus(schedule, ROLES[role], question) if mu > 0]


def of_classify(schedule: ClassifySchedule | None = None) -> dict[tuple[str, str], list[float]]:
    schedule = schedule or schedule_of(**FACEBOOK)
    return {
        (role, question): moved(schedule, role, question)
        for role in (TRAINING, VALIDATION)
        for question in (FEATURES, NORM, EDGE)
    }


def of_link(scaling: str = "none") -> dict[tuple[str, str], list[float]]:
    made = link_schedule(22_470, scaling=scaling)
    questions = {}
    for question in (FEATURES, NORM):
        mus = []
        assert [stage.name for stage in made.first_stages] == list(STAGES[scaling])
        for stage, step in made.sums:
            noise = present(stage.noise(step))
            honest = noise.share * math.sqrt(22_470 - math.ceil(2_247.0) - math.ceil(1_123.5))
            mus.append(getattr(stage.moves, question) / honest)
        questions["links", question] = [mu for mu in mus if mu > 0]
    return questions


def printed_cells(
    schedule: ClassifySchedule | None = None, scaling: str = "none"
) -> dict[tuple[str, str], float]:
    """ε of the same sums as the tables print it, messages taken off."""
    schedule = schedule or schedule_of(**FACEBOOK)
    rows = of_labels(schedule)
    names = {FEATURES: rows[1], NORM: rows[3], EDGE: rows[5]}
    cells = {}
    for role, question in of_classify(schedule):
        spent = schedule.disclosed(ROLES[role])
        cells[role, question] = numbers(names[question][role])[0] - spent.propagated_labels * (
            question == EDGE
        )
    links = of_links(link_schedule(22_470, scaling=scaling))
    for question, row in ((FEATURES, links[0]), (NORM, links[1])):
        cells["links", question] = numbers(row[SUMS])[0]
    return cells


@pytest.mark.parametrize("case", list(PRINTED), ids=" ".join)
def test_cells_are_what_the_library_printed(case: tuple[str, str]) -> None:
    """Rounded up to three digits, so never below; messages of an edge are added before that."""
    found, cell = PRINTED[case], printed_cells()[case]
    room = 0.1 if case[1] == EDGE else 0.01 * found
    assert found - 1e-3 <= cell <= found + room


@pytest.mark.parametrize("case", list(PRINTED), ids=" ".join)
def test_the_library_still_prints_it(case: tuple[str, str]) -> None:
    parts = (of_classify() | of_link())[case]
    assert by_library(parts) == pytest.approx(PRINTED[case], abs=2e-3)
    assert epsilon_for(math.hypot(*parts), DELTA) == pytest.approx(PRINTED[case], abs=2e-3)


@pytest.mark.parametrize(("scaling", "signed"), [("size", False), ("standard", True)])
def test_runs_that_scale_features(scaling: str, signed: bool) -> None:
    """Every cell of both tables against the library, which composes the scaling sums too."""
    settings = {**FACEBOOK, "signed": signed}
    schedule = schedule_of(scaling=scaling, **settings)
    cells = printed_cells(schedule, scaling)
    sums = of_classify(schedule) | of_link(scaling)
    assert cells.keys() == sums.keys()
    for case, parts in sums.items():
        found = by_library(parts)
        room = 0.1 if case[1] == EDGE else 0.01 * found
        assert found - 2e-3 <= cells[case] <= found + room, case
    assert cells[TRAINING, FEATURES] == cells["links", FEATURES] == 8
    plain = printed_cells(schedule_of(**settings))
    for question in (FEATURES, NORM, EDGE):  # what scaling takes, training devices alone pay
        assert cells[VALIDATION, question] == plain[VALIDATION, question]
    assert cells[TRAINING, EDGE] == plain[TRAINING, EDGE]


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.6660305978457177, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-5, 1e-3])
def test_one_mechanism(mu: float, delta: float) -> None:
    assert by_library([mu], delta) == pytest.approx(epsilon_for(mu, delta), abs=1e-3)


def test_eight_runs_for_life() -> None:
    """What an account adds up, by μ², is what the library composes sum by sum."""
    one = of_classify()[TRAINING, FEATURES]
    whole = schedule_of(**FACEBOOK).run_mu(Role.TRAIN)[FEATURES] * math.sqrt(8)
    assert by_library(8 * one) == pytest.approx(epsilon_for(whole, DELTA), abs=5e-3)
