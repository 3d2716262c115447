"""The table of promises: nothing is printed smaller than it is, and nothing promised in vain."""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lumos.strict.promises import NONE, WHO, caution, promises, reading, up
from lumos.strict.schedule import Schedule
from lumos.training.config import Config

ROUNDING = 1e-8
"""Share of a number that is taken for an error of floating point."""


def table(epsilon: float = 2.0, **settings: Any) -> dict[str, dict[str, str]]:
    plan = Schedule(Config.of(profile="strict", epsilon=epsilon, **settings), 1000, 500)
    ledger: Any = SimpleNamespace(epsilon_per_receiver=epsilon, epsilon_collusion=epsilon)
    return {row["about"]: row for row in promises(plan, ledger)}


@given(st.floats(1e-9, 1e9))
@example(8.0)
@example(10.000001)
@example(9.991)
@example(999.1)
@example(0.1 + 0.2)
@example(1e-5)
def test_numbers_are_rounded_up(number: float) -> None:
    printed, exact = Fraction(up(number)), Fraction(number)
    assert printed >= exact * Fraction(1 - ROUNDING)
    assert printed <= exact * Fraction(1.01 + ROUNDING)  # three digits


@given(st.integers(100, 999), st.integers(-8, 8))
def test_numbers_of_three_digits_stay(digits: int, power: int) -> None:
    number = float(f"{digits}e{power}")
    assert math.isclose(float(up(number)), number, rel_tol=1e-12)
    assert up(0) == "0"


@pytest.mark.parametrize("relay", [2, 3, 8])
@pytest.mark.parametrize("protect", ["noise", "none", "holders", "projection"])
def test_a_relay_leaves_no_promise_for_degrees_and_edges(relay: int, protect: str) -> None:
    rows = table(relay=relay, protect=protect)
    for about in ("degree and workload", "edges"):
        for who in WHO:
            assert rows[about][who].startswith(NONE), (about, who)
            assert "(" not in rows[about][who]  # not a number among it
    alone = table(protect=protect)
    for about in ("features", "label", "losses"):  # a relay costs no ε
        assert rows[about] == alone[about]


def test_without_a_relay_edges_have_a_number_of_their_own() -> None:
    rows = table()
    plan = Schedule(Config.of(profile="strict"), 1000, 500)
    spent = plan.spent_on_edge()
    assert spent is not None
    number = f"({up(spent[0])}, {spent[1]:g})"
    assert rows["edges"]["a stranger"] == rows["edges"]["the coordinator"] == number
    for who in WHO[:-1]:
        assert number in rows["edges"][who]
        assert f"{NONE} by the weights" in rows["degree and workload"][who]
    assert rows["edges"]["the broker"].startswith(NONE)
    assert rows["degree and workload"]["the broker"].startswith(NONE)


@pytest.mark.parametrize(("epsilon", "update_epsilon"), [(2.0, 8.0), (0.5, 1.0), (1.234, 3.333)])
def test_whoever_sees_the_weights_has_the_symbol_and_the_updates(
    epsilon: float, update_epsilon: float
) -> None:
    rows = table(epsilon=epsilon, update_epsilon=update_epsilon)
    for about in ("features", "label", "losses"):
        for who in WHO[:-1]:
            number, delta = rows[about][who].strip("()").split(", ")
            assert float(number) >= (epsilon + update_epsilon) * (1 - 1e-8)
            assert float(number) <= (epsilon + update_epsilon) * 1.01
            assert float(delta) == 1e-5
        assert rows[about]["the broker"].startswith(NONE)


@pytest.mark.parametrize("protect", ["none", "holders", "projection"])
def test_exact_sums_leave_no_promise_to_those_who_see_the_weights(protect: str) -> None:
    rows = table(protect=protect)
    for about in ("features", "label", "losses"):
        for who in WHO[:-1]:
            assert rows[about][who].startswith("ε = 2 by the symbol; no promise by the weights")
    assert rows["edges"]["the coordinator"] == NONE


@pytest.mark.parametrize(
    ("settings", "simulated"),
    [
        ({}, "sums were computed in the clear and coins come from the run seed."),
        ({"aggregate": "secure"}, "simulation: coins come from the run seed."),
        ({"coins": "system"}, "simulation: sums were computed in the clear."),
        ({"aggregate": "secure", "coins": "system"}, None),
    ],
)
def test_the_reading_says_what_a_simulation_does_not_do(
    settings: dict[str, Any], simulated: str | None
) -> None:
    sentence = reading(Schedule(Config.of(profile="strict", **settings), 1000, 500))
    assert "several runs add up" in sentence
    assert ("simulation" in sentence) == (simulated is not None)
    assert simulated is None or simulated in sentence


def test_a_caution_where_noise_drowns() -> None:
    """Where its norm is above that of all updates together."""
    for trainers, protect in ((30, "noise"), (1_000_000, "noise"), (30, "none")):
        plan = Schedule(Config.of(profile="strict", protect=protect), 2 * trainers, trainers)
        drowned = trainers == 30 and protect == "noise"
        assert bool(caution(plan, 3606)) == drowned
